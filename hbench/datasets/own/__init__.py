"""Turns a user's table or folder of images into a dataset."""
