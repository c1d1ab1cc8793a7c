"""Verifies rows of leaderboards: their files are scored again, or made again, and compared."""
