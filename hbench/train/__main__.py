"""`python -m hbench.train RECIPE …` is `hbench train RECIPE …`, for torchrun."""

import sys

from hbench.cli import main

sys.argv.insert(1, "train")
main()
