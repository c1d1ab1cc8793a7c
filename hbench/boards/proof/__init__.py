"""Proves rows: scores their files again, or makes them again, and compares."""
