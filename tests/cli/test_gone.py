"""Verbs of earlier versions say in one line what to use instead."""

import pytest
from click.testing import CliRunner

from hbench.cli import GONE, group
from hbench.core.errors import UsageError

REQUIRED = {"plot --over": ["levels", "x"], "evaluate --each": ["-d", "glyphs"]}


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_says_what_to_use_instead(name):
    done = CliRunner().invoke(group, [*name.split(), *REQUIRED.get(name, []), "-o", "x.svg"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.fix == GONE[name]
