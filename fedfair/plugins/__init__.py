"""Registries of named things, and Python files of the user's own."""
