"""Tests of fedfair/datasets/files/."""
