"""Files of predictions as the tools themselves write them, from the first byte to the last."""

import json

import pytest

from hbench.core.errors import DataError
from hbench.sheets.predictions import read

LEVELS = ("order", "family", "species")
NAMES = frozenset(
    ["Owls", "Typical owls", "Eagle owl", "Snowy owl", "Hawks", "Eagles", "Sea eagle"]
)
EAGLE_OWL = ("Owls", "Typical owls", "Eagle owl")
UUID = "f1856211-cfb7-4a5b-9158-c0f72fd09ee6"


def found(tmp_path, text, name):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return [tuple(row) for row in read(path, LEVELS, NAMES).rows]


@pytest.mark.parametrize("name", ["reads.tsv", "reads.kraken", "reads.txt", "reads"])
def test_kraken_names_the_taxon_of_every_read(tmp_path, name):
    text = (
        "C\tr1\tEagle owl (taxid 56265)\t150|150\t0:1 56265:20 |:| 56265:10\n"
        "U\tr2\tunclassified (taxid 0)\t150|148\t0:116 |:| 0:114\n"
        "C\tr3\troot (taxid 1)\t120\t1:86\n"
        "C\tr4\tTypical owls (taxid 30458)\t98\t30458:64\n"
    )
    assert found(tmp_path, text, name) == [
        ("r1", ("Eagle owl",), None, ()),
        ("r2", (), None, ()),
        ("r3", (), None, ()),
        ("r4", ("Typical owls",), None, ()),
    ]


def test_kraken_with_numbers_alone_is_refused(tmp_path):
    text = "U\tr0\t0\t150\t0:116\nC\tr1\t56265\t150\t0:1 56265:20\n"
    with pytest.raises(DataError, match="--use-names"):
        found(tmp_path, text, "reads.tsv")


def test_the_report_of_kraken_predicts_no_read(tmp_path):
    text = (
        " 12.50\t100\t100\tU\t0\tunclassified\n"
        " 87.50\t700\t5\tR\t1\troot\n"
        " 80.00\t640\t5\tR1\t131567\t  cellular organisms\n"
    )
    with pytest.raises(DataError, match="counts reads by taxon"):
        found(tmp_path, text, "sample.kreport")


def test_hiclass_predicts_an_array_that_pandas_writes(tmp_path):
    text = ",0,1,2\na,Owls,Typical owls,\nb,Owls,Typical owls,Eagle owl\n"
    rows = [("a", ("Owls", "Typical owls"), None, ()), ("b", EAGLE_OWL, None, ())]
    assert found(tmp_path, text, "hiclass.csv") == rows


def test_sintax_places_nothing_in_its_first_line(tmp_path):
    text = (
        "z\t\t\t\na\td:Eukaryota(1.00),o:Owls(1.00),f:Typical owls(0.90)\t+\td:Eukaryota,o:Owls\n"
    )
    names = ("Eukaryota", "Owls", "Typical owls")
    rows = [("z", (), None, ()), ("a", names, None, (1.0, 1.0, 0.9))]
    assert found(tmp_path, text, "sintax.tsv") == rows


def test_qiime_writes_a_lineage_of_seven_ranks(tmp_path):
    text = (
        "Feature ID\tTaxon\tConfidence\n"
        "4b5eeb30\td__Eukaryota; p__Chordata; c__Aves; o__Owls; f__Typical_owls; g__Bubo\t0.98\n"
        "77aa1100\tUnassigned\t0.41\n"
    )
    names = ("Eukaryota", "Chordata", "Aves", "Owls", "Typical_owls", "Bubo")
    rows = [("4b5eeb30", names, 0.98, ()), ("77aa1100", (), 0.41, ())]
    assert found(tmp_path, text, "taxonomy.tsv") == rows


def test_pybioclip_writes_every_rank_the_epithet_and_a_common_name(tmp_path):
    text = (
        "file_name,kingdom,phylum,class,order,family,genus,species_epithet,species,common_name,score\n"
        "a.jpg,Animalia,Chordata,Aves,Owls,Typical owls,Bubo,bubo,Eagle owl,Uhu,0.73\n"
        "a.jpg,Animalia,Chordata,Aves,Hawks,Eagles,Haliaeetus,albicilla,Sea eagle,,0.02\n"
    )
    assert found(tmp_path, text, "predictions.csv") == [
        ("a.jpg", EAGLE_OWL, 0.73, ()),
        ("a.jpg", ("Hawks", "Eagles", "Sea eagle"), 0.02, ()),
    ]


def test_cassia_lists_candidates_of_the_finest_type(tmp_path):
    text = (
        "True Cell Type,Predicted Main Cell Type,Predicted Sub Cell Types,Possible Mixed Cell Types,"
        "Marker Number,Marker List,Iterations,Model,Provider,Tissue,Species,Additional Info,"
        "Conversation History\n"
        'cluster 1,Owls,"Eagle owl, Snowy owl",,50,"CD1, CD2",1,m,p,lung,human,,\n'
    )
    assert found(tmp_path, text, "cassia.csv") == [
        ("cluster 1", ("Owls", "Eagle owl"), None, ()),
        ("cluster 1", ("Owls", "Snowy owl"), None, ()),
    ]


