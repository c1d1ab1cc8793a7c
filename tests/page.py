"""Runs the blocks of one page of the documentation, in order, in one process and the present
folder.

Run: python -m tests.page PAGE.md
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHORT = [
    "--set",
    "epochs=2",
    "--set",
    "steps_per_epoch=1",
]  # what a page trains for minutes is trained for two steps


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page: kind and text."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(text: str) -> list[list[str]]:
    """The words of every command of a block, without the prompt and what follows #."""
    lines = text.replace("\\\n", " ").splitlines()
    return [
        words for line in lines if (words := shlex.split(line.removeprefix("$ "), comments=True))
    ]


def main(page: Path) -> None:
    from hbench.cli import group
    from hbench.cli.terminal import say

    names: dict[str, object] = {"__name__": "page"}
    for kind, text in blocks(page):
        if kind == "python":
            sys.stdout.write(f"+ python: {text.splitlines()[0]}\n")
            exec(compile(text, str(page), "exec"), names)
        elif kind == "console":
            for program, *words in commands(text):
                if words == ["demo"] and Path("hbench-demo").exists():
                    continue
                assert program == "hbench", program
                say(f"+ hbench {shlex.join(words)}")
                group([*words, *(SHORT if words[0] == "train" else [])], standalone_mode=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
