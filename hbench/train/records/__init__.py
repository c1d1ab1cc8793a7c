"""Keeps the records of a run: checkpoints, the log, trackers, refusals."""
