"""`scrape`: links.csv and classes.csv, from the APIs, the query service or dumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hbench.cli import terminal
from hbench.core.errors import DataError, UsageError
from hbench_hgldv2.artefact import is_done, made_by, write_rows
from hbench_hgldv2.cli import options
from hbench_hgldv2.labels import scrape
from hbench_hgldv2.wikimedia import api, dumps, query_service
from hbench_hgldv2.wikimedia.client import BATCH, SERVERS, Client, Servers, opened
from hbench_hgldv2.wikimedia.facts import FactSource
from hbench_hgldv2.work_folder import SPLITS, Work, told

NAMES = ("metadata/{}_label_to_category.csv", "metadata/{}_label_to_hierarchical.csv")
VIAS: Mapping[str, Callable[[Client, Servers], FactSource]] = {"api": api.source, "sparql": query_service.source}


@click.command()
@options.raw("{train,index}_label_to_category.csv, in it or in metadata/.", required=True)
@options.asking_wikimedia
@click.option("--via", metavar="api|sparql|dumps", default="api", show_default=True, help="Where the facts come from.")
@click.option("--dumps", "folder", type=click.Path(path_type=Path, file_okay=False), help="Folder of the dumps.")
@click.option("--limit", type=int, help="Only the first N landmarks of each split, to try it out.")
@click.option(
    "--server",
    "servers",
    type=(click.Choice(Servers._fields), str),
    multiple=True,
    metavar="NAME URL",
    help="Another address of commons, wikidata or query: a mirror.",
)
@click.pass_obj
def command(
    work: Work,
    /,
    *,
    raw: Path,
    via: str,
    folder: Path | None,
    limit: int | None,
    servers: Sequence[tuple[str, str]],
    **options: Any,
) -> None:
    """Link every landmark to its classes. Interrupt it as you like: it goes on where it was.

    \b
    hbench hgldv2 scrape --raw gldv2/raw --contact you@example.org
    hbench hgldv2 scrape --raw gldv2/raw --via dumps --dumps /data/dumps
    """
    if via == "dumps":
        if folder is None:
            raise UsageError("which dumps?", fix="--dumps FOLDER")
        run(work, raw, dumps.source(folder), {"via": via}, limit=limit)
        return
    if via not in VIAS:
        raise UsageError(f"unknown source {via!r}", expected="api, sparql or dumps")
    for name, url in servers:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"--server {name} is no address", expected="http://… or https://…", found=url)
    with opened(work.folder, **options) as asking:
        run(work, raw, VIAS[via](asking, SERVERS._replace(**dict(servers))), {"via": via}, limit=limit)


def run(work: Work, raw: Path, source: FactSource, settings: Mapping[str, Any], *, limit: int | None = None) -> None:
    """Make links.csv and classes.csv, unless they are there already."""
    files = {split: _landmark_file(raw, split) for split in SPLITS}
    record = made_by("scrape", files.values(), {**settings, "limit": limit})
    links_file, classes_file = work / "links.csv", work / "classes.csv"
    if is_done(record, links_file, classes_file):
        return
    landmarks = [row for split, file in files.items() for row in scrape.read_landmarks(file, split)[:limit]]
    titles = len({landmark.category for landmark in landmarks})
    terminal.say(
        f"{len(landmarks):,} landmarks of {titles:,} categories; about {expected_requests(titles):,} requests to the APIs "
        "if none is in the cache"
    )
    links, names = scrape.resolve(landmarks, source)
    counts = scrape.counts(links)
    write_rows(links_file, links, scrape.Link, record=record, counts=counts)
    write_rows(classes_file, names, scrape.ClassName, record=record, counts={"classes": len(names)})
    for title, prefix in (("landmarks", "status "), ("linked by", "via "), ("without a class", "")):
        terminal.say(told(title, _below(counts, prefix)))


def expected_requests(titles: int) -> int:
    """How many requests so many categories take, within a tenth.

    A batch of 50 titles is asked for their pages. Those with an item, and a tenth more for their main topics, are asked for
    as entities; those without for their wikitext and, 200 at once, for P373: 2.1 batches if all have one, 2.25 if none has.
    """
    return round(2.2 * titles / BATCH) + 4


def _below(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The counts whose name starts with a prefix, without it; with "", those that have none."""
    if not prefix:
        return {name: count for name, count in counts.items() if " " not in name}
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}


def _landmark_file(raw: Path, split: str) -> Path:
    """The file of a split's landmarks: the released hierarchy serves too, since it names the categories."""
    for name in NAMES:
        for path in (raw / name.format(split), raw / Path(name.format(split)).name):
            if path.exists():
                return path
    raise DataError(
        f"{raw} has no landmarks of {split}", expected=NAMES[0].format(split), fix="hbench download hgldv2 fetches it"
    )