def test_a_mapping_of_speciesnets_classes_loses_their_ids(tmp_path):
    bird = f"{UUID};aves;owls;typical owls;bubo;bubo;eagle owl"
    document = [{"filepath": "a.jpg", "predictions": {bird: 0.8}}]
    assert found(tmp_path, document, "predictions.json") == [
        ("a.jpg", ("aves", "owls", "typical owls", "bubo", "bubo"), 0.8, ())
    ]


def test_speciesnet_writes_detections_blanks_and_failures(tmp_path):
    bird = f"{UUID};aves;owls;typical owls;bubo;bubo;eagle owl"
    blank = f"{UUID};;;;;;blank"
    document = {
        "predictions": [
            {
                "filepath": "a.jpg",
                "country": "USA",
                "classifications": {"classes": [bird, blank], "scores": [0.8, 0.1]},
                "detections": [{"category": "1", "label": "animal", "conf": 0.98, "bbox": [0, 0, 1, 1]}],
                "prediction": f"{UUID};aves;owls;typical owls;;;owl family",
                "prediction_score": 0.9,
                "prediction_source": "classifier+rollup_to_family",
                "model_version": "4.0.1a",
            },
            {"filepath": "b.jpg", "failures": ["CLASSIFIER"], "prediction": blank, "prediction_score": 0.9},
        ]
    }  # fmt: skip
    assert found(tmp_path, document, "predictions.json") == [
        ("a.jpg", ("aves", "owls", "typical owls", "bubo", "bubo"), 0.8, ()),
        ("a.jpg", (), 0.1, ()),
        ("b.jpg", (), 0.9, ()),
    ]


def test_inaturalist_answers_by_picture_with_and_without_a_common_ancestor(tmp_path):
    results = [
        {"combined_score": 90.1, "vision_score": 80, "taxon": {"id": 1, "name": "Eagle owl"}},
        {"combined_score": 5.0, "taxon": {"id": 2, "name": "Snowy owl"}},
    ]
    family = {"taxon": {"id": 9, "name": "Typical owls", "rank": "family"}, "score": 95.2}
    document = {
        "a.jpg": {"results": results, "common_ancestor": family},
        "b.jpg": {"results": results, "common_ancestor": None},
        "c.jpg": {"total_results": 2, "results": results},
    }
    both = [("Eagle owl", 90.1), ("Snowy owl", 5.0)]
    assert found(tmp_path, document, "scores.json") == [
        ("a.jpg", ("Typical owls",), 95.2, ()),
        *((item, (name,), score, ()) for item in ("b.jpg", "c.jpg") for name, score in both),
    ]


def test_megadetector_names_the_surest_box(tmp_path):
    document = {
        "info": {"format_version": "1.4"},
        "detection_categories": {"1": "animal", "2": "person"},
        "classification_categories": {"0": "Eagle owl", "1": "Hawks"},
        "images": [
            {"file": "a.jpg", "detections": [
                {"category": "2", "conf": 0.2, "bbox": [0, 0, 1, 1]},
                {"category": "1", "conf": 0.9, "bbox": [0, 0, 1, 1], "classifications": [["0", 0.8], ["1", 0.1]]},
            ]},
            {"file": "b.jpg", "detections": []},
            {"file": "c.jpg", "failure": "Failure image access"},
        ],
    }  # fmt: skip
    assert found(tmp_path, document, "md.json") == [
        ("a.jpg", ("Eagle owl",), 0.8, ()),
        ("a.jpg", ("Hawks",), 0.1, ()),
        ("b.jpg", (), None, ()),
        ("c.jpg", (), None, ()),
    ]


def test_numbers_of_categories_without_their_names_are_refused(tmp_path):
    document = [{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "score": 0.9}]
    with pytest.raises(DataError, match="numbers of categories"):
        found(tmp_path, document, "results.json")


def test_a_line_separator_inside_a_name_ends_no_line(tmp_path):
    text = '{"item": "a", "candidates": [{"path": "Owls > Eagle\u2028owl"}]}\n'
    assert found(tmp_path, text, "agent.jsonl") == [("a", ("Owls", "Eagle\u2028owl"), None, ())]


def test_an_agent_writes_a_record_a_line(tmp_path):
    text = (
        '{"item": "a", "candidates": [{"path": "Owls > Typical owls", "confidence": 0.7},'
        ' {"path": "Hawks", "confidence": 0.2}]}\n'
        '{"item": "b", "candidates": [{"path": "Hawks > Eagles", "confidence": 0.6}]}\n'
    )
    assert found(tmp_path, text, "agent.jsonl") == [
        ("a", ("Owls", "Typical owls"), 0.7, ()),
        ("a", ("Hawks",), 0.2, ()),
        ("b", ("Hawks", "Eagles"), 0.6, ()),
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"a": {"Owls": [1]}},
        {"images": [], "categories": [{"no": "id"}], "annotations": []},
        [{"item": "a", "parts": {}}],
        {"predictions": []},
        {"predictions": [3]},  # a list of records that are none
        [0.5, {"item": {}}],
    ],
)
def test_a_broken_document_is_refused_with_its_name(tmp_path, document):
    with pytest.raises(DataError):
        found(tmp_path, document, "p.json")
