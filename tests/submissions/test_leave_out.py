"""Items whose vectors are all zero, as published vectors of taxa have them: left out where that is
asked for, and said.
"""

import numpy as np
import pytest

import hbench
from hbench.core.errors import SubmissionError, UnknownName
from tests.command_line import in_folder

pytestmark = pytest.mark.fast


@pytest.fixture
def birds(tmp_path):
    """Thirty items of three classes, two of which have zero vectors."""
    rng = np.random.default_rng(0)
    labels = [("A", "a"), ("A", "b"), ("B", "c")]
    (tmp_path / "t.csv").write_text(
        "item,order,species\n" + "".join(f"i{n},{','.join(labels[n % 3])}\n" for n in range(30))
    )
    vectors = rng.normal(size=(30, 4))
    vectors[[4, 7]] = 0
    np.savez(tmp_path / "mine.npz", ids=np.array([f"i{n}" for n in range(30)]), vectors=vectors)
    return tmp_path, vectors


def test_zero_vectors_are_refused_with_the_option_that_leaves_them_out(birds):
    folder, _ = birds
    with pytest.raises(SubmissionError, match=r"2 zero vectors[\s\S]*--leave-out zero"):
        hbench.evaluate(folder / "mine.npz", folder / "t.csv")


def test_without_them_the_scores_are_those_of_the_other_items(birds):
    folder, vectors = birds
    kept = [n for n in range(30) if n not in (4, 7)]
    labels = [[("A", "a"), ("A", "b"), ("B", "c")][n % 3] for n in kept]
    expected = hbench.score(vectors[kept], labels, metrics=["H-AP", "AP"])
    found = hbench.evaluate(
        folder / "mine.npz", folder / "t.csv", leave_out="zero", metrics=["H-AP", "AP"]
    )
    assert found.scores["H-AP"] == pytest.approx(expected.scores["H-AP"], abs=1e-12)
    assert "left-out:2(" in found.signature
    assert any("by class: b 2" in remark for remark in found.remarks)
    with pytest.raises(UnknownName, match="leave out 'nan'"):
        hbench.evaluate(folder / "mine.npz", folder / "t.csv", leave_out="nan")


def test_the_command_line_leaves_them_out_alike(birds):
    folder, _ = birds
    shown = in_folder(
        folder, "evaluate", "mine.npz", "-d", "t.csv", "--leave-out", "zero", "--metrics", "AP"
    )
    assert "left-out:2(" in shown.stdout
