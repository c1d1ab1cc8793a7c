"""Steps from rows of scores to ranks and sums, compiled; and their twins in numpy."""
