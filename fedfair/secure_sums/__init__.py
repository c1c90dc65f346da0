"""Secure sums of integers: a server learns the sum of what parties hold, and nothing else (Bonawitz et al. 2017)."""
