"""The round that all strategies share, and its parts."""
