"""Reads a taxonomy whose rows are taxa with an id, and gives the lineage of each taxon by rank.

A synonym stands for its accepted name, a subspecies is within its species, and what has no taxon at
a rank has an empty name there. Parents are named by id (`parentNameUsageID`, `parent_id`), or the
ranks are columns of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from hbench.core.errors import DataError, TreeError, examples
from hbench.core.tables import text_rows, texts
from hbench.sheets import words
from hbench.sheets.column_values import plain_id
from hbench.sheets.rows import Row
from hbench.sheets.sheet import read_table

# what stands in a column of ids for no taxon: pandas, R, MySQL's dump, ITIS and NCBI
NO_TAXON = frozenset(["", "0", "na", "nan", "none", "null", "\\n"])


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
        """The name of a taxon, or of what it is a synonym of, and of those above it, by rank.

        Raises TreeError for a taxon that is above itself, or a synonym of itself, DataError for one
        whose parent is not in the taxonomy.
        """
        taxon = self._accepted(taxon)
        if self.rows:  # the table has a column per rank: no parents have to be followed
            return self.rows[taxon]

        found: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            if taxon in seen:
                raise TreeError(
                    f"the taxon {taxon} of {self.source} is above itself",
                    fix="mend its parents in the source",
                )
            seen.add(taxon)
            # of two taxa of one rank the lower one counts
            found.setdefault(self.ranks.get(taxon, ""), self.names[taxon])
            parent = self.parents.get(taxon)
            if parent is None:
                return found
            if parent not in self.names:
                raise DataError(
                    f"the parent {parent} of taxon {taxon} ({self.names[taxon]}) is not in "
                    f"{self.source}",
                    expected="a row for each taxon that is named as a parent",
                    fix=f"add the row of taxon {parent}, or leave its cell empty in that of "
                    f"{taxon}: then {self.names[taxon]} is a root",
                )
            taxon = self._accepted(parent)

    def _accepted(self, taxon: str) -> str:
        """What a taxon is a synonym of, over as many steps as there are; itself, if of nothing.
        `accepted`: {taxon: what it is a synonym of}."""
        steps = [taxon]
        while (of := self.accepted.get(steps[-1])) is not None:
            if of in steps:
                raise TreeError(
                    f"taxa of {self.source} are synonyms of each other, in a cycle",
                    found=" = ".join(f"{each} ({self.names.get(each, '')})" for each in steps),
                    fix="mend the column of accepted names in the source",
                )
            if of not in self:
                raise DataError(
                    f"the accepted taxon {of} of {taxon} is not in {self.source}",
                    expected="a row for each taxon that is named as accepted",
                    fix=f"add the row of taxon {of}, or leave its cell empty",
                )
            steps.append(of)
        return steps[-1]

    def __contains__(self, taxon: str) -> bool:
        """Whether the taxonomy has a row with this id."""
        return taxon in self.names


class TaxonColumns(NamedTuple):
    """The titles of a table's columns: the taxa's ids, and of what each is a synonym; their names,
    parents and ranks, or, `by_rank`, a column of names for each rank. "" for a column that is not
    there."""

    taxon: str
    accepted: str
    name: str
    parent: str
    rank: str
    by_rank: dict[str, str]

    @property
    def has_parents(self) -> bool:
        """Whether each row says its taxon's name, parent and rank."""
        return bool(self.name and self.parent and self.rank)


def read(path: Path) -> Taxonomy:
    """Read a table of taxa: their ids, and either names, parents and ranks or a column per rank.
    Raises DataError for a table that lacks these, and for an id in two rows that differ.
    """
    table = read_table(path)
    columns = _columns_of(path, table.column_names)
    ids = [plain_id(text) for text in texts(table, columns.taxon)]

    def of_column(title: str) -> dict[str, str]:
        """The cells of a column by taxon, without empty ones; none without such a column."""
        values = texts(table, title) if title else []
        return {taxon: value for taxon, value in zip(ids, values, strict=False) if value}

    accepted = _taxa_named(of_column(columns.accepted))
    # a taxon in two rows is fine where both say the same: these words are compared
    if columns.has_parents:
        of_rows = text_rows(table, [columns.parent, columns.name])
        _refuse_repeated(path.name, ids, [f"{of} below {above or 'none'}" for above, of in of_rows])
        parents = _taxa_named(of_column(columns.parent))
        ranks = _in_small(of_column(columns.rank))
        return Taxonomy(path.name, of_column(columns.name), ranks, parents, accepted, {})

    of_rows = text_rows(table, list(columns.by_rank.values()))
    _refuse_repeated(path.name, ids, [", ".join(row) for row in of_rows])
    # neither names, ranks nor parents: the lineages of such a table say it all
    lineages = _lineages(table, ids, columns.by_rank)
    return Taxonomy(path.name, dict.fromkeys(ids, ""), {}, {}, accepted, lineages)


