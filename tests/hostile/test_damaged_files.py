"""Damaged files of every format: read or refused, never a crash, a hang or another exception."""

from tests.command_line import process
from tests.hostile.corpus import SAMPLES


def test_damaged_files_are_read_or_refused():
    lines = process("-m", "tests.hostile.campaign", 50, 1).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [sample.name for sample in SAMPLES]
