"""Counts the modules of hbench that a command enters: how many files a reader would have to open to follow it.

A module is entered when a function of it is called; that it was imported does not count.

    python benchmarks/walk.py                    # the three walks below
    python benchmarks/walk.py evaluate my.parquet --dataset sop   # any other command
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

COUNTER = """
import atexit, json, os, sys, threading
from pathlib import Path
entered = set()
def enter(frame, event, argument):
    name = frame.f_globals.get("__name__", "")
    if event == "call" and name.split(".")[0] == "hbench" and frame.f_code.co_name not in {"<module>", "<genexpr>"}:
        if frame.f_code.co_flags & 2:  # a function, not the body of a class
            entered.add(name)
def begin():
    sys.setprofile(enter); threading.setprofile(enter)
def write():
    sys.setprofile(None); Path(os.environ["HBENCH_WALK"]).write_text(json.dumps(sorted(entered)))
"""
COMMAND = """
import sys
sys.argv = ["hbench", *ARGUMENTS]
import hbench.cli
begin()
try:
    hbench.cli.main()
except SystemExit:
    pass
write()
"""
BATCH = """
import torch, hbench.train.loop
from hbench.train.recipes.files import resolve
from hbench.train.loop import train
recipe = resolve("glyphs-happier", ["epochs=1", "steps_per_epoch=2"])
"""


def walk(code: str, home: Path) -> list[str]:
    """The modules that a piece of code enters, in a process of its own."""
    out = home / "walk.json"
    environment = {**os.environ, "HBENCH_WALK": str(out), "HBENCH_CACHE": str(home / "cache")}
    subprocess.run([sys.executable, "-c", COUNTER + code], check=True, env=environment, stdout=subprocess.DEVNULL)
    names: list[str] = json.loads(out.read_text(encoding="utf-8"))
    return names
