"""Turns a file of embeddings or rankings into a report: reading, checking, measuring, summarising
and publishing.
"""
