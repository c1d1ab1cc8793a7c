"""Submitted rankings: reading their files, and computing level sequences from them."""
