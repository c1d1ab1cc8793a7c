"""hbench study: train a family of recipes with several seeds, and test what the papers claim of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.terminal import progress, say, show, show_json

if TYPE_CHECKING:
    from hbench.train.study.claims import Verdict
    from hbench.train.study.study import Study


VALUES = "values.parquet"


@click.command("study")
@click.argument("name")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of every arm.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting of every arm: epochs=2.")
@click.option("--only", multiple=True, metavar="ARM", help="Train only these arms; repeatable.")
@click.option("--headline", is_flag=True, help="Train only the arms of the headline claims.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="Folder of the runs.  [default: runs/study-NAME]")
@click.option(
    "--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Runs at a time, of one thread each."
)
@click.option("--rows", type=click.Path(path_type=Path), help="Append one row per arm to this leaderboard file.")
@click.option("--json", "as_json", is_flag=True, help="The claims as JSON on stdout.")
def command(name: str, only: tuple[str, ...], out: Path | None, headline: bool, **options: Any) -> None:
    """Tune the arms of the study NAME (or a TOML file) on held-out classes, train each with every seed, and test it once; show
    tables, and claims by paired intervals.

    Interrupted, the same command goes on. The folder gets ARM/seed-N/, study.md and the score of every seed.

    Example: hbench study glyphs --seeds 5
    """
    from hbench.core.errors import UnknownName
    from hbench.train.study import study as studies

    study = studies.read(name)
    for arm in only:
        if arm not in study.arms:
            raise UnknownName("arm", arm, study.arms)
    folder = out or Path("runs") / f"study-{Path(name).stem}"
    _train(study, folder, list(only or (study.headline if headline else study.arms)), options)
    _tell(study, folder, options)


def _train(study: Study, out: Path, arms: list[str], options: dict[str, Any]) -> None:
    from hbench.train.study.runs import left_over, run_all, tune_all

    runs = study.runs(arms, options["seeds"])
    trials, tests = left_over(study, out, runs)
    say(_announcement(study, trials, tests, options["workers"]))
    with progress() as bars:
        task = bars.add_task("training", total=trials + tests)

        def watch(done: str) -> None:
            bars.update(task, advance=1, description=done)
            if bars.disable:
                say(f"trained {done}")

        how: Any = {"changes": options["changes"], "workers": options["workers"], "watch": watch}
        tune_all(study, out, arms, **how)
        run_all(study, out, runs, **how)


def _announcement(study: Study, trials: int, tests: int, workers: int) -> str:
    """What is left to be trained, and how long it takes where the study says what a run takes."""
    left = f"{trials} runs to choose settings, then {tests} to test them"
    if study.minutes is None:
        return left
    return (
        f"{left}; about {(trials + tests) * study.minutes / 60 / workers:.1f} hours with {workers} workers, a core each"
    )


def _tell(study: Study, out: Path, options: dict[str, Any]) -> None:
    from hbench.core.files import write_text
    from hbench.evaluation import leaderboard
    from hbench.evaluation.leaderboard import runs as leaderboard_runs
    from hbench.train.study import tuning
    from hbench.train.study.claims import judged, write_values
    from hbench.train.study.runs import found_values, markdown, rows

    found = found_values(study, out, options["seeds"])
    verdicts = judged(study, found)
    text = markdown(study, found, verdicts, tuning.markdown(study, out))
    write_text(out / "study.md", text)
    write_values(found, out / VALUES)
    if options["as_json"]:
        show_json([_as_values(verdict) for verdict in verdicts])
    else:
        show(text.rstrip("\n"))
    say(f"wrote {out / 'study.md'} and the score of every seed to {out / VALUES}")
    if options["rows"]:
        path = options["rows"]
        for row in rows(leaderboard.read_file(path), found, out):
            leaderboard_runs.add(row, leaderboard.read_file(path), path)
        say(f"added {len(found)} rows to {path}")


def _as_values(verdict: Verdict) -> dict[str, Any]:
    """A verdict for a machine; JSON has no infinity, so the ends of one seed's interval are null."""
    numbers = {**verdict.difference._asdict(), "effect": verdict.effect, "p": verdict.p, "corrected": verdict.corrected}
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {**verdict.claim.model_dump(), "seeds": verdict.seeds, **finite, "verdict": verdict.word}
