"""Reads a taxonomy, a table whose rows are taxa with an id, and looks up the lineage of each taxon.

A synonym stands for its accepted name, a subspecies belongs to its species, and a lineage without a
taxon at some rank has an empty name there. In the table, parents are given by id
(`parentNameUsageID`, `parent_id`), or there is a column for each rank.
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

# cells of a column of ids that mean no taxon, as pandas, R, MySQL's dump, ITIS and NCBI write them
NO_TAXON = frozenset(["", "0", "na", "nan", "none", "null", "\\n"])


@dataclass(frozen=True)
class Taxonomy:
    """Taxa by their id. Lineages follow from `names`, `ranks` and `parents`, or are stored whole in
    `rows`."""

    source: str  # the name of the file
    names: dict[str, str]
    ranks: dict[str, str]
    parents: dict[str, str]  # ids; a root has no entry
    accepted: dict[str, str]  # from a synonym to the id of its accepted taxon
    rows: dict[str, dict[str, str]]  # lineages: names by rank; empty if `parents` are used

    def lineage(self, taxon: str) -> dict[str, str]:
        """The names of a taxon and its ancestors, by rank. For a synonym, these are the names of
        its accepted taxon.

        Raises TreeError for a taxon that is its own ancestor or synonym, DataError for one whose
        parent is not in the taxonomy.
        """
        taxon = self._accepted(taxon)
        if self.rows:  # the table has a column per rank; rows[taxon] are the names by rank
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
            # setdefault: if two taxa have the same rank, the lower one counts. Taxa without a rank
            # are under "", which is no level.
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
        """The accepted taxon of a synonym, which may be found over several steps; any other taxon
        itself. Raises TreeError if synonyms form a cycle, DataError if a taxon is missing."""
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
    """The titles of the columns of a table of taxa; "" for a column that the table lacks."""

    taxon: str  # the ids of the taxa
    accepted: str  # the accepted taxon of each synonym
    name: str
    parent: str
    rank: str
    by_rank: dict[str, str]  # for each rank, the column of names at this rank

    @property
    def has_parents(self) -> bool:
        """Whether the table has columns of the taxa's names, parents and ranks."""
        return bool(self.name and self.parent and self.rank)


def read(path: Path) -> Taxonomy:
    """Read a table of taxa with their ids, and either names, parents and ranks, or a column per
    rank. Raises DataError if these are missing, or if an id has two rows that differ.
    """
    table = read_table(path)
    columns = _columns_of(path, table.column_names)
    ids = [plain_id(text) for text in texts(table, columns.taxon)]

    def of_column(title: str) -> dict[str, str]:
        """The cells of a column by taxon, without empty cells. If the table lacks the column, its
        title is "" and the result {}."""
        values = texts(table, title) if title else []
        # strict=False, since there are no values without the column
        return {taxon: value for taxon, value in zip(ids, values, strict=False) if value}

    # from each synonym to its accepted taxon, without taxa that name themselves
    accepted = _taxa_named(of_column(columns.accepted))
    # two rows with the same id are accepted if they agree in name and parent, or in all ranks
    if columns.has_parents:
        of_rows = text_rows(table, [columns.parent, columns.name])
        _refuse_repeated(path.name, ids, [f"{of} below {above or 'none'}" for above, of in of_rows])
        # ids of parents; a root may name itself as its parent, and gets none
        parents = _taxa_named(of_column(columns.parent))
        ranks = _in_small(of_column(columns.rank))
        return Taxonomy(
            source=path.name,
            names=of_column(columns.name),
            ranks=ranks,
            parents=parents,
            accepted=accepted,
            rows={},
        )

    of_rows = text_rows(table, list(columns.by_rank.values()))
    _refuse_repeated(path.name, ids, [", ".join(row) for row in of_rows])
    # the lineages replace names, ranks and parents, which are empty: `names` has the ids only
    lineages = _lineages(table, ids, columns.by_rank)
    return Taxonomy(
        source=path.name,
        names=dict.fromkeys(ids, ""),
        ranks={},
        parents={},
        accepted=accepted,
        rows=lineages,
    )


def _columns_of(path: Path, titles: Sequence[str]) -> TaxonColumns:
    """Find the columns of a table of taxa by their titles. Raises DataError, which names the file,
    if the table is none of taxa."""
    by_word = {words.folded(title): title for title in titles}
    # first_of gives "" for a column that the table lacks
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
    """A mapping of taxa to texts, such as ranks, with the texts in lower case."""
    return {taxon: text.lower() for taxon, text in named.items()}


def _refuse_repeated(source: str, ids: Sequence[str], facts: Sequence[str]) -> None:
    """Raise DataError for a taxon that has two rows with different facts. `ids` has the taxon of
    each row; `facts` has, in words, its name and parent, or its names by rank."""
    if len({*ids}) == len(ids):
        return
    lines: dict[str, int] = {}
    for number, taxon in enumerate(ids):
        first = lines.setdefault(taxon, number)  # the first row of the taxon
        if facts[first] != facts[number]:
            raise DataError(
                f"the taxon {taxon} of {source} stands in two rows that differ",
                expected="the same parent and name, or names by rank, in all rows of an id",
                # + 2, since lines are counted from 1 and the first is the header
                found=f"lines {first + 2} and {number + 2}: {facts[first]}, and {facts[number]}",
                fix="keep one of the two",
            )


def _taxa_named(named: Mapping[str, str]) -> dict[str, str]:
    """Turn the texts of a column of taxa, such as the parents, into ids. `named` has the text of
    each taxon. A taxon that names itself, as roots may, or no taxon is left out.
    """
    other = {taxon: plain_id(text) for taxon, text in named.items()}
    return {
        taxon: of for taxon, of in other.items() if of != taxon and of.casefold() not in NO_TAXON
    }


def _lineages(
    table: pa.Table, ids: Sequence[str], by_rank: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """The lineage of each taxon, its names by rank, from a table with a column for each rank. `ids`
    has the taxon of each row, and `by_rank` the title of each rank's column."""
    columns = [texts(table, title) for title in by_rank.values()]
    rows = zip(*columns, strict=True)
    return {
        taxon: dict(zip(by_rank, row, strict=True)) for taxon, row in zip(ids, rows, strict=True)
    }


def rows_of(
    taxonomy: Taxonomy, taxa: Sequence[str], levels: Sequence[str]
) -> tuple[tuple[str, ...], list[Row]]:
    """The levels, and a row of names at these levels for each of the `taxa`.

    A name is "" if the taxon has none at a level; the row of the empty id "" has no names at all.
    By default, the levels are the main ranks at which some taxon has a name. Raises DataError for
    taxa that are not in the taxonomy, and for levels at which no taxon has a name.
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

    lineages = {taxon: taxonomy.lineage(taxon) for taxon in different}
    # the ranks, in lower case, at which some taxon has a name
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
    """The advice of an error about unknown ids, if the taxonomy writes ids as addresses:
    "https://…/12" for "12". None otherwise. Only the first unknown id is looked up."""
    ending = unknown[0]
    written = next((taxon for taxon in taxonomy.names if taxon.endswith(f"/{ending}")), None)
    return None if written is None else f"{ending} should be {written}, as the taxonomy has it"


def hint(taxonomy: Taxonomy, taxa: Sequence[str]) -> str | None:
    """How the ids of a table differ from those of the taxonomy, in words; None if no difference in
    spelling is found."""
    return _spelling(taxonomy, taxa) if taxa else None
