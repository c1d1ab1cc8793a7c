"""The assignment of unlabelled landmarks, against plain loops."""

import math
from collections import Counter

import numpy as np
import pytest
from hbench_hgldv2.dataset import assign
from hbench_hgldv2.grouping import encode
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import DataError

pytestmark = pytest.mark.fast


def by_loops(images, names, groups, nearest):
    """Each image's group: the largest sum of exp(100·similarity) over its most similar names."""
    result = []
    for image in images.astype(float):
        scores = ((float(image @ name), number) for number, name in enumerate(names.astype(float)))
        ranked, votes = sorted(scores, key=lambda pair: -pair[0]), {}
        for score, number in ranked[:nearest]:
            votes[groups[number]] = votes.get(groups[number], 0) + math.exp(
                100 * (score - ranked[0][0])
            )
        result.append(max(votes, key=lambda group: votes[group]))
    return result


@given(st.integers(0, 10_000))
def test_both_votes_are_those_of_plain_loops(seed):
    rng = np.random.default_rng(seed)
    images, names = (encode.unit(rng.normal(size=(count, 6))) for count in (20, 9))
    groups = [f"g{rng.integers(4)}" for _ in range(9)]
    landmarks = rng.integers(0, 6, 20).tolist()
    for vote, nearest in ((assign.nearest_name, 1), (assign.nearest_names, 5)):
        each = by_loops(images, names, groups, nearest)
        found = assign.assign(images, landmarks, names, groups, vote=vote)
        assert [row.landmark_id for row in found] == sorted(set(landmarks))
        for row in found:
            ballot = Counter(
                group for group, own in zip(each, landmarks, strict=True) if own == row.landmark_id
            )
            assert (row.group, row.images) == (ballot.most_common(1)[0][0], ballot.total())
            assert row.share == pytest.approx(ballot.most_common(1)[0][1] / ballot.total())


def test_images_of_another_space_are_refused():
    with pytest.raises(DataError, match="different spaces"):
        assign.assign(encode.unit(np.ones((1, 3))), [1], encode.unit(np.ones((1, 4))), ["a"])
