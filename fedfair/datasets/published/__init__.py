"""Published data sets, a file each, and where their files come from."""
