"""Tests of simulations/files/."""
