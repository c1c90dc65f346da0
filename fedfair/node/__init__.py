"""The computations of one node on the records of its clients."""
