"""Values of every part of hbench, to the last digits that all processors share: moved code must not
move a number.

Scores are sums of products of small integers, exact in float32 on every processor, so no ranking
hangs on a rounding. `python -m tests.test_house` records the values anew, which only a change of
meaning justifies.
"""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hbench_hgldv2.artefact import rows_text
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.replay import Placed, replay

from hbench import evaluate
from hbench.datasets import load
from hbench.submissions import embeddings
from hbench.train.steps.run import begin
from hbench.train.steps.take import update
from tests.pipelines.test_replay import CLUSTERS, GROUPS, LABELS
from tests.training import small_glyphs, tiny

GOLDEN = Path(__file__).parent / "golden" / "house" / "values.json"
QUERIES = 12  # per-query values that are kept, evenly spaced
DECISIONS = """
- {id: a, op: name, members_of: [Q1, Q2, Q3], to: church}
- {id: b, op: name, members_of: [Q4, Q5], to: castle}
- {id: c, op: move, labels: [Q3], to: monastery, expect_from: church}
- {id: d, op: split, group: castle, into: {water: [Q5]}}
- {id: e, op: drop, labels: [Q8]}
- {id: f, op: merge, groups: [monastery], to: church}
- {id: g, op: rename, group: castle, to: monastery}
- {id: h, op: ambiguous, labels: [Q6], choices: [water, castle], use: water, rule: what the photo shows}
- {id: i, op: ambiguous, labels: [Q7], choices: [water, castle]}
- {id: j, op: move, labels: [Q1], to: water, expect_from: castle}
"""


READERS = ["tree", "datasets/own", "submissions", "evaluation", "auditing"]
ROOM = {"csv", "pyarrow.csv"}  # what reads the cells of a table


def test_no_text_of_a_user_is_read_outside_of_the_room_that_reads():
    home = Path(__file__).parent.parent / "hbench"
    found = []
    for path in (path for wing in READERS for path in (home / wing).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
            is_read = isinstance(node, ast.Attribute) and node.attr == "read_text"
            if ROOM & set(names) or is_read:
                found.append(f"{path.relative_to(home)}:{node.lineno}")
    assert found == []


def vectors_near_their_classes(labels, dim, most):
    """Integer vectors (N, dim): a random one for each node on a row's path, summed, with noise of
    the same size.
    """
    generator = np.random.Generator(np.random.PCG64(17))
    total = generator.integers(-most, most, (len(labels), dim), endpoint=True)
    for column in labels.T:
        total += generator.integers(-most, most, (int(column.max()) + 1, dim), endpoint=True)[
            column
        ]
    return total.astype(np.float32)


def write_table(folder):
    rows = [
        f"i{n},{'ab'[n % 2]},{'ab'[n % 2]}{n % 6},{'ab'[n % 2]}{n % 6}{n % 12 // 6}"
        for n in range(120)
    ]
    path = folder / "own.csv"
    path.write_text("item,family,genus,species\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def report_values(folder, dataset):
    """Every score, the conditions in words, and some queries' values of a report."""
    test = load(dataset).tests["test"]
    file = folder / "embeddings.parquet"
    embeddings.write(file, test.items.tolist(), vectors_near_their_classes(test.labels, 24, 12))
    report = evaluate(file, dataset, similarity="dot", also_official=True)
    by_query = folder / "by-query.parquet"
    report.write_by_query(by_query)
    shown = np.linspace(0, int(test.query.sum()) - 1, QUERIES).astype(int)
    return {
        "signature": report.signature.partition("|hbench:")[0].replace(
            "+" + report.document.dataset_version[2:], ""
        ),
        "scores": {name: score.value for name, score in report.document.scores.items()},
        "intervals": {
            name: [score.low, score.high] for name, score in report.document.scores.items()
        },
        "official": {name: score.value for name, score in report.document.official.items()},
        "per query": {name: report.per_query[name][shown].tolist() for name in report.per_query},
    }


def training_step():
    """The loss, its terms and the gradient of one batch, in float64 and on one thread."""
    data = small_glyphs()
    run = begin(tiny("glyphs-happier"), data)
    for part in (run.model, run.objective):
        part.double()
    run.embed = lambda images: run.model(images).double()  # the model hands float32 out
    generator = torch.Generator().manual_seed(3)
    rows = torch.randperm(len(data.train), generator=generator)[:16]
    pixels = torch.rand((16, 1, 32, 32), generator=generator, dtype=torch.float64)
    loss, _, *terms = update(run, pixels, torch.from_numpy(data.train.labels)[rows].long()).tolist()
    squares = [
        weights.grad.double().square().sum()
        for weights in run.model.parameters()
        if weights.grad is not None
    ]
    return {
        "loss": loss,
        "terms": dict(zip(run.objective.losses, terms, strict=True)),
        "gradient": float(torch.stack(squares).sum().sqrt()),
    }


def replayed():
    found = replay(LABELS, CLUSTERS, decisions_file.loads(f"{GROUPS}decisions:{DECISIONS}"))
    return {"places": rows_text(found.rows, Placed).splitlines()}


def computed(what, folder):
    if what == "glyphs":
        return report_values(folder, "glyphs")
    if what == "own table":
        return report_values(folder, write_table(folder))
    return training_step() if what == "training step" else replayed()


@pytest.mark.parametrize("what", ["glyphs", "own table", "training step", "replay"])
def test_moved_code_moves_no_number(what, tmp_path, one_thread):
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[what]
    assert_close(computed(what, tmp_path), golden, what)


def assert_close(found, golden, where):
    """Texts and structure are equal, numbers but for the last bits, in which processors differ."""
    if isinstance(golden, dict):
        assert list(found) == list(golden), where
        for name, value in golden.items():
            assert_close(found[name], value, f"{where}, {name}")
    elif isinstance(golden, float | list) and np.asarray(golden).dtype == float:
        np.testing.assert_allclose(found, golden, rtol=1e-9, atol=1e-12, err_msg=where)
    else:
        assert found == golden, where


if __name__ == "__main__":
    import tempfile

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        values = {
            what: computed(what, Path(name))
            for what in ("glyphs", "own table", "training step", "replay")
        }
    GOLDEN.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
