"""Describes datasets to other tools and readers: the paper to cite, Croissant metadata, a card for
Hugging Face.
"""
