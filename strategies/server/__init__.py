"""The round that all strategies share, and the parts that it is made of."""
