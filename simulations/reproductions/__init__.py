"""Published observations, measured again."""
