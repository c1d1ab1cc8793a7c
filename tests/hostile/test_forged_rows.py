"""Honest rows are verified and forged ones are not, whatever the idea."""

from tests.hostile.forged_rows import Bench, outcomes


def test_honest_rows_are_verified_and_forged_ones_refused(tmp_path, empty_home):
    found = outcomes(Bench(tmp_path, number=8), seed=0, seeds=range(2))
    assert not found["wrong"]
    assert found["honest"].total() >= 80
    assert found["forged"].total() >= 280
