"""From scratch: all steps in a row, up to what curators must do; what `hbench build hgldv2 --from-scratch` calls."""

from __future__ import annotations

from pathlib import Path

from hbench.core.errors import DataError
from hbench_hgldv2.artefact import is_made_from
from hbench_hgldv2.cli import assemble as assembling
from hbench_hgldv2.cli import clean as cleaning
from hbench_hgldv2.cli import cluster as clustering
from hbench_hgldv2.cli import encode as encoding
from hbench_hgldv2.cli import replay as replaying
from hbench_hgldv2.cli import review as reviewing
from hbench_hgldv2.cli import scrape as scraping
from hbench_hgldv2.grouping import cluster, encode
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import SERVERS, Servers, opened
from hbench_hgldv2.work_folder import Work


def from_scratch(
    raw: Path,
    work: Path,
    contact: str | None,
    *,
    encoder: str = encode.DEFAULT,
    k: int = clustering.DEFAULT_K,
    rate: float = 1.0,
    servers: Servers = SERVERS,
) -> Path:
    """The folder of the rebuilt labels, laid out as the released ones, for `hbench build hgldv2 --root` to read.

    Steps that are up to date are skipped; vectors and clusters of these labels that were made by hand, with other
    settings, are kept. Raises DataError, after writing the review page, while there is no decisions.yaml in the work
    folder, and ComparisonError when its decisions do not fit the labels.
    """
    folder = Work(work)
    with opened(work, contact=contact, offline=contact is None, rate=rate) as client:
        scraping.run(folder, raw, api.source(client, servers), {"via": "api"})
    cleaning.run(folder)
    if not is_made_from(folder / "embeddings.npz", folder / "labels.csv"):
        encoding.run(folder, encoder)
    if not is_made_from(folder / "clusters.csv", folder / "labels.csv", folder / "embeddings.npz"):
        clustering.run(folder, cluster.Settings(k))
    reviewing.run(folder)
    if not (folder / "decisions.yaml").exists():
        raise DataError(
            "the labels are ready for the curators, who have not decided yet",
            expected=f"{folder / 'decisions.yaml'}",
            fix=f"open {folder / 'review.html'}, export the decisions there, and run again",
        )
    replaying.run(folder, strict=True)
    return assembling.run(folder, raw)
