"""Runs all steps in order, before and after the decisions of the curators, for `hbench build hgldv2
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
    """Rebuild the labels and return their folder, which has the layout of the released one and can
    be given to `hbench build hgldv2 --root`.

    Steps that are up to date are skipped. Vectors and clusters of the same labels are kept even if
    they were made with other settings.

    Args:
        raw: the folder of GLDv2's metadata.
        work: the work folder of the pipeline.
        contact: an address that Wikimedia can write to; None where nothing has to be fetched.
        encoder: the encoder of the step encode.
        k: the number of clusters of the step cluster.
        rate: the largest number of requests per second.
        servers: the servers of the APIs.

    Raises:
        UsageError: Wikimedia has to be queried and there is no contact.
        DataError: the work folder has no decisions.yaml; the review page has been written.
        ComparisonError: the decisions do not fit the labels.
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

    # apply the decisions to the labels; strict: fail if some do not fit, before anything is written
    replay.run(work, strict=True)
    assemble.run(work, raw=raw)
    return work / "hierarchy"


def _scrape(work: Path, raw: Path, contact: str | None, *, rate: float, servers: Servers) -> None:
    """Run the step scrape, which links landmarks to Wikimedia's items. It is skipped where its
    files are up to date.

    `rate` is in requests per second. Without a contact, only cached answers are used; raises
    UsageError where the cache lacks one.
    """
    build = ["hbench", "build", "hgldv2", "--root", str(raw), "--from-scratch", str(work)]
    command = shlex.join(build)
    is_offline = contact is None
    try:
        with opened(
            work, command=command, contact=contact, offline=is_offline, rate=rate
        ) as client:
            # the settings that the record of the step holds; limit=None: all landmarks are linked
            scrape.link(work, raw, api.source(client, servers), {"via": "api", "limit": None})
    except NotInTheCache as error:  # its `expected` is "an answer in <file of the cache>"
        raise missing_contact(
            command, found=f"no --contact, and a request without {error.expected}"
        ) from None
