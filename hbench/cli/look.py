"""hbench look: what a model retrieves for some queries, as text, data, or strips of pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.terminal import say, show, show_json

if TYPE_CHECKING:
    from hbench.datasets import Dataset
    from hbench.datasets.manifest import Manifest
    from hbench.engine.measure import Measurement
    from hbench.evaluation.jobs import Examined
    from hbench.look.retrievals import Choose
    from hbench.look.strips import Strip

FILE = click.Path(path_type=Path)
SHOWN = 8
COLUMNS = ("file", "query", "rank", "id", "score", "level", "shares")


@click.command("look")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--dataset", "-d", required=True, help="A dataset's name, its folder, or one manifest (.parquet, .csv).")
@click.option("--test", "test_name", help="Which test, where a dataset has several.  [default: the first]")
@click.option("--query", "queries", multiple=True, metavar="ID", help="This query; repeatable.")
@click.option("--class", "class_", metavar="NAME", help="Queries of this class, at any level of the tree.")
@click.option("--worst", type=click.IntRange(1), metavar="N", help=f"The N lowest by --by.  [default: {SHOWN}]")
@click.option("--best", type=click.IntRange(1), metavar="N", help="The N highest by --by.")
@click.option("--severe", type=click.IntRange(1), metavar="N", help="N whose first result shares the least.")
@click.option("--random", "random_", type=click.IntRange(1), metavar="N", help="N at random, the same every time.")
@click.option("--by", default="H-AP", show_default=True, metavar="METRIC", help="What worst and best are measured by.")
@click.option("-k", type=click.IntRange(1, 1000), default=10, show_default=True, help="Results of each query.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV on stdout, a line per result.")
@click.option("--out", "-o", type=FILE, help="Write strips: .png, .svg, .pdf or .html.")
def command(files: tuple[Path, ...], dataset: str, out: Path | None, k: int, **options: Any) -> None:
    """Show what embedding FILES retrieve for some queries; several files one under the other.

    The queries are chosen by the first file.

    Example: hbench look mine.parquet --dataset glyphs --severe 5 -o mistakes.png
    """
    from hbench.core.files import refuse_unwritable
    from hbench.datasets import load
    from hbench.look.strips import SUFFIXES, Sheet, write_strips

    if out is not None and out.suffix not in SUFFIXES:
        raise click.UsageError(f"{out} is no picture or page: end its name in {', '.join(SUFFIXES)}.")
    choose, by_metric = _choice(options)
    if out is not None:
        refuse_unwritable(out)
    data = load(dataset)
    manifest = _test(data, options["test_name"])
    examined = [_examine(path, data, options["by"]) for path in files]
    measured = _measured(examined[0], options["test_name"] or next(iter(data.tests))) if by_metric else None
    strips = _strips(files, examined, manifest, choose, (measured, options["by"], k))
    if out is not None:
        chosen = examined[0].chosen
        caption = chosen.signature(f"{data.name}@{data.version}", [options["test_name"] or next(iter(data.tests))])
        write_strips(Sheet(strips, manifest.tree.levels, caption, manifest.picture), out)
        say(f"wrote {out}")
    if options["as_json"]:
        show_json([_as_values(strip, manifest) for strip in strips])
    elif options["as_csv"]:
        show(_csv(strips, manifest).rstrip("\n"))
    elif out is None:
        show(_text(strips, manifest))


def _choice(options: dict[str, Any]) -> tuple[Choose, bool]:
    """How queries are chosen, by the one option that says so, and whether that needs a metric."""
    from hbench.look import retrievals

    given = [name for name in ("queries", "class_", "worst", "best", "severe", "random_") if options[name]]
    if len(given) > 1:
        raise click.UsageError("Choose queries one way: --query, --class, --worst, --best, --severe or --random.")
    if options["queries"]:
        return retrievals.by_id(options["queries"]), False
    if options["class_"]:
        return retrievals.of_class(options["class_"], SHOWN), False
    if options["random_"]:
        return retrievals.at_random(options["random_"]), False
    if options["severe"]:
        return retrievals.most_severe(options["severe"]), True
    return retrievals.by_value(options["best"] or options["worst"] or SHOWN, best=bool(options["best"])), True


def _test(data: Dataset, name: str | None) -> Manifest:
    from hbench.core.errors import UnknownName

    if name is not None and name not in data.tests:
        raise UnknownName("test", name, data.tests)
    return data.tests[name or next(iter(data.tests))]


def _examine(path: Path, data: Dataset, metric: str) -> Examined:
    from hbench.core.errors import SubmissionError
    from hbench.evaluation.rankings.files import Ranking
    from hbench.evaluation.submission import examine, read

    given = read(path)
    if isinstance(given, Ranking):
        raise SubmissionError(f"{path} holds rankings", expected="embeddings, which can be ranked anew")
    return examine(given, data, metrics=[metric])


def _measured(examined: Examined, test: str) -> Measurement:
    from hbench.core.errors import UsageError
    from hbench.engine.measure import measure
    from hbench.evaluation.jobs import jobs_of

    jobs = jobs_of(examined)
    if test not in jobs:
        raise UsageError(f"{test} lists its positives pair by pair", fix="choose queries by --query or --random")
    return measure(jobs[test][0])


def _strips(
    files: Sequence[Path],
    examined: Sequence[Examined],
    manifest: Manifest,
    choose: Choose,
    about: tuple[Measurement | None, str, int],
) -> list[Strip]:
    from hbench.evaluation.embeddings import Embeddings
    from hbench.look.retrievals import retrieve
    from hbench.look.strips import Strip

    measured, metric, k = about
    asked = choose(manifest, measured)
    found = []
    for each in examined:
        assert isinstance(each.given, Embeddings)
        found.append(retrieve(manifest, each.given, asked, each.chosen, k))
    classes = manifest.labels[manifest.query][asked]
    strips = []
    for number, path in enumerate(classes.tolist()):
        words = " › ".join(names[node] for names, node in zip(manifest.tree.names, path, strict=True))
        if measured is not None:
            words += f" · {metric} {100 * measured.values[0][asked[number]]:.1f}"
        rows = tuple((file.name, own[number]) for file, own in zip(files, found, strict=True))
        strips.append(Strip(rows[0][1].query, words, rows))
    return strips


def _text(strips: Sequence[Strip], manifest: Manifest) -> str:
    """For a person: a line per result, with the mark and the name of its level."""
    from hbench.look.palette import mark_of
    from hbench.look.retrievals import level_name
    from hbench.tree.names import CONTROL

    levels, lines = manifest.tree.levels, []
    width = max(map(len, (*levels, "unrelated")))
    for strip in strips:
        lines += [f"{strip.query}  ({strip.about})"]
        for name, found in strip.rows:
            lines += [f"  {name}"] * (len(strip.rows) > 1)
            lines += [
                f"  {hit.rank:3}  {hit.score:6.3f}  {mark_of(hit.level, len(levels))} "
                f"{level_name(hit.level, levels):{width}}  {hit.item}"
                for hit in found.hits
            ]
        lines += [""]
    return "\n".join(CONTROL.sub("\ufffd", line) for line in lines).rstrip("\n")


def _csv(strips: Sequence[Strip], manifest: Manifest) -> str:
    """A line per result. A cell that a spreadsheet would take for a formula begins with an apostrophe."""
    from hbench.look.retrievals import level_name

    def safe(text: str) -> str:
        return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text

    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for strip in strips:
        for name, found in strip.rows:
            for hit in found.hits:
                shares = level_name(hit.level, manifest.tree.levels)
                cells = (safe(name), safe(strip.query), hit.rank, safe(hit.item), hit.score, hit.level, safe(shares))
                writer.writerow(cells)
    return file.getvalue()


def _as_values(strip: Strip, manifest: Manifest) -> dict[str, Any]:
    from hbench.look.retrievals import level_name

    levels = manifest.tree.levels
    return {
        "query": strip.query,
        "about": strip.about,
        "results": {
            name: [{**hit._asdict(), "shares": level_name(hit.level, levels)} for hit in found.hits]
            for name, found in strip.rows
        },
    }
