"""Problems: how they read, and what a likely cause never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import SubmissionError
from hbench.evaluation.embeddings.ids import SubmissionProblem, found, in_a_line, likely_cause, refuse


def test_a_fault_names_the_next_step_and_a_remark_what_is_made_of_it():
    assert (
        str(SubmissionProblem("missing ids", 2, ("a", "b"), "embed them"))
        == "2 missing ids (a, b)\n    next: embed them"
    )
    remark = SubmissionProblem("queries without a list", 1200, ("a",), "they score 0", fatal=False)
    assert str(remark) == "1,200 queries without a list (a, …): they score 0"
    assert str(SubmissionProblem("int8 vectors", 3)) == "3 int8 vectors"


def test_nothing_found_is_no_problem_and_five_names_are_enough():
    assert found("missing ids", [], 0) == []
    (problem,) = found("missing ids", map(str, range(100)), 100)
    assert problem.examples == ("0", "1", "2", "3", "4")


def test_only_faults_refuse():
    remark = SubmissionProblem("repeats", 1, fatal=False)
    refuse("emb.npz", [remark])
    with pytest.raises(SubmissionError) as caught:
        refuse("emb.npz", [remark, SubmissionProblem("missing ids", 1), SubmissionProblem("zero vectors", 2)])
    assert str(caught.value) == "emb.npz cannot be scored\n  1 missing ids\n  2 zero vectors"


@given(st.text())
def test_any_name_fits_a_line(name):
    assert in_a_line(name).isprintable()
    assert 0 < len(in_a_line(name)) <= 81


@given(st.lists(st.text(max_size=5), max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_a_cause_quotes_one_of_each_side(wanted, unknown):
    cause = likely_cause(wanted, unknown)
    if cause is not None and not cause.startswith("ids look like row numbers"):
        assert any(repr(name) in cause for name in wanted)
        assert any(repr(name) in cause for name in unknown)
    if not wanted or not unknown:
        assert cause is None


@pytest.mark.parametrize("longer", ["wanted", "unknown"])
def test_half_of_the_shorter_list_must_be_explained(longer):
    few = [f"cat/{i}.png" for i in range(10)]
    many = [f"cat/{i}" for i in range(5)] + [f"dog {i}" for i in range(3000)]
    sides = (many, few) if longer == "wanted" else (few, many)
    assert likely_cause(*sides) is not None
    assert likely_cause(*[side[1:] if side is many else side for side in sides]) is None
