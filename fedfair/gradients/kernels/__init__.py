"""Faster products, activations and memory for small layers on a CPU."""
