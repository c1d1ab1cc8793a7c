"""Metrics as pure functions of one query's level sequence, with their names, relevances, protocols and significance tests."""
