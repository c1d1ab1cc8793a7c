"""Runs all steps in order, up to the work of the curators, for `hbench build hgldv2
--from-scratch`.
"""

import shlex
from pathlib import Path

from hbench.core.errors import DataError
from hbench_hgldv2.artefact import is_made_from
from hbench_hgldv2.curation import pictures, replay, review
from hbench_hgldv2.dataset import assemble
from hbench_hgldv2.grouping import cluster, encode
from hbench_hgldv2.labels import clean, scrape
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import SERVERS, NotInTheCache, Servers, opened
from hbench_hgldv2.wikimedia.contact import missing_contact


def from_scratch(
    raw: Path,
    work: Path,
    contact: str | None,
    *,
    encoder: str = encode.DEFAULT,
    k: int = cluster.DEFAULT_K,
    rate: float = 1.0,
    servers: Servers = SERVERS,
) -> Path:
    """Rebuild the labels and return their folder, laid out like the released one, for `hbench build
    hgldv2 --root`.

    `contact`: an address that Wikimedia may write to, None where nothing has to be fetched;
    `rate`: requests per second, at most. Steps that are up to date are skipped; vectors and
    clusters of these labels that were made with other settings are kept. Raises UsageError when
    Wikimedia has to be asked and there is no contact, DataError, after writing the review page,
    while the work folder has no decisions.yaml, and ComparisonError when its decisions do not
    fit the labels.

    `encoder`, `k`: of the steps encode and cluster; `servers`: those that are asked.
    """
    _scrape(work, raw, contact, rate=rate, servers=servers)
    clean.run(work)
    if not is_made_from(work / "embeddings.npz", work / "labels.csv"):
        encode.run(work, encoder=encoder)
    if not is_made_from(work / "clusters.csv", work / "labels.csv", work / "embeddings.npz"):
        cluster.run(work, k=k)
    review.run(work, raw=raw if pictures.are_in(raw) else None)
    if not (work / "decisions.yaml").exists():
        raise DataError(
            "the labels are ready for the curators, who have not decided yet",
            expected=f"{work / 'decisions.yaml'}",
            fix=f"open {work / 'review.html'}, export the decisions there, and run again",
        )

    replay.run(work, strict=True)
    assemble.run(work, raw=raw)
    return work / "hierarchy"


def _scrape(work: Path, raw: Path, contact: str | None, *, rate: float, servers: Servers) -> None:
    """Link the landmarks; without a contact from the cache alone.

    `rate`: requests a second. What was linked before by the same settings, which are noted beside
    the links, is not asked for again.
    """
    build = ["hbench", "build", "hgldv2", "--root", str(raw), "--from-scratch", str(work)]
    command = shlex.join(build)
    is_offline = contact is None
    try:
        with opened(
            work, command=command, contact=contact, offline=is_offline, rate=rate
        ) as client:
            scrape.link(work, raw, api.source(client, servers), {"via": "api", "limit": None})
    except NotInTheCache as error:
        raise missing_contact(
            command, found=f"no --contact, and a request without {error.expected}"
        ) from None
