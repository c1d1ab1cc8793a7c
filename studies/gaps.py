"""Measures the decomposability gap of a study's runs: how far AP inside random batches lies above
AP on the whole gallery.

Of a batch size B two metrics of a run: `AP in B`, the mean inside batches, and `gap@B`, that minus
AP on the whole (ROADMAP, Eq. 6). They are kept beside the run's report, since they cost some
seconds.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hbench.core.files import write_text
from hbench.core.untrusted import parse_json, read_text
from hbench.datasets import Dataset
from hbench.engine.settings import Settings
from hbench.evaluation.examination import examine
from hbench.evaluation.gap import gap_of, random_batches, sampled
from hbench.evaluation.submission import read
from hbench.evaluation.submission.embedding import retrieval_of
from hbench.train.loop import EMBEDDINGS

FILE = "gap.json"
QUERIES = 1000
SEED = 0


def gaps(folder: Path, data: Dataset, sizes: Sequence[int]) -> dict[str, float]:
    """Return the metrics gap@B and "AP in B" of the embeddings in a run's folder, for batches of
    these sizes B, over 1,000 queries. They are measured at the first call, and kept in the folder.
    """
    path = folder / FILE
    kept = _gaps_in_file(path)
    if any(f"gap@{size}" not in kept for size in sizes):
        kept = {
            name: value
            for size in sizes
            for name, value in _measure_gap(folder / EMBEDDINGS, data, size).items()
        }
        write_text(path, json.dumps(kept, indent=1) + "\n")
    return {name: kept[name] for size in sizes for name in (f"gap@{size}", f"AP in {size}")}


def _gaps_in_file(path: Path) -> dict[str, float]:
    """Read what was measured before; nothing where the file is not what this module writes."""
    with suppress(OSError, ValueError):
        values = parse_json(read_text(path))
        if isinstance(values, dict) and all(isinstance(value, float) for value in values.values()):
            return values
    return {}


def _measure_gap(file: Path, data: Dataset, size: int) -> dict[str, float]:
    """Measure AP inside batches of `size` items drawn at random, and its gap to AP in the whole
    gallery, as shares; both over the same 1,000 queries."""
    given = read(file).embeddings("a gap")
    conditions = examine(given, data, Settings(["AP"]), doubted=False).conditions
    (manifest,) = data.tests.values()
    batches = random_batches(int(manifest.gallery.sum()), size, SEED)
    found = gap_of(
        sampled(retrieval_of(manifest, given.queries), QUERIES, SEED), conditions, batches
    )
    inside = float(found.inside[0])
    whole = float(found.whole[0])
    return {f"gap@{size}": inside - whole, f"AP in {size}": inside}
