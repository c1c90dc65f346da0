"""Per-example gradients as norms, inner products and weighted sums."""
