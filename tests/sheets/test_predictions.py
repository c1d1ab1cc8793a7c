"""Predictions as people's tools write them, each known by its form."""

import json

import pytest

from hbench.core.errors import DataError
from hbench.sheets.predictions import read

LEVELS = ("order", "family", "species")
NAMES = frozenset(
    ["Owls", "Typical owls", "Eagle owl", "Snowy owl", "Hawks", "Eagles", "Sea eagle"]
)
EAGLE_OWL = ("Owls", "Typical owls", "Eagle owl")


def found(tmp_path, text, name="p.csv"):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return [tuple(row) for row in read(path, LEVELS, NAMES).rows]


FORMS = {
    "a path and a score": (
        "item,path,score\na,Owls > Typical owls > Eagle owl,.9\n",
        [("a", EAGLE_OWL, 0.9, ())],
    ),
    "several rows of an item": (
        "item,path,score\na,Owls > Typical owls,.6\na,Hawks,.3\n",
        [("a", ("Owls", "Typical owls"), 0.6, ()), ("a", ("Hawks",), 0.3, ())],
    ),
    "hiclass: a column per level, empty tails": (
        "item,order,family,species\na,Owls,Typical owls,\nb,Hawks,,\n",
        [("a", ("Owls", "Typical owls"), None, ()), ("b", ("Hawks",), None, ())],
    ),
    "a column per level with chances": (
        "item,order,order_score,family,family_score,species,species_score\n"
        "a,Owls,.9,Typical owls,.8,Eagle owl,.5\n",
        [("a", EAGLE_OWL, None, (0.9, 0.8, 0.5))],
    ),
    "pybioclip: ranks, a common name, and the chance of every row": (
        "file_name,kingdom,order,family,species,common_name,score\n"
        "a,Animalia,Owls,Typical owls,Eagle owl,uhu,.7\na,Animalia,Hawks,Eagles,Sea eagle,,.2\n",
        [("a", EAGLE_OWL, 0.7, ()), ("a", ("Hawks", "Eagles", "Sea eagle"), 0.2, ())],
    ),
    "scikit-learn: a column per class": (
        "item,Eagle owl,Snowy owl,Sea eagle\na,.5,.25,.25\n",
        [("a", ("Eagle owl",), 0.5, ()), ("a", ("Snowy owl",), 0.25, ()), ("a", ("Sea eagle",), 0.25, ())],
    ),
    "CASSIA: predicted columns": (
        "cell,Predicted Main Cell Type,Predicted Sub Cell Type\na,Owls,Typical owls\n",
        [("a", ("Owls", "Typical owls"), None, ())],
    ),
    "a bare name": ("file,prediction\na,Eagle owl\n", [("a", ("Eagle owl",), None, ())]),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_read_by_its_form(tmp_path, form):
    text, rows = FORMS[form]
    assert found(tmp_path, text) == rows


def test_qiime_writes_a_lineage_with_its_confidence(tmp_path):
    text = (
        "Feature ID\tTaxon\tConfidence\na\to__Owls; f__Typical owls; s__\t.98\nb\tUnassigned\t.4\n"
    )
    rows = found(tmp_path, text, "taxonomy.tsv")
    assert rows == [("a", ("Owls", "Typical owls"), 0.98, ()), ("b", (), 0.4, ())]


def test_sintax_writes_a_confidence_behind_every_rank_and_no_header(tmp_path):
    text = "a\to:Owls(1.00),f:Typical owls(0.90)\t+\nb\to:Hawks(0.50),f:Eagles(0.40)\t+\n"
    rows = found(tmp_path, text, "sintax.tsv")
    assert rows == [
        ("a", ("Owls", "Typical owls"), None, (1.0, 0.9)),
        ("b", ("Hawks", "Eagles"), None, (0.5, 0.4)),
    ]


def test_speciesnet_writes_ids_and_common_names_around_the_ranks(tmp_path):
    label = "0123abcd-0000-4000-8000-000000000001;aves;owls;typical owls;bubo;bubo;eagle owl"
    document = {
        "predictions": [
            {"filepath": "a.jpg", "classifications": {"classes": [label], "scores": [0.9]}},
            {"filepath": "b.jpg", "prediction": label, "prediction_score": 0.8},
        ]
    }
    names = ("aves", "owls", "typical owls", "bubo", "bubo")
    rows = found(tmp_path, document, "p.json")
    assert rows == [("a.jpg", names, 0.9, ()), ("b.jpg", names, 0.8, ())]


def test_inaturalist_answers_by_the_ancestor_that_results_share(tmp_path):
    taxon = {"name": "Typical owls", "ancestors": [{"name": "Owls"}]}
    document = [
        {"item": "a", "results": [], "common_ancestor": {"taxon": taxon, "score": 95.0}},
        {"item": "b", "results": [{"taxon": {"name": "Eagle owl"}, "combined_score": 60}]},
    ]
    rows = found(tmp_path, document, "p.json")
    assert rows == [("a", ("Owls", "Typical owls"), 95.0, ()), ("b", ("Eagle owl",), 60.0, ())]


def test_the_surest_box_of_a_picture_answers_for_it(tmp_path):
    document = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [{"id": 3, "name": "Typical owls", "supercategory": "Owls"}, {"id": 4, "name": "Hawks"}],
        "annotations": [
            {"image_id": 1, "category_id": 4, "score": 0.2},
            {"image_id": 1, "category_id": 3, "score": 0.9},
        ],
    }  # fmt: skip
    assert found(tmp_path, document, "p.json") == [("a.jpg", ("Owls", "Typical owls"), 0.9, ())]


def test_an_agent_gives_several_candidates(tmp_path):
    document = {"a": ["Owls > Typical owls", "Hawks"], "b": {"Owls": 0.5, "Hawks > Eagles": 0.25}}
    rows = found(tmp_path, document, "p.json")
    assert rows[:2] == [("a", ("Owls", "Typical owls"), None, ()), ("a", ("Hawks",), None, ())]
    assert rows[2:] == [("b", ("Owls",), 0.5, ()), ("b", ("Hawks", "Eagles"), 0.25, ())]


def test_a_chance_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(DataError, match="no number"):
        found(tmp_path, "item,path,score\na,Owls,high\n")


def test_percent_are_chances(tmp_path):
    assert found(tmp_path, "item,path,score\na,Owls,90%\n") == [("a", ("Owls",), 0.9, ())]
