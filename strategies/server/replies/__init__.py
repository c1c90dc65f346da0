"""What the server asks of nodes, and what it checks of their replies."""
