"""Writes to the terminal: data to stdout, progress and remarks to stderr; where no one watches no
bars, and rich is not loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TextIO

import click

from hbench.core.errors import visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

# characters: a name is never broken, a text wraps at about LINE, a word may have MAX_WORD
NAME = 40
LINE = 22
MAX_WORD = 48


def say(text: str) -> None:
    """A remark for the person at the terminal (stderr); none under --quiet."""
    if not is_quiet():
        click.echo(visible(text), err=True)


def say_above(bars: Progress, text: str) -> None:
    """A remark while a bar is shown, which stays the last line."""
    if bars.disable:
        say(text)
    elif not is_quiet():
        bars.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def show(text: str) -> None:
    """Data (stdout): as it is for a program, without what would steer the terminal for a person."""
    click.echo(visible(text) if watched(sys.stdout) else text)


def show_json(value: Any) -> None:
    """Data for a machine: one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def format_of(form: str, *, as_json: bool, as_csv: bool) -> str:
    """Choose the format to show: that of --format, `form`, unless --json or --csv was given."""
    if as_json:
        return "json"
    return "csv" if as_csv else form


def _in_a_line(cell: str) -> str:
    """Return the text of a cell without line ends and tabs, which would end the cell where a table
    is written as lines with tabs between cells."""
    return " ".join(cell.split())


def _remarked(text: str | None) -> list[str]:
    """Return the lines of a text, each after "# ", as which readers of tables pass over them; none
    for no text."""
    return [f"# {line}" for line in (text or "").splitlines()]


def show_table(
    title: str | None,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str | None = None,
    *,
    left: Collection[str] = (),
    as_csv: bool = False,
) -> None:
    """A table on stdout: the first column and those named in `left` to the left, the others to the
    right.

    Where the terminal is narrow, texts wrap between words and columns are left out from the right;
    a note says which. Into a pipe or a file go lines of cells with tabs between them, title and
    caption as comments. `as_csv`: CSV instead, without formulas, and without title and caption,
    which no program expects.
    """
    cells = [list(row) for row in rows]
    if as_csv:
        from hbench.core.tables import lines, without_formula

        plain = [list(map(str, map(without_formula, row))) for row in cells]
        click.echo(lines(header, plain), nl=False)
        return
    if not watched(sys.stdout):
        shown = ["\t".join(map(_in_a_line, row)) for row in (header, *cells)]
        show("\n".join([*_remarked(title), *shown, *_remarked(caption)]))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    # as many columns as fit, from the left
    number = columns_that_fit(header, cells, console.width)
    table = Table(title_justify="left", caption_justify="left")
    table.title = title and visible(title)
    table.caption = caption and visible(caption)
    for position, name in enumerate(header[:number]):
        table.add_column(
            visible(name),
            justify="left" if position == 0 or name in left else "right",
            overflow="fold",
            min_width=_narrowest(header, cells, position),
        )
    for row in cells:
        table.add_row(*map(visible, row[:number]))
    console.print(table)
    if number < len(header):
        say(
            f"no room for {', '.join(header[number:])}: widen the terminal, or write the output to "
            "a file"
        )


def columns_that_fit(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """Count the columns, from the left, that fit side by side when texts wrap between words; at
    least two.

    >>> rows = [["cub200", "Caltech-UCSD Birds-200-2011", "research only, not redistributable"]]
    >>> (
    ...     columns_that_fit(["name", "title", "licence"], rows, 80),
    ...     columns_that_fit(["name", "title", "licence"], rows, 50),
    ... )
    (3, 2)
    """
    # a column has a space on both sides and a line at its right; the first also one at its left
    widths = (3 + _narrowest(header, rows, position) for position in range(len(header)))
    ends = [1 + end for end in accumulate(widths)]
    return max(2, sum(end <= width for end in ends))


def _narrowest(header: Sequence[str], rows: Sequence[Sequence[str]], position: int) -> int:
    """The characters that a column takes at least. The first column holds names, which stay whole
    up to NAME; of another one its longest word, up to MAX_WORD, and a comfortable line fit, where
    it has so much text.
    """
    texts = [header[position], *(row[position] for row in rows)]
    longest = max(map(len, texts))
    if position == 0:
        return min(longest, NAME)
    words = max(len(word) for text in texts for word in (text.split() or [""]))
    return min(longest, max(words, LINE), MAX_WORD)


def is_quiet() -> bool:
    """Whether `hbench --quiet` was asked for."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("quiet"))


def watched(stream: TextIO | None) -> bool:
    """Whether a terminal shows stdout or stderr; None is one that was closed."""
    return stream is not None and stream.isatty()


def shows_bars() -> bool:
    """Whether a person watches stderr, and did not ask for `hbench --quiet`."""
    return watched(sys.stderr) and not is_quiet()


def progress(*columns: ProgressColumn) -> Progress:
    """Bars on stderr with these columns, or counts, elapsed and remaining time; silent when stderr
    is not a terminal.
    """
    from rich import progress as parts
    from rich.console import Console

    columns = columns or (
        parts.MofNCompleteColumn(),
        parts.TimeElapsedColumn(),
        parts.TimeRemainingColumn(),
    )
    named = (parts.TextColumn("{task.description}"), parts.BarColumn(), *columns)
    return parts.Progress(
        *named, console=Console(stderr=True), disable=not shows_bars(), transient=True
    )


def steps_first() -> Progress:
    """A bar on stderr of a long run: its step and the time that is left (the field `left`, a text),
    then the bar, then what is said of the step, as far as the terminal is wide; silent when stderr
    is not a terminal.
    """
    from rich import progress as parts
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

    class Steps(parts.MofNCompleteColumn):
        """The step of all steps; nothing before the first one, when their number is not known."""

        def render(self, task: parts.Task) -> Text:
            return Text("") if task.total is None else super().render(task)

    columns = (
        Steps(),
        parts.TextColumn("{task.fields[left]}"),
        parts.BarColumn(bar_width=12),
        parts.TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True)),
    )
    console = Console(stderr=True)
    return parts.Progress(
        *columns, console=console, disable=not shows_bars(), transient=True, expand=True
    )


@contextmanager
def bars(what: str) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Bars for parts of some work; yields a function of a part's name that makes its bar and
    returns what moves it: a function of what is done and of all there is to do. Where no bars are
    shown, rich, which loads slowly, is not imported.
    """
    if not shows_bars():
        yield lambda _part: lambda _done, _total: None
        return
    with progress() as shown:

        def bar_of(part: str) -> Callable[[int, int], None]:
            """Add the bar of a part, whose length is known with the first call of what moves it."""
            task = shown.add_task(f"{what} {part}".rstrip(), total=None)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield bar_of


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """One bar; yields the function that moves it, by what is done and what there is in all."""
    with bars(what) as bar_of:
        yield bar_of("")
