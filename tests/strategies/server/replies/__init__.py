"""Tests of strategies/server/replies/."""
