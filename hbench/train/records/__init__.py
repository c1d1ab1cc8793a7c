"""Writes down what happens in a run: checkpoints, the log and its trackers."""
