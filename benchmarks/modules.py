"""How many of hbench's modules one command runs: what somebody has to open to follow it.

A module counts where one of its functions was called, in any thread; what ran only while modules
were imported (registrations, decorators) does not. Prints their names, and the number to stderr.

    python benchmarks/modules.py tree show glyphs
    python benchmarks/modules.py evaluate test.parquet -d glyphs
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import hbench
from hbench.__main__ import main

SOURCES = Path(hbench.__file__).parent
MODULE = "<module>"  # the code that an import runs
SUITE = "<"  # <lambda> and <listcomp> are parts of the function around them


class Called:
    """The modules of which a function was called."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.threads = threading.local()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note the file of a function that is called; Python tells of every call and return, in the
        thread that it happens in. Calls while a module's own code runs, which is an import, do not
        count: `importing` is how many such codes are at work."""
        code = frame.f_code
        importing = getattr(self.threads, "importing", 0)
        if code.co_name == MODULE and event in ("call", "return"):
            self.threads.importing = importing + (1 if event == "call" else -1)
        elif event == "call" and not importing and not code.co_name.startswith(SUITE):
            self.files.add(code.co_filename)

    @property
    def modules(self) -> list[str]:
        """The names of these modules, as they are imported, of hbench alone."""
        files = [Path(file) for file in self.files]
        inside = [file for file in files if file.is_relative_to(SOURCES)]
        parts = [file.relative_to(SOURCES.parent).with_suffix("").parts for file in inside]
        return sorted(".".join(part).removesuffix(".__init__") for part in parts)


def modules_of(command: Sequence[str]) -> list[str]:
    """The modules that a command of hbench runs, in this process."""
    called = Called()
    sys.argv = ["hbench", *command]
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return called.modules


if __name__ == "__main__":
    found = modules_of(sys.argv[1:])
    print("\n".join(found))
    print(f"{len(found)} modules", file=sys.stderr)
