"""The room where everything that people bring is read: bytes become a `Sheet`, its columns get
their parts by one table of words, and one record, `Understood`, says what a file was taken for.
"""
