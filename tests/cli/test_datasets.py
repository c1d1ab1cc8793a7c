"""The list of datasets and their cards."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hbench.cli.build import command as build
from hbench.cli.datasets import command
from hbench.core.errors import UnknownName
from hbench.datasets import specs

PUBLISHED = [
    "bioscan-5m", "bioscan-5m-partial",
    "cars196", "cifar100", "cub200", "dyml-animal", "dyml-product", "dyml-vehicle", "ethec", "fashionpedia",
    "fathomnet-2025", "fgvc-aircraft", "gldv2", "glyphs", "hgldv2", "ilias", "ilias-core", "inat18-base", "inat18-full",
    "inat21-mini", "inat21-mini-open", "inshop", "met", "nabirds", "omniglot", "omniglot-small", "products-10k",
    "rare-species", "roxford5k", "rp2k", "rparis6k", "sfm-120k", "sop", "treeoflife-10m-small",
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def shown(*arguments):
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "birds.csv").write_text("item,family,species\na.jpg,Corvidae,crow\nb.jpg,Paridae,tit\n")
    CliRunner().invoke(
        build, ["mine", "--from", str(tmp_path / "birds.csv"), "--levels", "family,species"], catch_exceptions=False
    )


def test_all_published_benchmarks_are_listed():
    assert sorted(specs) == PUBLISHED
    told = json.loads(shown("--json"))
    assert [row["name"] for row in told] == PUBLISHED
    assert {row["name"]: row["here"] for row in told if row["here"]} == {"glyphs": "ready"}
    assert all(name in shown() for name in PUBLISHED)


def test_own_datasets_are_listed_too(mine):
    own = json.loads(shown("--json"))[-1]
    assert (own["name"], own["here"], own["levels"]) == ("mine", "ready", ["family", "species"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_card_says_what_it_is_and_what_to_do_next(name):
    card = json.loads(shown(name, "--json"))
    assert {"title", "citation", "licence", "levels", "protocol", "version"} <= set(card)
    assert ("digests" in card) if name == "glyphs" else (f"hbench download {name}" in card["next"])
    if name != "glyphs":  # it is drawn, not unpacked
        assert any(Path(marker).name in card["layout"] for marker in specs[name].markers)


def test_a_card_draws_the_raw_folder_as_a_tree():
    lines = shown("cub200").splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("layout"))
    assert lines[first] == f"{'layout':<18}CUB_200_2011/"
    assert lines[first + 3].endswith("    001.Black_footed_Albatross/")


def test_a_card_shows_tree_statistics_and_defects():
    card = shown("glyphs")
    assert "script: 5 nodes" in card
    assert "base: 437 nodes" in card
    assert "17 Greek letters occur twice" in card


def test_the_card_of_an_own_dataset_is_what_was_built(mine):
    card = json.loads(shown("mine", "--json"))
    assert card["counts"]["test"]["images"] == 2
    assert "species: 2 nodes, 1 to 1 in a node above (median 1); crow 1 images" in card["tree of test"][1]


def test_what_must_be_fetched_by_hand_is_on_the_card():
    assert "OneDrive" in shown("dyml-product")
    assert "signed form" in shown("inshop")


def test_an_unknown_name_gets_suggestions():
    with pytest.raises(UnknownName, match="'inat18-base'"):
        shown("inat18-bas")


def test_an_own_name_is_suggested_too(mine):
    with pytest.raises(UnknownName, match="did you mean 'mine'"):
        shown("mines")
