"""Tests of fedfair/datasets/."""
