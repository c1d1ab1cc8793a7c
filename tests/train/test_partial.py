"""Training on partial labels: a loss of ranks takes its steps, a loss of proxies is refused before the first."""

import json

import numpy as np
import pytest

from hbench.core.errors import ConfigError
from hbench.datasets import Dataset
from hbench.datasets import manifest as manifests
from hbench.losses.partial import ended
from hbench.train import loop
from hbench.tree.names import class_rows
from hbench.tree.partial import ended_early
from tests.training import tiny

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def partly_known(letters):
    """The small glyphs, every third training item known to the level above the finest alone."""
    rows = [class_rows(letters.train.tree)[fine] for fine in letters.train.labels[:, -1].tolist()]
    rows = [ended_early(row[:-1], letters.levels) if n % 3 == 0 else row for n, row in enumerate(rows)]
    train = manifests.from_names(letters.train.items.tolist(), rows, levels=letters.levels)
    labels = ended(train.labels, train.tree)
    assert np.array_equal(np.flatnonzero(labels[:, -1] < 0), np.arange(0, len(rows), 3))
    assert (labels[:, :-1] >= 0).all()
    return Dataset("glyphs", "1", letters.protocol, train, letters.tests)


def test_a_loss_of_ranks_takes_its_steps(partly_known, tmp_path):
    loop.train(tiny("glyphs-roadmap", "epochs=1"), tmp_path, dataset=partly_known)
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["loss"] for line in logged if "loss" in line]
    assert losses
    assert np.isfinite(losses).all()


def test_a_loss_of_proxies_is_refused(partly_known, tmp_path):
    with pytest.raises(ConfigError, match=r"ProxySoftmax needs every label[\s\S]*--policy drop"):
        loop.train(tiny("glyphs-happier"), tmp_path, dataset=partly_known)
