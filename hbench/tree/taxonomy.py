"""Reads a taxonomy whose rows are taxa with an id, and gives the lineage of each taxon by rank.

A synonym stands for its accepted name, a subspecies is within its species, and what has no taxon at
a rank has an empty name there. Parents are named by id (`parentNameUsageID`, `parent_id`), or the
ranks are columns of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hbench.core.errors import DataError, TreeError, examples
from hbench.core.tables import texts
from hbench.sheets import words
from hbench.sheets.column_values import plain
from hbench.sheets.rows import Row
from hbench.sheets.sheet import read_table


@dataclass(frozen=True)
class Taxonomy:
    """Taxa by id: `parents`, `accepted` (of a synonym), `names` and `ranks`; or `rows`, whole
    lineages by rank.
    """

    source: str
    names: dict[str, str]
    ranks: dict[str, str]
    parents: dict[str, str]
    accepted: dict[str, str]
    rows: dict[str, dict[str, str]]

    def lineage(self, taxon: str) -> dict[str, str]:
        """The name of a taxon, or of what it is a synonym of, and of those above it, by rank."""
        taxon = self.accepted.get(taxon, taxon)
        if self.rows:
            return self.rows[taxon]

        found: dict[str, str] = {}
        seen: set[str] = set()
        while taxon in self.names:
            if taxon in seen:
                raise TreeError(
                    f"the taxon {taxon} of {self.source} is above itself",
                    fix="mend its parents in the source",
                )
            seen.add(taxon)
            found.setdefault(self.ranks.get(taxon, ""), self.names[taxon])
            taxon = self.parents.get(taxon, "")

        return found

    def __contains__(self, taxon: str) -> bool:
        return taxon in self.names


def read(path: Path) -> Taxonomy:
    """Read a table of taxa. Raises DataError for one without ids, names, and either parents and
    ranks or a column per rank.
    """
    table = read_table(path)
    by_title = {words.folded(name): name for name in table.column_names}
    taxon_id = _first(by_title, words.TAXA)
    name = _first(by_title, words.TITLES)
    parent = _first(by_title, words.PARENTS)
    rank = _first(by_title, words.TAXON_RANKS)
    by_rank = {each: by_title[each] for each in words.RANKS if each in by_title}
    if taxon_id is None or not (by_rank or (name and parent and rank)):
        raise DataError(
            f"{path} is not a table of taxa",
            found=", ".join(table.column_names),
            expected="taxonID, scientificName, taxonRank and parentNameUsageID, or taxonID and a "
            "column per rank",
        )

    ids = [plain(text) for text in texts(table, taxon_id)]

    def of_column(title: str | None) -> dict[str, str]:
        values = [] if title is None else texts(table, title)
        return {taxon: value for taxon, value in zip(ids, values, strict=False) if value}

    accepted = _other_taxa(of_column(_first(by_title, words.ACCEPTED)))
    if parent is None or rank is None:
        rows = _lineages(table, ids, by_rank)
        return Taxonomy(path.name, dict.fromkeys(ids, ""), {}, {}, accepted, rows)

    parents = _other_taxa(of_column(parent))
    ranks = {taxon: text.lower() for taxon, text in of_column(rank).items()}
    return Taxonomy(path.name, of_column(name), ranks, parents, accepted, {})


def _other_taxa(named: Mapping[str, str]) -> dict[str, str]:
    """The taxon that each taxon names, such as its parent, but for those that name themselves."""
    other = {taxon: plain(text) for taxon, text in named.items()}
    return {taxon: of for taxon, of in other.items() if of != taxon}


def _lineages(
    table: pa.Table, ids: Sequence[str], by_rank: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """The names of each taxon by rank, in a table with a column for each rank."""
    columns = [texts(table, title) for title in by_rank.values()]
    rows = zip(*columns, strict=True)
    return {
        taxon: dict(zip(by_rank, row, strict=True)) for taxon, row in zip(ids, rows, strict=True)
    }


def _first(by_title: dict[str, str], titles: Iterable[str]) -> str | None:
    return next((by_title[title] for title in titles if title in by_title), None)


def rows_of(
    taxonomy: Taxonomy, taxa: Sequence[str], levels: Sequence[str]
) -> tuple[tuple[str, ...], list[Row]]:
    """The levels, by default the main ranks that some taxon has, and the names of each taxon there;
    "" where it has none.

    Raises DataError for taxa that the taxonomy does not have.
    """
    different = [taxon for taxon in dict.fromkeys(taxa) if taxon]
    if unknown := [taxon for taxon in different if taxon not in taxonomy]:
        raise DataError(
            f"{len(unknown):,} taxa are not in {taxonomy.source}",
            expected="the id of a taxon, or an empty cell",
            found=examples(unknown),
            fix="take the ids from the same release of the taxonomy",
        )

    lineages = {taxon: taxonomy.lineage(taxon) for taxon in different}
    there = {rank for lineage in lineages.values() for rank, name in lineage.items() if name}
    chosen = tuple(levels) or tuple(rank for rank in words.MAIN_RANKS if rank in there)
    if missing := [level for level in chosen if level.lower() not in there]:
        raise DataError(
            f"no taxon of the table has a {missing[0]}",
            expected=f"levels among {', '.join(sorted(there))}",
            found=", ".join(chosen),
            fix="name the levels: --levels",
        )

    def row(lineage: Mapping[str, str]) -> Row:
        """The names of a lineage at the chosen levels."""
        return tuple(lineage.get(level.lower(), "") for level in chosen)

    rows = {taxon: row(lineage) for taxon, lineage in lineages.items()}
    return chosen, [rows.get(taxon, ("",) * len(chosen)) for taxon in taxa]
