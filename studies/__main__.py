"""python -m studies: train a family of recipes with several seeds, test what the papers claim of
them, and draw what came out.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.terminal import progress, say, show, show_json
from hbench.core.errors import HBenchError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from studies.claims import Verdict
    from studies.runs import RunOptions
    from studies.study import Study


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def group() -> None:
    """Studies of hbench's clone: families of training runs, compared claim by claim."""


@group.command("run")
@click.argument("name")
@click.option(
    "--seeds", type=click.IntRange(min=1), help="Runs of every arm.  [default: the study's, 5 or 3]"
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of every arm: epochs=2.",
)
@click.option("--only", multiple=True, metavar="ARM", help="Train only these arms; repeatable.")
@click.option("--headline", is_flag=True, help="Train only the arms of the headline claims.")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    help="Folder of the runs.  [default: runs/study-NAME]",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Runs at a time, of one thread each.",
)
@click.option(
    "--rows",
    type=click.Path(path_type=Path),
    help="Append one row per arm to this leaderboard file.",
)
@click.option("--json", "as_json", is_flag=True, help="The claims as JSON on stdout.")
def run(
    name: str,
    *,
    seeds: int | None,
    changes: tuple[str, ...],
    only: tuple[str, ...],
    headline: bool,
    out: Path | None,
    workers: int,
    rows: Path | None,
    as_json: bool,
) -> None:
    """Tune the arms of the study NAME (or a TOML file) on held-out classes, train each with every
    seed, and test it once; show tables, and claims by paired intervals.

    Interrupted, the same command continues. The folder gets ARM/seed-N/, study.md and the score of
    every seed.

    Example: python -m studies run glyphs --seeds 5
    """
    from studies import study as studies
    from studies.runs import RunOptions

    study = studies.read(name)
    for arm in only:
        if arm not in study.arms:
            raise UnknownName("arm", arm, study.arms)
    folder = out or Path("runs") / f"study-{Path(name).stem}"
    seeds = seeds or study.seeds
    every = study.headline if headline else list(study.arms)
    _train(study, folder, list(only) or every, seeds=seeds, options=RunOptions(changes, workers))
    _tell(study, folder, seeds=seeds, as_json=as_json)
    if rows is not None:
        _add_rows(study, folder, rows, seeds=seeds)


def _train(study: Study, out: Path, arms: list[str], *, seeds: int, options: RunOptions) -> None:
    """Train what is left of the arms' trials, which choose settings on held-out classes, and then
    of their tests, with a bar of progress. `out`: the folder of the study's runs."""
    from studies.runs import left_over, run_all, tune_all

    runs = study.runs(arms, seeds)
    trials, tests = left_over(study, out, runs)
    say(_announcement(study, trials, tests, options.workers))
    with progress() as bars:
        task = bars.add_task("training", total=trials + tests)

        def on_progress(done: str) -> None:
            """Show that the run of this name is done; where no bar can be shown, in a line."""
            bars.update(task, advance=1, description=done)
            if bars.disable:
                say(f"trained {done}")

        told = options._replace(on_progress=on_progress)
        tune_all(study, out, arms, told)
        run_all(study, out, runs, told)


def _announcement(study: Study, trials: int, tests: int, workers: int) -> str:
    """Say how many runs are left to be trained and, where the study says what a run takes on a core
    (in minutes), how many hours they take."""
    left = f"{trials} runs to choose settings, then {tests} to test them"
    if study.minutes is None:
        return left
    return (
        f"{left}; about {(trials + tests) * study.minutes / 60 / workers:.1f} hours with "
        f"{workers} workers, a core each"
    )


def _tell(study: Study, out: Path, *, seeds: int, as_json: bool) -> None:
    """Write study.md and the scores of all seeds, and show the claims, as Markdown or as JSON."""
    from hbench.core.files import write_text
    from studies.claims import judged
    from studies.page import VALUES, markdown
    from studies.runs import about, values_of
    from studies.values import write

    found = values_of(study, out, seeds)
    rests_on = about(study, found, out)
    text = markdown(study, found, rests_on)
    write_text(out / "study.md", text)
    write(found, rests_on, out / VALUES)
    if as_json:
        show_json([_as_values(verdict) for verdict in judged(study, found)])
    else:
        show(text.rstrip("\n"))
    say(f"wrote {out / 'study.md'} and the score of every seed to {out / VALUES}")


