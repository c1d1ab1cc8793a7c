"""The list of datasets and their cards."""

import importlib
import json
import pkgutil
from pathlib import Path

import pytest

from hbench.core.errors import UnknownName
from hbench.datasets import benchmarks, specs
from hbench.datasets.spec import Spec
from tests.command_line import call

MODULES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
PUBLISHED = sorted(specs)


pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("empty_home")]


def shown(*words):
    return call("datasets", *words).stdout


def test_all_published_benchmarks_are_listed():
    for name in MODULES:
        module = importlib.import_module(f"hbench.datasets.benchmarks.{name}")
        assert [
            value.name
            for value in vars(module).values()
            if isinstance(value, Spec) and value.name in specs
        ], name
    output = json.loads(shown("--json"))
    assert [row["name"] for row in output] == PUBLISHED
    assert {row["name"]: row["here"] for row in output if row["here"]} == {"glyphs": "ready"}
    assert all(name in shown() for name in PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_card_says_what_it_is_and_what_to_do_next(name):
    card = json.loads(shown(name, "--json"))
    assert all(
        card[key] for key in ("title", "citation", "licence", "levels", "protocol", "version")
    )
    assert specs[name].name == name
    assert ("digests" in card) if name == "glyphs" else (f"hbench download {name}" in card["next"])
    if name != "glyphs":  # it is drawn, not unpacked
        assert any(Path(marker).name in card["layout"] for marker in specs[name].markers)


def test_cards_show_the_raw_folder_the_tree_defects_and_what_must_be_fetched_by_hand():
    lines = shown("cub200").splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("layout"))
    assert lines[first] == f"{'layout':<18}CUB_200_2011/"
    assert lines[first + 3].endswith("    001.Black_footed_Albatross/")
    for name, text in (
        ("glyphs", "script: 5 nodes"),
        ("glyphs", "base: 437 nodes"),
        ("glyphs", "17 Greek letters occur twice"),
        ("dyml-product", "OneDrive"),
        ("inshop", "signed form"),
    ):
        assert text in shown(name)


def test_own_datasets_are_listed_have_a_card_and_are_suggested(tmp_path):
    (tmp_path / "birds.csv").write_text(
        "item,family,species\na.jpg,Corvidae,crow\nb.jpg,Paridae,tit\n"
    )
    call("build", "mine", "--from", tmp_path / "birds.csv", "--levels", "family,species")
    mine = json.loads(shown("--json"))[-1]
    assert (mine["name"], mine["here"], mine["levels"]) == ("mine", "ready", ["family", "species"])
    card = json.loads(shown("mine", "--json"))
    assert card["counts"]["test"]["images"] == 2
    assert (
        "species: 2 nodes, 1 to 1 in a node above (median 1); crow 1 images"
        in card["tree of test"][1]
    )
    for name, suggestion in (("mines", "did you mean 'mine'"), ("inat18-bas", "'inat18-base'")):
        with pytest.raises(UnknownName, match=suggestion):
            shown(name)
