"""A leaderboard as a table for people (Markdown, LaTeX) and as records for machines (CSV, JSON)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hbench.leaderboard import Leaderboard, Standing
from hbench.row import Row

ABOUT = ("place", "method", "year", "backbone", "dim")


class Table(NamedTuple):
    """`cells`: one line per standing, as texts; `notes`: "[n] …", what the marks behind methods refer to."""

    header: list[str]
    cells: list[list[str]]
    notes: list[str]


def table(standings: Iterable[Standing], metrics: Sequence[str]) -> Table:
    """Place, method, year, backbone, dimension, the scores of `metrics` and the sources of each standing."""
    notes: dict[str, int] = {}
    cells = []
    for standing in standings:
        first = standing.rows[0]
        marks = "".join(f" [{notes.setdefault(text, len(notes) + 1)}]" for row in standing.rows for text in remarks(row))
        about = (standing.place, first.method + marks, first.year, first.backbone, first.dim)
        scores = merged(standing.rows)
        texts = ["–" if value is None else str(value) for value in (*about, *(scores.get(metric) for metric in metrics))]
        cells.append([*texts, ", ".join(dict.fromkeys(map(short_source, standing.rows)))])
    return Table([*ABOUT, *metrics, "source"], cells, [f"[{number}] {text}" for text, number in notes.items()])


def remarks(row: Row) -> list[str]:
    """What a reader of a row's scores should know: its doubts, and the scores that are not comparable."""
    doubt = [row.paper.doubt] if row.paper and row.paper.doubt else []
    unranked = [f"{metric} not ranked: {reason}" for metric, reason in row.unranked.items()]
    return [f"{short_source(row)}: {text}" for text in (*doubt, *unranked)]


def merged(rows: Sequence[Row]) -> dict[str, Any]:
    """The scores of rows that agree where they share a metric."""
    return {metric: score for row in rows for metric, score in row.scores.items()}


def short_source(row: Row) -> str:
    """The first word of the citation and the table; the year has its own column."""
    return f"{row.paper.citation.partition(',')[0]} {row.paper.table}" if row.paper else row.source


def markdown(board: Leaderboard, content: Table) -> str:
    """A pipe table with its notes as a list."""
    lines = [content.header, ["---"] * 2 + ["---:"] * (len(content.header) - 3) + ["---"], *content.cells]
    escaped = [lines[0], lines[1], *([re.sub(r"([\\|*_<`])", r"\\\1", cell) for cell in line] for line in lines[2:])]
    pipes = [f"| {' | '.join(line)} |" for line in escaped]
    notes = [re.sub(r"([\\*_<`])", r"\\\1", note) + "  " for note in content.notes]
    return "\n".join([f"**{title(board)}**", "", *pipes, *([""] + notes if notes else [])]) + "\n"


def latex(board: Leaderboard, content: Table) -> str:
    """A booktabs table with its notes below, every text escaped."""
    import pandas as pd

    def tabular(frame: pd.DataFrame, columns: str) -> str:
        style = frame.style.hide(axis="index").format(escape="latex").format_index(axis=1, escape="latex")
        return style.to_latex(hrules=True, column_format=columns)

    body = tabular(pd.DataFrame(content.cells, columns=content.header), "rl" + "r" * (len(content.header) - 3) + "l")
    notes = tabular(pd.DataFrame({"Notes": content.notes}), r"p{\linewidth}") if content.notes else ""
    return f"% {title(board)}\n\\begin{{table}}\n\\centering\n{body}{notes}\\end{{table}}\n"


def records(board: Leaderboard, standings: Iterable[Standing]) -> list[dict[str, Any]]:
    """One flat record per row, with its place and all its provenance."""
    flat = []
    for standing in standings:
        for row in standing.rows:
            kept = row.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
            provenance = {key: kept.pop(key, {}) for key in ("setup", "paper", "run")}
            kept["scores"] = {metric: float(score) for metric, score in row.scores.items()}
            identity = {"dataset": board.dataset, "version": board.version, "protocol": board.protocol}
            flat.append(identity | {"place": standing.place} | kept | provenance)
    return flat


def as_json(board: Leaderboard, standings: Iterable[Standing]) -> dict[str, Any]:
    """What describes the leaderboard, and one record per row."""
    about = board.model_dump(mode="json", exclude={"rows"}, exclude_defaults=True)
    return about | {"unit": "percent", "rows": records(board, standings)}


def as_csv(board: Leaderboard, standings: Iterable[Standing], metrics: Sequence[str]) -> str:
    """One line per row: what it is, one column per metric, then setup and provenance; empty where a row has none."""
    flat = [_flat(record) for record in records(board, standings)]
    first = ["dataset", "version", "protocol", *ABOUT, *metrics]
    others = dict.fromkeys(key for record in flat for key in record if key not in first)
    text = io.StringIO()
    writer = csv.DictWriter(text, [*first, *others], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in record.items() if not isinstance(value, dict)}
    inner = {f"{key}.{name}": value for key in ("setup", "paper", "run") for name, value in record[key].items()}
    unranked = "; ".join(f"{metric}: {reason}" for metric, reason in record.get("unranked", {}).items())
    return plain | record["scores"] | inner | ({"unranked": unranked} if unranked else {})


def title(board: Leaderboard) -> str:
    """The dataset, the protocol, and that scores are percent."""
    tests = f", mean over {', '.join(board.averaged)}" if board.averaged else ""
    return f"{board.dataset}@{board.version}: percent{tests}, {board.protocol} protocol"
