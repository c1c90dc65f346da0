"""Tests of strategies/server/releases/."""
