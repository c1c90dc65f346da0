"""Benchmarks: what privacy and federation cost in time, with the peers side by side in the same run."""
