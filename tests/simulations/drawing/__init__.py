"""Tests of simulations/drawing/."""
