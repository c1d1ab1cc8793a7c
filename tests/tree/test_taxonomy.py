"""Taxa joined by id: parents by id, synonyms, subspecies, ranks that are missing; against lineages
written by hand.
"""

import pytest

from hbench import load
from hbench.core.errors import DataError

pytestmark = pytest.mark.fast

TAXA = """taxonID,parentNameUsageID,acceptedNameUsageID,scientificName,taxonRank
1,,,Animalia,kingdom
3,1,,Strigiformes,order
4,3,,Tytonidae,family
5,4,,Tyto,genus
6,5,,Tyto alba,species
7,6,,Tyto alba guttata,subspecies
8,,6,Strix alba,species
9,3,,Strigidae,family
10,9,,Bubo,genus
11,10,,Bubo bubo,species
12,3,,Ninox,genus
13,12,,Ninox rufa,species
"""
LINEAGES = {
    "6": ("Strigiformes", "Tytonidae", "Tyto", "Tyto alba"),
    "7": ("Strigiformes", "Tytonidae", "Tyto", "Tyto alba"),  # a subspecies is within its species
    "8": ("Strigiformes", "Tytonidae", "Tyto", "Tyto alba"),  # a synonym is its accepted name
    "11": ("Strigiformes", "Strigidae", "Bubo", "Bubo bubo"),
}
LEVELS = ["order", "family", "genus", "species"]


@pytest.fixture
def taxa(tmp_path):
    (tmp_path / "taxa.csv").write_text(TAXA)
    return tmp_path / "taxa.csv"


def table(folder, ids, title="taxonID"):
    (folder / "t.csv").write_text(
        f"image,{title}\n" + "".join(f"{n}.jpg,{taxon}\n" for n, taxon in enumerate(ids))
    )
    return folder / "t.csv"


@pytest.mark.parametrize("ending", ["", ".0"])
@pytest.mark.parametrize("title", ["taxonID", "taxon", "speciesKey"])
def test_items_get_the_lineage_of_their_taxon(tmp_path, taxa, ending, title):
    ids = ["6", "7", "8", "11"] * 3
    test = load(
        table(tmp_path, [f"{each}{ending}" for each in ids], title), taxonomy=taxa, levels=LEVELS
    ).tests["test"]
    rows = [
        tuple(names[i] for names, i in zip(test.tree.names, row, strict=True))
        for row in test.labels
    ]
    assert dict(zip(test.items, rows, strict=True)) == {
        f"{n}.jpg": LINEAGES[each] for n, each in enumerate(ids)
    }


def test_a_rank_that_a_lineage_lacks_is_a_hole_like_any_other(tmp_path, taxa):
    path = table(tmp_path, ["6", "13"] * 3)
    with pytest.raises(DataError, match="without a name at some level") as refusal:
        load(path, taxonomy=taxa, levels=LEVELS)
    assert "--policy fill-from-parent" in refusal.value.fix
    names = (
        load(path, ["fill-from-parent"], taxonomy=taxa, levels=LEVELS).tests["test"].tree.names[1]
    )
    assert names == ("Tytonidae", "unplaced family of Strigiformes")


@pytest.mark.parametrize(
    "rows",
    [
        "taxonID,order,species\n1,Owls,Barn owl\n2,Owls,Bay owl\n",
        # parents cannot be followed to names without a column of names
        "taxonID,parentNameUsageID,taxonRank,order,species\n"
        "1,7,species,Owls,Barn owl\n2,8,species,Owls,Bay owl\n",
    ],
    ids=["alone", "beside parents"],
)
def test_a_table_of_taxa_with_a_column_per_rank_is_joined_too(tmp_path, rows):
    (tmp_path / "taxa.csv").write_text(rows)
    found = load(
        table(tmp_path, ["1", "2"] * 3), taxonomy=tmp_path / "taxa.csv", levels=["order", "species"]
    )
    assert found.tests["test"].tree.names == (("Owls",), ("Barn owl", "Bay owl"))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (
            "taxonID,parentNameUsageID,scientificName,taxonRank\n"
            "1,,Owls,order\n2,,Tyto,genus\n2,1,Tyto,genus\n",
            "lines 3 and 4: Tyto below none, and Tyto below 1",
        ),
        (
            "taxonID,order,species\n1,Owls,Barn owl\n1,Owls,Bay owl\n",
            "lines 2 and 3: Owls, Barn owl, and Owls, Bay owl",
        ),
    ],
    ids=["parents", "ranks"],
)
def test_a_taxon_of_two_rows_that_differ_is_refused(tmp_path, rows, found):
    (tmp_path / "taxa.csv").write_text(rows)
    with pytest.raises(DataError, match="stands in two rows that differ") as refusal:
        load(table(tmp_path, ["1", "2"] * 3), taxonomy=tmp_path / "taxa.csv")
    assert refusal.value.found == found


def test_an_item_without_a_taxon_is_a_distractor(tmp_path, taxa):
    test = load(table(tmp_path, ["6", "11", "", "6"]), taxonomy=taxa, levels=LEVELS).tests["test"]
    assert test.query.tolist() == [True, True, False, True]
    assert test.gallery.all()


def test_taxa_that_are_not_in_the_taxonomy_are_named(tmp_path, taxa):
    with pytest.raises(DataError, match=r"1 taxa are not in taxa\.csv") as refusal:
        load(table(tmp_path, ["6", "999", "11"]), taxonomy=taxa)
    assert refusal.value.found == "999"
