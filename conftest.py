"""Tests see the checkout first, and hypothesis has no deadline: a slow machine is not a failure.
Defects are shown whole.

CI draws the same examples every time, so that a change fails by what it changed; elsewhere every
run draws others.
"""

import os

from hypothesis import settings

from hbench.core.paths import cache_home

os.environ["HBENCH_GUARD"] = "0"
# one for all tests, whatever home they give themselves
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_home() / "kernels"))
settings.register_profile(
    "hbench", deadline=None, max_examples=60, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("hbench")
