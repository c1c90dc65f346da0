"""Tables as data, and their faces."""
