"""Calls of the command line: in this process, or in a process of its own."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from hbench.cli import group, main

ROOT = Path(__file__).parents[1]


def call(*words: object) -> Result:
    """Call a command that has to succeed in this process; a refusal is raised."""
    done = CliRunner().invoke(group, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def refusal(*words: object) -> str:
    """Call a command that has to be refused in this process, by hbench or by click, and return its
    message.
    """
    done = CliRunner().invoke(group, list(map(str, words)))
    assert done.exception is not None, done.output
    return f"{done.output}{done.exception}"


def run(
    *words: object, code: int = 0, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which has to end with a code."""
    return process("-m", "hbench", *words, code=code, folder=folder)


def python(text: str, *words: object, folder: Path | None = None, **environment: object) -> str:
    """What a text of Python prints in a process of its own, which has to end well."""
    return process("-c", text, *words, folder=folder, **environment).stdout


def process(
    *words: object, code: int = 0, folder: Path | None = None, **environment: object
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which has to end with a code."""
    paths = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        **{k: str(v) for k, v in environment.items()},
    }
    line, env = [sys.executable, *map(str, words)], {**os.environ, **paths}
    done = subprocess.run(
        line, capture_output=True, text=True, errors="replace", check=False, cwd=folder, env=env
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done


class Streams(NamedTuple):
    """What a command wrote."""

    stdout: str
    stderr: str


def in_folder(folder: Path, *words: object, code: int = 0) -> Streams:
    """Run a command as the console script does, but in this process; it has to end with a code."""
    out, err, ended = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        for context in (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            stack.enter_context(context)
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(
            sys, "argv", ["hbench", *map(str, words)]
        )
        try:
            main()
        except SystemExit as exit_code:
            ended = int(exit_code.code or 0)
    assert ended == code, err.getvalue() + out.getvalue()
    return Streams(out.getvalue(), err.getvalue())


def at_a_terminal(*words: object, columns: int = 80, remarks: bool = False) -> str:
    """What a terminal of this many columns is sent by a command: stdout and, with `remarks`,
    stderr.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-m", "hbench", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs if remarks else subprocess.DEVNULL,
        env={**plain, "TERM": "xterm", "NO_COLOR": "1"},
    ):
        os.close(theirs)
        sent = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1 << 16):
                sent += part
    os.close(ours)
    return sent.decode()
