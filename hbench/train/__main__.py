"""Runs `hbench train RECIPE …` as `python -m hbench.train RECIPE …`, for torchrun."""

import runpy
import sys

sys.argv.insert(1, "train")
runpy.run_module("hbench", run_name="__main__")
