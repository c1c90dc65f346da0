"""Tests of fedfair/datasets/published/."""
