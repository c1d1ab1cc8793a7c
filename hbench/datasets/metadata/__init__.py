"""Tells other tools and readers what a dataset is: the paper to cite, Croissant metadata, a card that Hugging Face reads."""
