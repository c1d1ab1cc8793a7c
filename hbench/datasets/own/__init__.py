"""Datasets of your own: tables of items and folders of images."""