def _add_rows(study: Study, out: Path, board_file: Path, *, seeds: int) -> None:
    """Append a row per arm to a leaderboard's file: the run of its middle seed."""
    from hbench import boards
    from hbench.boards import runs as board_runs
    from studies.runs import rows, values_of

    found = values_of(study, out, seeds)
    for row in rows(study, boards.read_board_file(board_file), found, out):
        # read again, since the row before is in the file by now
        board_runs.add(row, boards.read_board_file(board_file), board_file)
    say(f"added {len(found)} rows to {board_file}")


def _as_values(verdict: Verdict) -> dict[str, Any]:
    """A verdict for a machine; JSON has no infinity, so the ends of one seed's interval are
    null."""
    numbers = {**verdict.difference._asdict(), "p": verdict.p, "corrected": verdict.corrected}
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {**verdict.claim.model_dump(), "seeds": verdict.seeds, **finite, "verdict": verdict.word}


@group.command("show")
@click.argument("source")
@click.option(
    "--study", "name", help="The study, or its TOML file.  [default: by SOURCE's name, else glyphs]"
)
def show_kept(source: str, name: str | None) -> None:
    """Show the claims, trials and tables of SOURCE (a study's folder, its values.parquet, or
    glyphs-study), in Markdown.

    Example: python -m studies show glyphs-study
    """
    from studies import study as studies
    from studies.page import kept_of, markdown
    from studies.values import read

    study = studies.read(name or _named(source, studies.names()))
    show(markdown(study, *read(kept_of(source))).rstrip("\n"))


@group.command("best")
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--metric",
    "-m",
    "metrics",
    multiple=True,
    default=("H-AP", "ASI", "NDCG", "AP", "R@1"),
    show_default=True,
    help="Compare by this metric; repeatable.",
)
def best(sources: tuple[str, ...], metrics: tuple[str, ...]) -> None:
    """Show the best loss of every study by every metric, and which may be as good, in Markdown.

    SOURCES are folders of studies, their values.parquet, or names such as glyphs-study.

    Example: python -m studies best glyphs-study grocery-study -m H-AP
    """
    from studies import study as studies
    from studies.best import table
    from studies.page import kept_of
    from studies.values import read, with_means

    found = {}
    for source in sources:
        study = studies.read(_named(source, studies.names()))
        values, _ = read(kept_of(source))
        found[Path(source).stem.removesuffix("-study")] = with_means(values, study.means)
    show("\n".join(table(found, metrics)))


def _named(source: str, names: Sequence[str]) -> str:
    """Name the study of a source: one of `names`, whose values are shipped as NAME-study, or whose
    runs are in the folder study-NAME; of any other source, glyphs."""
    stem = Path(source).stem
    return next((name for name in names if stem in (f"{name}-study", f"study-{name}")), "glyphs")


@group.command("plot")
@click.argument("kind", type=click.Choice(["arms", "gap", "sweep"]))
@click.argument("source")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="Write the picture: .png, .svg or .pdf.",
)
@click.option(
    "--metric", "-m", "metrics", multiple=True, help="Draw this metric; repeatable, two for arms."
)
@click.option(
    "--over",
    metavar="PARAMETER",
    help="The parameter of a sweep, as α, or α=1 with the value of arms that name none.",
)
def plot(kind: str, source: str, out: Path, metrics: tuple[str, ...], over: str | None) -> None:
    """Draw the study SOURCE (a folder, its values.parquet, or glyphs-study; for a sweep also a
    leaderboard).

    arms: two metrics with the intervals of both over the seeds; gap: AP inside batches by their
    size; sweep: metrics over a parameter.

    Example: python -m studies plot arms glyphs-study -o arms.pdf
    """
    from studies.plots import draw

    draw(kind, source, metrics, over).write(out)
    say(f"wrote {out}")


if __name__ == "__main__":
    try:
        group(prog_name="python -m studies")
    except HBenchError as error:
        sys.exit(f"studies: {error}")
