"""hbench evaluate --dims, --bits: what smaller vectors cost, level by level."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hbench.cli.names import FILE
from hbench.cli.option_blocks import block, words_of
from hbench.cli.terminal import bars, say, show_json, show_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hbench.cli.reporting import ScoringOptions
    from hbench.datasets import Dataset
    from hbench.evaluation.examination import Examined
    from hbench.evaluation.execution import Execution
    from hbench.evaluation.submission import Submission
    from hbench.evaluation.submission.embedding import EmbeddingSubmission
    from hbench.evaluation.variants.smaller import Components, SmallerScore
    from hbench.records.report import Report

FORMATS = ("table", "json", "csv")


def _whole_numbers(
    _context: click.Context, option: click.Parameter, value: str | None
) -> tuple[int, ...]:
    """Read the numbers of an option, separated by commas, as click's callback; none where it was
    not given. Digits of other scripts, which `int` would read, are refused, too."""
    words = words_of(value)
    if not all(word.isascii() and word.isdigit() for word in words):
        raise click.BadParameter(
            f"{value!r}: whole numbers and commas, such as 64,128", None, option
        )
    return tuple(map(int, words))


@dataclass(frozen=True)
class SmallerOptions:
    """The sizes to score the vectors at, beside the whole."""

    dims: tuple[int, ...]
    bits: tuple[int, ...]
    components: Path | None
    page: Path | None

    @property
    def are_given(self) -> bool:
        """Whether anything smaller is asked for."""
        return bool(self.dims or self.bits)

    def refuse_beside(self, others: Mapping[str, object], form: str) -> None:
        """Raise click's UsageError for what makes no sense beside smaller sizes: components of
        which no number is said, a page without them, options of one report, and its formats.

        `others`: the options of one report with what was given, false where nothing was; `form`:
        the format to show."""
        from hbench.core.files import refuse_unwritable

        if self.components is not None and not self.dims:
            raise click.UsageError("--components needs --dims: how many of them are kept.")
        if self.page is not None and not self.are_given:
            raise click.UsageError("--page needs --dims or --bits, whose table it shows.")
        if self.page is not None and self.page.suffix.lower() != ".html":
            raise click.UsageError(f"{self.page} is no page: end its name in .html.")
        if self.page is not None:
            refuse_unwritable(self.page)
        if not self.are_given:
            return
        own = "--dims" if self.dims else "--bits"
        if given := [option for option, value in others.items() if value]:
            raise click.UsageError(f"{own} makes a table of sizes: leave {given[0]} out.")
        if form not in FORMATS:
            raise click.UsageError(f"{own} is shown as {', '.join(FORMATS)}, not as {form}.")


SMALLER = block(
    "smaller",
    SmallerOptions,
    [
        click.option(
            "--dims",
            metavar="N,N…",
            callback=_whole_numbers,
            help="Score the first N coordinates too, each compared with the whole, level by level.",
        ),
        click.option(
            "--bits",
            metavar="N,N…",
            callback=_whole_numbers,
            help="Score coordinates of 32, 16, 8 or 1 bit too, likewise.",
        ),
        click.option(
            "--components",
            type=FILE,
            help="For --dims: also principal components, fitted on the vectors of this file, such "
            "as the training set's.",
        ),
        click.option(
            "--page", type=FILE, help="With --dims or --bits: write a page of the sizes, .html."
        ),
    ],
)


class ScoredSizes(NamedTuple):
    """The scores at every size of a file's vectors, the whole first."""

    dataset: str
    file: str
    levels: tuple[str, ...]
    scores: list[SmallerScore]

    def document(self) -> dict[str, Any]:
        """What --json and --out hold: the dataset, the file that was scored, the levels, coarse to
        fine, and a record for every size, the whole first."""
        sizes = [score.record() for score in self.scores]
        return {
            "dataset": self.dataset,
            "file": self.file,
            "levels": list(self.levels),
            "sizes": sizes,
        }


def score_sizes(
    given: Submission,
    data: Dataset,
    options: SmallerOptions,
    *,
    scoring: ScoringOptions,
    execution: Execution,
) -> ScoredSizes:
    """Score the whole vectors, and all sizes that the options say: numbers of coordinates, kept
    from the front and, with components, along these, too, and numbers of bits."""
    from hbench.evaluation.variants import smaller

    vectors = given.embeddings("a smaller size")
    # the directions of most variance, if they were asked for; else None
    components = _components(options, vectors, data, scoring)
    whole = smaller.whole_size(vectors)
    sizes = smaller.sizes_of(
        whole, options.dims, options.bits, with_components=components is not None
    )
    # no files: smaller vectors are in none that a cluster's workers could read
    with execution.open([], announce=say) as execute, bars("ranking") as on_test:

        def report(examined: Examined) -> Report:
            """Rank and measure the vectors at one size, which were examined before."""
            return execution.report(examined, execute, on_test)

        scores = smaller.score_smaller(
            vectors, data, scoring.settings, sizes, components=components, report=report
        )
    return ScoredSizes(data.name, given.source.file, data.levels, scores)


