"""Metrics by group, and decisions that are corrected by group after training."""
