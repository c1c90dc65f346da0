"""Registries of named values, reserved names, texts with values, and Python files of the user's."""
