"""Files that exist as a whole or not at all, and seals of private ones."""