def show_sizes(
    scored: ScoredSizes, output: Path | None, form: str, *, page: Path | None = None
) -> None:
    """Show what each size costs; `output`: a JSON document, which hbench plot draws; `page`: the
    page that is written of it."""
    from hbench.core.files import write_text
    from hbench.evaluation.variants import smaller

    if output is not None:
        text = json.dumps(scored.document(), indent=2, ensure_ascii=False)
        write_text(output, text + "\n")
        say(f"wrote {output}: hbench plot sizes {output} -o sizes.svg draws it")
    if page is not None:
        from hbench.look.pages.sizes import write_sizes_page

        write_sizes_page(scored.scores, page, file=scored.file, dataset=scored.dataset)
        say(f"wrote {page}: open it in a browser")
    if form == "json":
        show_json(scored.document())
        return
    _show_table(scored.scores, as_csv=form == "csv")
    if form == "table":  # sentences are for people
        for score in scored.scores[1:]:  # the first is the whole, which loses nothing
            say(smaller.losses_in_words(score))


def _components(
    options: SmallerOptions, given: EmbeddingSubmission, data: Dataset, scoring: ScoringOptions
) -> Components | None:
    """Fit the principal components to cut by, on the vectors of the file --components, of which no
    item may be tested; None where it was not given. `given`: the vectors to be cut. Raises
    UsageError for tested items, and for vectors of another number of coordinates. `scoring`: whose
    similarity, or else the dataset's, says whether the length of vectors counts."""
    if options.components is None:
        return None
    from hbench.core.errors import UsageError, examples
    from hbench.evaluation.variants.smaller import Components
    from hbench.submissions import embeddings

    file = embeddings.read(options.components)
    tested = {item for test in data.tests.values() for item in test.items}
    if shared := [item for item in file.ids if item in tested]:
        raise UsageError(
            f"components are fitted on other items than those of the test: {options.components}",
            found=f"{len(shared):,} of the test: {examples(shared)}",
            fix="embed the training split, and give that file",
        )
    if file.dim != given.queries.dim:
        raise UsageError(
            "components are fitted on vectors of the same net",
            expected=f"{given.queries.dim} coordinates",
            found=f"{file.dim} in {options.components}",
        )
    # by cosine the length of a vector counts for nothing, so it must not weigh in the components
    similarity = scoring.similarity or data.protocol.similarity
    return Components.of(file.vectors, of_directions=similarity == "cosine")


def _show_table(scores: Sequence[SmallerScore], *, as_csv: bool) -> None:
    """Show a row for every size, the whole first: its bytes, and every metric with the interval of
    what it costs; `as_csv`: fractions in full precision."""
    metrics = list(scores[0].report.document.scores)
    if as_csv:
        show_table(None, *_columns(scores, metrics), as_csv=True)
        return
    rows = []
    for score in scores:
        of_metric = {each.metric: each for each in score.differences}
        cells = [_cell(score, metric, of_metric) for metric in metrics]
        rows.append([str(score.size), f"{score.size.bytes:,}", *cells])
    show_table(
        "percent; in brackets: the 95 % interval of the difference from the whole, paired",
        ["size", "bytes", *metrics],
        rows,
    )


def _cell(score: SmallerScore, metric: str, differences: dict[str, Any]) -> str:
    """Write a size's score of a metric, in percent, and in brackets the interval of its difference
    from that of the whole; `differences`: by metric, none for the whole itself."""
    from hbench.records.shown import shown, shown_difference_range

    value = shown(metric, score.report.document.scores[metric].value)
    if metric not in differences:
        return value
    ends = differences[metric]
    return f"{value} ({shown_difference_range(metric, ends.low, ends.high)})"


def _columns(
    scores: Sequence[SmallerScore], metrics: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Make the table of sizes for programs, as header and rows of texts: fractions in full
    precision; differences from the whole are empty where there are none, as for the whole."""
    header = ["size", "dims", "bits", "bytes"]
    for metric in metrics:
        header += [metric, f"{metric} difference", f"{metric} low", f"{metric} high"]
    rows = []
    for score in scores:
        size = score.size
        row = [str(size), str(size.dims), str(size.bits), str(size.bytes)]
        of_metric = {each.metric: each for each in score.differences}
        for metric in metrics:
            row.append(repr(score.report.scores[metric]))
            each = of_metric.get(metric)
            ends = [] if each is None else [each.difference, each.low, each.high]
            row += [repr(value) for value in ends] or ["", "", ""]
        rows.append(row)
    return header, rows
