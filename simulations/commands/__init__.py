"""The commands of `fedfair`, a file for each kind."""