def _columns_of(path: Path, titles: Sequence[str]) -> TaxonColumns:
    """Find the columns of a table of taxa, the file at `path`, by their titles. Raises DataError
    where it is none."""
    by_word = {words.folded(title): title for title in titles}
    found = TaxonColumns(
        taxon=words.first_of(titles, words.TAXA),
        accepted=words.first_of(titles, words.ACCEPTED),
        name=words.first_of(titles, words.TITLES),
        parent=words.first_of(titles, words.PARENTS),
        rank=words.first_of(titles, words.TAXON_RANKS),
        by_rank={each: by_word[each] for each in words.RANKS if each in by_word},
    )
    if not found.taxon or not (found.by_rank or found.has_parents):
        raise DataError(
            f"{path} is not a table of taxa",
            found=", ".join(titles),
            expected="taxonID, scientificName, taxonRank and parentNameUsageID, or taxonID and a "
            "column per rank",
        )
    return found


def _in_small(named: Mapping[str, str]) -> dict[str, str]:
    """What is `named` by taxon, ranks, in small letters."""
    return {taxon: text.lower() for taxon, text in named.items()}


def _refuse_repeated(source: str, ids: Sequence[str], facts: Sequence[str]) -> None:
    """Raise DataError for a taxon that stands in two rows with other facts; `ids`, `facts`: of
    every row, the taxon's id, and in words its name and parent, or its names by rank."""
    if len({*ids}) == len(ids):
        return
    lines: dict[str, int] = {}
    for number, taxon in enumerate(ids):
        first = lines.setdefault(taxon, number)
        if facts[first] != facts[number]:
            raise DataError(
                f"the taxon {taxon} of {source} stands in two rows that differ",
                expected="the same parent and name, or names by rank, in all rows of an id",
                # lines are counted from 1, and the first is the header
                found=f"lines {first + 2} and {number + 2}: {facts[first]}, and {facts[number]}",
                fix="keep one of the two",
            )


def _taxa_named(named: Mapping[str, str]) -> dict[str, str]:
    """The taxon that each taxon names in a column, such as that of its parent, given as {taxon: the
    text there}; without those that name themselves, as roots do, or none.
    """
    other = {taxon: plain_id(text) for taxon, text in named.items()}
    return {
        taxon: of for taxon, of in other.items() if of != taxon and of.casefold() not in NO_TAXON
    }


def _lineages(
    table: pa.Table, ids: Sequence[str], by_rank: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """The lineage of each taxon in a table with a column for each rank: names by rank. `ids`: of
    its rows; `by_rank`: the column of each rank."""
    columns = [texts(table, title) for title in by_rank.values()]
    rows = zip(*columns, strict=True)
    return {
        taxon: dict(zip(by_rank, row, strict=True)) for taxon, row in zip(ids, rows, strict=True)
    }


def rows_of(
    taxonomy: Taxonomy, taxa: Sequence[str], levels: Sequence[str]
) -> tuple[tuple[str, ...], list[Row]]:
    """The levels, by default the main ranks that some taxon has, and the names of each taxon there;
    "" where it has none, and at all levels for a taxon "".

    Raises DataError for taxa that the taxonomy does not have, and for levels that none of them has.
    """
    different = [taxon for taxon in dict.fromkeys(taxa) if taxon]
    if unknown := [taxon for taxon in different if taxon not in taxonomy]:
        raise DataError(
            f"{len(unknown):,} taxa are not in {taxonomy.source}",
            expected="the id of a taxon, or an empty cell",
            found=examples(unknown),
            fix=_spelling(taxonomy, unknown)
            or "take the ids from the same release of the taxonomy",
        )

    # names by rank of each taxon
    lineages = {taxon: taxonomy.lineage(taxon) for taxon in different}
    # ranks that some taxon has a name at
    there = {rank for lineage in lineages.values() for rank, name in lineage.items() if name}
    chosen = tuple(levels) or tuple(rank for rank in words.MAIN_RANKS if rank in there)
    if not chosen:
        raise DataError(
            f"the taxa of {taxonomy.source} have none of the main ranks",
            expected=f"some of {', '.join(words.MAIN_RANKS)}",
            found=examples(sorted(map(repr, there))) or "no ranks",
            fix="name the ranks that are levels, coarse to fine: --levels A,B; or list the tree by "
            "its edges: hbench build NAME --from TABLE --levels COLUMN --tree FILE",
        )
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


def _spelling(taxonomy: Taxonomy, unknown: Sequence[str]) -> str | None:
    """Advice where ids were not found since the taxonomy has them as addresses that end in them,
    "https://…/12" for "12"; None where it does not. The first unknown one is looked at."""
    ending = unknown[0]
    written = next((taxon for taxon in taxonomy.names if taxon.endswith(f"/{ending}")), None)
    return None if written is None else f"{ending} should be {written}, as the taxonomy has it"


def hint(taxonomy: Taxonomy, taxa: Sequence[str]) -> str | None:
    """What the ids of a table lack to be those of the taxonomy; None where nothing shows it."""
    return _spelling(taxonomy, taxa) if taxa else None
