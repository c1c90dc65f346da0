"""Excessive-risk terms of private training by group."""
