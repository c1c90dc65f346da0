"""What one node computes on the records of its clients."""
