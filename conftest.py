"""Tests see the checkout first, and hypothesis has no deadline: a slow machine is not a failure. Defects are shown whole."""

import os

from hypothesis import settings

os.environ["HBENCH_GUARD"] = "0"
settings.register_profile("hbench", deadline=None, max_examples=60)
settings.load_profile("hbench")
