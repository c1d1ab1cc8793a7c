"""Formats a table of texts as Markdown and as LaTeX.

>>> print(markdown(PrintedTable(("method", "R@1"), [("a|b", "81.0")], []), title="sop@1"))
**sop@1**
<BLANKLINE>
| method | R@1 |
| --- | ---: |
| a\\|b | 81.0 |
<BLANKLINE>
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hbench.core.errors import one_line

LEFT = (
    "method",
    "backbone",
    "trained on",
    "source",
    "metric",
    "model",
)  # columns of texts; the others hold numbers
MARKED = re.compile(r"([\\|*_<`])")
IN_LATEX = {  # characters that LaTeX's default fonts lack
    "→": r"$\rightarrow$", "α": r"$\alpha$", "β": r"$\beta$", "λ": r"$\lambda$", "Σ": r"$\Sigma$",
    "τ": r"$\tau$",
    "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", "≥": r"$\geq$", "≤": r"$\leq$",
}  # fmt: skip
FOREIGN = re.compile(f"[{''.join(IN_LATEX)}]")


Marks = Sequence[Collection[int]]  # the columns of every line


class PrintedTable(NamedTuple):
    """A table of texts. `cells` has a tuple for each row, and `notes` are printed below the table.

    `bold` and `underlined` have, for every row, the indices of the columns whose cells are printed
    so; each may be empty as a whole.
    """

    header: tuple[str, ...]
    cells: list[tuple[str, ...]]
    notes: list[str]
    bold: Marks = ()
    underlined: Marks = ()


def markdown(content: PrintedTable, *, title: str) -> str:
    """A table in Markdown, with its title above and its notes below. The texts of all cells and
    notes are escaped."""
    aligned = ["---" if name in LEFT else "---:" for name in content.header]
    # for each line the indices of its bold cells
    bold = content.bold or [()] * len(content.cells)
    cells = []
    for line, strong in zip(content.cells, bold, strict=True):
        texts = map(_unmarked, line)
        cells.append([f"**{text}**" if i in strong else text for i, text in enumerate(texts)])

    header = map(_unmarked, content.header)
    pipes = [f"| {' | '.join(line)} |" for line in (header, aligned, *cells)]
    notes = [f"- {_unmarked(note)}" for note in content.notes]
    return (
        "\n".join([f"**{one_line(title)}**", "", *pipes, *(["", *notes] if notes else [])]) + "\n"
    )


def _unmarked(text: str) -> str:
    """A text in one line, in which Markdown's special characters, such as a bar, are escaped."""
    return MARKED.sub(r"\\\1", one_line(text))


def latex(content: PrintedTable, *, title: str) -> str:
    """A booktabs table with its notes below and the title in a LaTeX comment above. Every text is
    escaped.
    """
    import pandas as pd

    def tabular(frame: pd.DataFrame, columns: str, marked: Mapping[str, Marks]) -> str:
        """A tabular with these column types (such as llrr). `marked`: {LaTeX command, such as
        textbf: for every line, the columns of the cells around which the command is put}."""
        style = (
            frame.style.hide(axis="index")
            .format(escape="latex")
            .format_index(axis=1, escape="latex")
        )
        commands = pd.DataFrame("", frame.index, frame.columns)
        for command, marks in marked.items():
            for line, places in enumerate(marks):
                # in pandas' notation, `--rwrap` puts \\command{…} around the cell
                commands.iloc[line, list(places)] = f"{command}:--rwrap;"
        style = style.apply(lambda _: commands, axis=None)  # the whole table at once

        text = style.to_latex(hrules=True, column_format=columns)
        # characters that LaTeX's fonts lack, which pandas does not escape
        text = FOREIGN.sub(lambda found: IN_LATEX[found[0]], text)
        # LaTeX would read [ at the start of a line as an option of the \\ before it
        return re.sub(r"(?m)^\[", "{[}", text)

    # l: texts are aligned to the left; r: numbers to the right
    aligned = "".join("l" if name in LEFT else "r" for name in content.header)
    cells = pd.DataFrame(content.cells, columns=list(content.header))
    body = tabular(cells, aligned, {"textbf": content.bold, "underline": content.underlined})
    below = pd.DataFrame({"Notes": content.notes})
    notes = tabular(below, r"p{\linewidth}", {}) if content.notes else ""
    return f"% {one_line(title)}\n\\begin{{table}}\n\\centering\n{body}{notes}\\end{{table}}\n"
