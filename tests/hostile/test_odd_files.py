"""Files of every format that are damaged, or whole and wrong: read or refused, never a crash, a
hang or another exception.
"""

import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.command_line import process
from tests.hostile.campaign import outcome
from tests.hostile.corpus import SAMPLES
from tests.hostile.strategies import altered

EXAMPLES = 40  # the same in every run, so that main is never red by chance


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_odd_files_are_read_or_refused(sample, tmp_path_factory):
    @settings(
        derandomize=True,
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.data())
    def read_or_refused(data):
        path: Path = tmp_path_factory.mktemp("odd") / sample.name
        path.write_bytes(data.draw(altered(sample)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert outcome(sample, path) in ("read", "refused")

    read_or_refused()


def test_damaged_files_are_read_or_refused():
    lines = process("-m", "tests.hostile.campaign", 50, 1).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [sample.name for sample in SAMPLES]
