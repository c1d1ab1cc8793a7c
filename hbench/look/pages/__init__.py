"""Writes folders of pages: the parts that all of them share, such as data, templates and style."""
