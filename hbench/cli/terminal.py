"""Writes to the terminal: data to stdout, progress and remarks to stderr. If stderr is no terminal
there are no progress bars, and rich is not imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TextIO

import click

from hbench.core.errors import UsageError, visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

# widths in characters: the first column, which has names, is not wrapped up to NAME; other columns
# are at least LINE wide, and as wide as their longest word, up to MAX_WORD
NAME = 40
LINE = 22
MAX_WORD = 48


def say(text: str) -> None:
    """Print a remark for the user on stderr; nothing with --quiet."""
    if not is_quiet():
        click.echo(visible(text), err=True)


def say_above(bars: Progress, text: str) -> None:
    """Print a remark above the progress bars, which stay at the bottom."""
    if bars.disable:
        say(text)
    elif not is_quiet():
        bars.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def show(text: str) -> None:
    """Print data on stdout. On a terminal, characters that would control it are escaped."""
    click.echo(visible(text) if watched(sys.stdout) else text)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def format_of(form: str, *, as_json: bool, as_csv: bool = False) -> str:
    """Choose the output format: `form`, the value of --format, unless --json or --csv is given.
    Raises UsageError for two formats. "table" counts as none: it is the default of --format."""
    short = [name for name, given in (("json", as_json), ("csv", as_csv)) if given]
    asked = {*short, *([form] if form != "table" else [])}
    if len(asked) > 1:
        raise UsageError("several formats are asked for", found=", ".join(sorted(asked)))
    return asked.pop() if asked else form


def _in_a_line(cell: str) -> str:
    """Replace line ends and tabs in a cell by blanks, for tables with tabs between cells."""
    return " ".join(cell.split())


def _remarked(text: str | None) -> list[str]:
    """Return the lines of a text as comments, which start with "# "; an empty list for None."""
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
    """Print a table on stdout.

    On a terminal the first column and those named in `left` are aligned to the left, the others to
    the right. On a narrow one, texts wrap between words, and columns are left out from the right; a
    remark names them. To a pipe or a file, cells are separated by tabs, and title and caption are
    comments. `as_csv`: print CSV instead, without title and caption, and with formulas escaped.
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
    # show as many columns as fit, from the left
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
    """Return how many columns, from the left, fit into `width` characters if texts wrap between
    words; at least two.

    >>> rows = [["cub200", "Caltech-UCSD Birds-200-2011", "research only, not redistributable"]]
    >>> (
    ...     columns_that_fit(["name", "title", "licence"], rows, 80),
    ...     columns_that_fit(["name", "title", "licence"], rows, 50),
    ... )
    (3, 2)
    """
    # each column adds a space on both sides and a line at its right; the first a line at its left
    widths = (3 + _narrowest(header, rows, position) for position in range(len(header)))
    ends = [1 + end for end in accumulate(widths)]
    return max(2, sum(end <= width for end in ends))


def _narrowest(header: Sequence[str], rows: Sequence[Sequence[str]], position: int) -> int:
    """Return the least width of the column at `position`, in characters.

    It is that of the column's longest text, up to a limit beyond which texts wrap. The limit is
    NAME for the first column, whose names should stay whole. For the others it is the longest word,
    so that words stay whole, but at least LINE, and at most MAX_WORD.
    """
    texts = [header[position], *(row[position] for row in rows)]
    longest = max(map(len, texts))
    if position == 0:
        return min(longest, NAME)
    words = max(len(word) for text in texts for word in (text.split() or [""]))
    return min(longest, max(words, LINE), MAX_WORD)


def is_quiet() -> bool:
    """Whether the user gave --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("quiet"))


def watched(stream: TextIO | None) -> bool:
    """Whether a stream (stdout or stderr) is shown in a terminal; None is a closed stream."""
    return stream is not None and stream.isatty()


def shows_bars() -> bool:
    """Whether to show progress bars: stderr is a terminal, and --quiet was not given."""
    return watched(sys.stderr) and not is_quiet()


def progress(*columns: ProgressColumn) -> Progress:
    """Make progress bars on stderr. `columns`: by default counts, elapsed and remaining time.
    Nothing is shown if stderr is not a terminal.
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
    """Make a progress bar on stderr for a long run. It shows the step, the time left (the text in
    the field `left`), the bar, and then the description of the step, as far as the terminal is
    wide. Nothing is shown if stderr is not a terminal.
    """
    from rich import progress as parts
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

    class Steps(parts.MofNCompleteColumn):
        """Shows "step/steps"; nothing while the number of steps is not known yet."""

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
    """Show progress bars for the parts of some work. Yields a function that takes the name of a
    part, adds its bar, and returns a function update(done, total). If no bars are shown, rich is
    not imported, since that is slow.
    """
    if not shows_bars():
        yield lambda _part: lambda _done, _total: None
        return
    with progress() as shown:

        def bar_of(part: str) -> Callable[[int, int], None]:
            """Add the bar of a part. Its total is set by the first update."""
            task = shown.add_task(f"{what} {part}".rstrip(), total=None)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield bar_of


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show one progress bar. Yields a function update(done, total)."""
    with bars(what) as bar_of:
        yield bar_of("")
