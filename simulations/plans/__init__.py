"""Plans of many runs: comparisons, sweeps, searches and curves."""
