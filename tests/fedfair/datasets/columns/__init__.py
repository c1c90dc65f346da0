"""Tests of fedfair/datasets/columns/."""
