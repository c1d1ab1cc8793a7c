"""Reads submissions: embedding files, rankings and lists of pairs. Their ids are compared with
the dataset's, and everything that is wrong with a submission is reported.
"""
