"""What is shown of partial labels: which queries are the worst, and what the first page says."""

import numpy as np
import pandas as pd
import pytest

import hbench
from hbench.look.strips.results import browse

LEVELS = ["order", "family"]


@pytest.fixture
def folder(tmp_path):
    """40 items, every fourth of which is known to the order alone."""
    rng = np.random.default_rng(2)
    rows, vectors = [], []
    for item in range(40):
        order = item % 2
        family = item // 2 % 4
        rows.append([f"{item:02}", f"o{order}", "" if item % 4 == 0 else f"f{order}{family}"])
        vectors.append(rng.normal(size=6) + 2 * np.eye(6)[order] + np.eye(6)[2 + family])
    pd.DataFrame(rows, columns=["item", *LEVELS]).to_csv(tmp_path / "zoo.csv", index=False)
    ids = np.array([row[0] for row in rows])
    np.savez(tmp_path / "zoo.npz", ids=ids, embeddings=np.array(vectors, np.float32))
    return tmp_path


def test_the_worst_are_first_among_queries_whose_label_is_whole(folder):
    data = hbench.load(folder / "zoo.csv", policies=["unknown"])
    shown = [strip.query for strip in browse(folder / "zoo.npz", data, worst=40).sheet.strips]
    ends_early = [int(query) % 4 == 0 for query in shown]
    assert ends_early == sorted(ends_early)
