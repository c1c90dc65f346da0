"""Registries of named values, reserved names, and Python files of the user's."""
