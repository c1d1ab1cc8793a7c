"""Tests see the checkout first, and hypothesis has no deadline: a slow machine is not a failure.
Defects are shown whole.

CI draws the same examples every time, so that a change fails by what it changed; elsewhere every
run draws others.
"""

import os

from hypothesis import settings

from hbench.core.paths import cache_home

os.environ["HBENCH_GUARD"] = "0"
# before torch is loaded, here and in what tests start: threads of two processes on the same
# processors would otherwise wait for each other by turning, and training took eight times as long
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# one for all tests, whatever home they give themselves
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_home() / "kernels"))
settings.register_profile(
    "hbench", deadline=None, max_examples=60, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("hbench")
