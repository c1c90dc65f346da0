"""Experiments, presets, and settings written as text."""
