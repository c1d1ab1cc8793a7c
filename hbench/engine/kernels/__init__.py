"""Compiled steps from rows of scores to ranks and sums, and what they need in numpy."""
