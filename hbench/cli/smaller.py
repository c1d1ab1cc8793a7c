"""hbench evaluate --dims, --bits: what smaller vectors cost, level by level."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hbench.cli.names import FILE, OUT_FILE
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
    """Parse whole numbers separated by commas; a callback of a click option. Empty if it was not
    given. Digits of other scripts, which `int` would accept, are refused."""
    words = words_of(value)
    if not all(word.isascii() and word.isdigit() for word in words):
        raise click.BadParameter(
            f"{value!r}: whole numbers and commas, such as 64,128", None, option
        )
    return tuple(map(int, words))


@dataclass(frozen=True)
class SmallerOptions:
    """The options of the sizes at which to score the vectors, besides the whole."""

    dims: tuple[int, ...]
    bits: tuple[int, ...]
    components: Path | None
    page: Path | None

    @property
    def are_given(self) -> bool:
        """Whether any smaller size is requested."""
        return bool(self.dims or self.bits)

    def refuse_beside(self, others: Mapping[str, object], form: str) -> None:
        """Raise click's UsageError for options that make no sense with smaller sizes: components
        without their number, a page of sizes without any size, and options or formats of a single
        report.

        `others`: {option: value} of options of a single report; false if not given. `form`: the
        output format.
        """
        from hbench.core.files import refuse_unwritable

        if self.components is not None and not self.dims:
            raise click.UsageError("--components needs --dims: how many of them are kept.")
        if self.page is not None and not self.are_given:
            raise click.UsageError("--page needs --dims or --bits, whose table it shows.")
        if self.page is not None and self.page.suffix.lower() != ".html":
            raise click.UsageError(f"{self.page} is no page: end its name in .html.")
        if self.page is not None:
            refuse_unwritable(self.page)
        if not self.are_given:  # an ordinary report, so that `others` and `form` may be anything
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
            "--page", type=OUT_FILE, help="With --dims or --bits: write a page of the sizes, .html."
        ),
    ],
)


class ScoredSizes(NamedTuple):
    """The scores of a file's vectors at every size, the whole first."""

    dataset: str
    file: str
    levels: tuple[str, ...]
    scores: list[SmallerScore]

    def document(self) -> dict[str, Any]:
        """The document for --json and --out: the dataset, the file, the levels (coarse to fine),
        and a record for every size, the whole first."""
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
    """Score the whole vectors, and those of all sizes in the options: numbers of first coordinates,
    the same of principal components if they are requested, and numbers of bits per coordinate."""
    from hbench.evaluation.variants import smaller

    # refuses rankings, which have no vectors; the text names the purpose in the message
    vectors = given.embeddings("a smaller size")
    # the principal components; None if they are not requested
    components = _components(options, vectors, data, scoring)
    whole = smaller.whole_size(vectors)
    sizes = smaller.sizes_of(
        whole, options.dims, options.bits, with_components=components is not None
    )
    # no files: smaller vectors are in no file that a cluster's workers could read
    with execution.open([], announce=say) as execute, bars("ranking") as on_test:

        def report(examined: Examined) -> Report:
            """Measure an examined submission at one size."""
            return execution.report(examined, execute, on_test)

        scores = smaller.score_smaller(
            vectors, data, scoring.settings, sizes, components=components, report=report
        )
    return ScoredSizes(data.name, given.source.file, data.levels, scores)


def show_sizes(
    scored: ScoredSizes, output: Path | None, form: str, *, page: Path | None = None
) -> None:
    """Print what each size costs. `output`: a file for the JSON document, which `hbench plot`
    draws. `page`: a file for a page."""
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
    """Fit the principal components on the vectors in the file --components; None if it was not
    given.

    `given`: the vectors that will be shortened. `scoring`: with its similarity, or else the
    dataset's, vectors may first be scaled to length 1. Raises UsageError if the file has items of
    the test, or vectors of another dimension.
    """
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
    # cosine ignores lengths, so they should not affect the components
    similarity = scoring.similarity or data.protocol.similarity
    return Components.of(file.vectors, of_directions=similarity == "cosine")


def _show_table(scores: Sequence[SmallerScore], *, as_csv: bool) -> None:
    """Print a row for every size, the whole first: its bytes, and each metric with the interval of
    the difference from the whole. `as_csv`: as CSV, in full precision."""
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
    """Format a metric's score at one size of the vectors (`--dims`, `--bits`, `--components`), in
    percent, and in brackets the interval of its difference from the score of the whole vectors.
    `differences`: {metric: difference}, empty for the whole vectors."""
    from hbench.records.shown import shown, shown_difference_range

    value = shown(metric, score.report.document.scores[metric].value)
    if metric not in differences:
        return value
    ends = differences[metric]
    return f"{value} ({shown_difference_range(metric, ends.low, ends.high)})"


def _columns(
    scores: Sequence[SmallerScore], metrics: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Make the table of sizes for programs, as header and rows of texts, in full precision. In the
    row of the whole vectors, the cells of differences are empty."""
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
            numbers = [] if each is None else [each.difference, each.low, each.high]
            row += [repr(value) for value in numbers] or ["", "", ""]
        rows.append(row)
    return header, rows
