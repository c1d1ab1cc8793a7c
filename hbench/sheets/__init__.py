"""Reads all files that users bring. Bytes become a `Sheet`, the roles of its columns are found by
one table of words, and a record, `Understood`, says how the file was understood.
"""
