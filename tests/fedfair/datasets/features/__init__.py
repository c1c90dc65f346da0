"""Tests of fedfair/datasets/features/."""
