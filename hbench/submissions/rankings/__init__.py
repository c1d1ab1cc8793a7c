"""Submitted rankings: their files, and the level sequences they give."""
