"""Tests see the checkout first, and hypothesis has no deadline: a slow machine is not a failure."""

from hypothesis import settings

settings.register_profile("hbench", deadline=None, max_examples=60)
settings.load_profile("hbench")
