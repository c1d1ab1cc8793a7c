"""Reads a taxonomy whose rows are taxa with an id, and gives the lineage of each taxon by rank.

A synonym stands for its accepted name, a subspecies is within its species, and what has no taxon at
a rank has an empty name there. Parents are named by id (`parentNameUsageID`, `parent_id`), or the
ranks are columns of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hbench.core.errors import DataError, TreeError, examples
from hbench.core.tables import read_sheet, texts
from hbench.core.tables.column_values import plain
from hbench.tree.columns import RANKS
from hbench.tree.names import Row

IDS = ("taxonid", "taxon_id", "id", "tax_id", "taxonkey", "key")
PARENTS = ("parentnameusageid", "parent_id", "parentid", "parent_tax_id", "parent")
ACCEPTED = (
    "acceptednameusageid",
    "accepted_id",
    "acceptedid",
    "acceptedtaxonkey",
    "acceptednameusage_id",
)
NAMES = ("canonicalname", "scientificname", "name")
TAXON_RANK = ("taxonrank", "rank")
MAIN_RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")


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
    table = read_sheet(path)
    by_title = {name.lower(): name for name in table.column_names}
    columns = {key: _first(by_title, titles) for key, titles in {"id": IDS, "name": NAMES}.items()}
    wide = [rank for rank in RANKS if rank in by_title]
    parent = _first(by_title, PARENTS)
    rank = _first(by_title, TAXON_RANK)
    if columns["id"] is None or not (wide or (columns["name"] and parent and rank)):
        raise DataError(
            f"{path} is not a table of taxa",
            found=", ".join(table.column_names),
            expected="taxonID, scientificName, taxonRank and parentNameUsageID, or taxonID and a "
            "column per rank",
        )
    ids = [plain(text) for text in texts(table, columns["id"])]

    def of_column(name: str | None) -> dict[str, str]:
        values = [] if name is None else texts(table, name)
        return {taxon: value for taxon, value in zip(ids, values, strict=False) if value}

    accepted = {
        taxon: plain(of)
        for taxon, of in of_column(_first(by_title, ACCEPTED)).items()
        if plain(of) != taxon
    }
    if parent is None or rank is None:
        values = zip(*(texts(table, by_title[name]) for name in wide), strict=True)
        rows = {
            taxon: dict(zip(wide, row, strict=True)) for taxon, row in zip(ids, values, strict=True)
        }
        return Taxonomy(path.name, dict.fromkeys(ids, ""), {}, {}, accepted, rows)
    parents = {
        taxon: plain(above) for taxon, above in of_column(parent).items() if plain(above) != taxon
    }
    ranks = {taxon: name.lower() for taxon, name in of_column(rank).items()}
    return Taxonomy(path.name, of_column(columns["name"]), ranks, parents, accepted, {})


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
    chosen = tuple(levels) or tuple(rank for rank in MAIN_RANKS if rank in there)
    if missing := [level for level in chosen if level.lower() not in there]:
        raise DataError(
            f"no taxon of the table has a {missing[0]}",
            expected=f"levels among {', '.join(sorted(there))}",
            found=", ".join(chosen),
            fix="name the levels: --levels",
        )

    rows = {
        taxon: tuple(lineage.get(level.lower(), "") for level in chosen)
        for taxon, lineage in lineages.items()
    }
    return chosen, [rows.get(taxon, ("",) * len(chosen)) for taxon in taxa]
