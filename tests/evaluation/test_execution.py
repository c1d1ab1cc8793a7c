"""Options that do not go together are refused before any file is read."""

import pytest

from hbench.core.errors import HBenchError, UsageError
from hbench.evaluation.execution import APART, Execution

VALUES = {
    "device": "cpu", "workers": 2, "scheduler": "tcp://127.0.0.1:1", "resume": "kept",
    "blocks": "1/2", "top_k": 3,
    "trees": "shuffled",
}  # fmt: skip
PAIRS = [(option, other) for option, (_, others) in APART.items() for other in others]


@pytest.mark.parametrize(("option", "other"), PAIRS)
def test_options_that_exclude_each_other_are_refused_by_name(option, other):
    with pytest.raises(UsageError) as refused:
        Execution(**{name: VALUES[name] for name in (option, other)})
    assert f"--{option}".replace("_", "-") in str(refused.value)
    assert f"--{other}".replace("_", "-") in str(refused.value)


@pytest.mark.parametrize("option", VALUES)
def test_every_option_goes_alone(option):
    needed = {"resume": VALUES["resume"]} if option == "blocks" else {}
    assert getattr(Execution(**needed, **{option: VALUES[option]}), option) == VALUES[option]


@pytest.mark.parametrize(
    "wrong", [{"blocks": "3/2", "resume": "kept"}, {"blocks": "1/2"}, {"trees": "no-such-file.csv"}]
)
def test_values_that_cannot_be_parsed_are_refused_at_once(wrong):
    with pytest.raises(HBenchError):
        Execution(**wrong)
