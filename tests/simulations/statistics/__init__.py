"""Tests of simulations/statistics/."""
