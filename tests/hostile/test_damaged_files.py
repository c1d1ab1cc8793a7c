"""Damaged files of every format: read or refused, never a crash, a hang or another exception."""

import subprocess
import sys

from tests.hostile.corpus import SAMPLES


def test_damaged_files_are_read_or_refused():
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hostile.campaign", "50", "1"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()] == [sample.name for sample in SAMPLES]
