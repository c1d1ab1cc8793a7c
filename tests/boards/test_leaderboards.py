"""Leaderboards: what a file may say, how rows are ranked and placed, and that the shipped rows are
the papers'.
"""

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench import boards as leaderboard
from hbench.boards import Row, RunProvenance, place, rank, read_board, read_board_file
from hbench.core.errors import ConfigError, UnknownName
from hbench.datasets import load, specs
from hbench.evaluation.examination import digest_of

HEAD = """
dataset = "toy"
version = "1"
protocol = "official"
levels = ["genus", "species"]
metric = "H-AP"

[citations]
"Me, 2026" = { text = "Me, A Paper, 2026" }
"""
PAPER = 'paper = { citation = "Me, 2026", table = "Tab. 1" }'
SIGNED = "toy@1|test|sim:cosine|self:excluded-by-id|ties:pessimistic|rel:alpha=1|protocol:official|hbench:0.1"
RUN = (
    f'run = {{ sha256 = "{"0" * 64}", file = "e.npz", signature = "{SIGNED}", hbench = "0.1.0", '
    'dataset_digest = "d", date = "2026-01-02", queries = 5 }'
)

ODD = (
    "1e2",
    "2e1",
    "1e1",
    "nan",
    "inf",
    "-0.0",
    "+5.0",
    "5.0001",
    "-3",
    "5E0",
    "1_0.5",
)  # as scores

DYML = ("dyml-vehicle", "dyml-animal", "dyml-product")
PUBLISHED = {  # rows per leaderboard and paper, counted in the tables of the papers
    "HAPPIER, ECCV 2022": {"sop": 18, "inat18-base": 23, "inat18-full": 18}
    | dict.fromkeys(DYML, 8),
    "SupRank, TPAMI 2025": {
        "sop": 52,
        "inat18-base": 43,
        "inat18-full": 18,
        "hgldv2": 7,
        "cub200": 18,
    }
    | dict.fromkeys(DYML, 10),
    "ROADMAP, NeurIPS 2021": {"sop": 32, "inat18-base": 18, "cub200": 28},
    "RaMBO, CVPR 2020": {"sop": 19, "cub200": 21, "inshop": 12, "voc07": 8},
}
LATER = {  # rows transcribed from public pages
    "MSA, ACM MM 2023": dict.fromkeys(DYML, 11),
    "HIER, CVPR 2023": {"sop": 29, "cub200": 28, "cars196": 26, "inshop": 28},
    "Hyp-ViT, CVPR 2022": {"sop": 6, "cub200": 6, "cars196": 6, "inshop": 6},
    "Proxy-Anchor, CVPR 2020": {"sop": 1, "cub200": 2, "cars196": 2, "inshop": 1},
    "OML model zoo": {"sop": 13, "cub200": 13, "cars196": 13, "inshop": 13},
    "UNICOM, ICLR 2023": {
        "sop": 8,
        "inshop": 8,
        "inat18-base": 8,
        "cub200": 4,
        "cars196": 4,
        "gldv2": 1,
    },
    "SEE, PAKDD 2024": {"sop": 7, "cub200": 7, "cars196": 7, "inshop": 7},
    "HIST, CVPR 2022": {"sop": 1, "cub200": 1, "cars196": 1},
    "deep-image-retrieval": {"roxford5k": 5, "rparis6k": 5},
    "cnnimageretrieval-pytorch": {"roxford5k": 10, "rparis6k": 10},
    "GLDv2 README": {"gldv2": 10},
    "revisitop README": {"roxford5k": 1, "rparis6k": 1},
}


# the leaderboards of whoever runs the tests stay out of them
pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("empty_home")]


def row(method, source=PAPER, *, scores='{ "H-AP" = 50.0 }', more=""):
    return f'\n[[row]]\nmethod = "{method}"\nscores = {scores}\n{source}\n{more}\n'


def board(*rows, head=HEAD):
    return leaderboard.parse_board(head + "".join(rows), "toy.toml")


def refusal(*rows, head=HEAD):
    with pytest.raises(ConfigError) as caught:
        board(*rows, head=head)
    return caught.value


# what a file may say


def test_the_same_method_in_another_table_backbone_or_training_is_no_duplicate():
    other = PAPER.replace("Tab. 1", "Tab. 2")
    rows = [
        row("a"),
        row("a", other),
        row("a", more="dim = 64"),
        row("a", more='setup = { trained_on = "x" }'),
    ]
    assert len(board(*rows).rows) == 4


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (
            [row("a"), row("b"), row("a", scores="{ AP = 1.0 }")],
            "rows 1 and 3 ('a') are duplicates",
        ),
        ([row("a", RUN), row("b", RUN)], "are duplicates"),  # one embedding under two names
        *(
            ([row("a"), row("b", scores=f'{{ "H-AP" = {score} }}')], "row 2 ('b'), scores.H-AP: ")
            for score in ("100.1", "-0.1", "nan", "inf", '"59.4"', "true")
        ),
        ([row("a", more='backbne = "ResNet-50"')], "row 1 ('a'): unknown key 'backbne'"),
        ([row("a", f"{PAPER}\n{RUN}")], "expected exactly one of paper and run, found both"),
        ([row("a", "")], "expected exactly one of paper and run, found neither"),
        (
            [row("a", scores='{ "NDGC" = 1.0 }')],
            "row 1 ('a'): unknown metric 'NDGC', did you mean 'NDCG'",
        ),
        (
            [row("a", scores='{ "AP/genuss" = 1.0 }')],
            "unknown level 'genuss', did you mean 'genus'?",
        ),
        ([row("a", scores='{ "AP/species" = 1.0 }')], "'AP/species' is to be written 'AP'"),
        ([row("a", scores="{ AP50 = 70.0 }")], "unknown metric 'AP50'"),
        ([row("a", PAPER.replace("Me", "You"))], "citation 'You, 2026' is not in [citations]"),
        ([row("a", more='unranked = { AP = "why" }')], "unranked 'AP' has no score"),
        ([row("a\\nb")], "row 1 ('a\\nb'), method"),
        ([row("a", RUN.replace("0" * 64, "abc"))], "sha256"),
        (
            [row("a", RUN), row("b", RUN.replace("alpha=1", "alpha=1.0"))],
            "are duplicates",
        ),  # of one file, spelt anew
        (
            [row("a", RUN), row("b", RUN.replace("hbench:0.1", "hbench:0.2|more:1"))],
            "are duplicates",
        ),
        *(
            ([row("a", scores=f'{{ "H-AP" = {text} }}')], "expected a plain decimal")
            for text in ODD
        ),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_by_file_row_and_key(rows, found):
    error = refusal(*rows)
    assert error.problem.startswith("toy.toml")
    assert error.found is not None
    assert found in error.found


def test_a_misspelt_key_is_refused_with_a_suggestion_and_a_foreign_protocol_by_its_key():
    assert refusal(row("a", more='backbne = "ResNet-50"')).fix == "did you mean 'backbone'?"
    assert "protocol" in str(refusal(head=HEAD.replace("official", "home-made")))


def test_the_finest_level_may_be_named_and_a_metric_of_another_package_must_be_declared():
    assert board(row("a", scores="{ AP = 1.0 }")).key("AP/species") == "AP"
    head = HEAD.replace('"H-AP"', '"AP50"') + '[foreign_metrics]\nAP50 = "boxes"\n'
    assert rank(board(row("a", scores="{ AP50 = 70.0 }"), head=head), "AP50")[0].place == 1


# ranks


def test_rows_without_the_metric_or_without_a_comparable_score_come_last_unranked():
    reason = 'unranked = { "H-AP" = "another split" }'
    toy = board(
        row("a", scores="{ AP = 9.0 }"), row("b", scores='{ "H-AP" = 99.0 }', more=reason), row("c")
    )
    assert [(s.place, s.rows[0].method) for s in rank(toy, "H-AP")] == [
        (1, "c"),
        (None, "a"),
        (None, "b"),
    ]


def test_one_result_printed_twice_is_one_standing_and_a_disagreeing_one_is_two():
    again, elsewhere = PAPER.replace("Tab. 1", "Tab. 2"), PAPER.replace("Tab. 1", "Tab. 3")
    toy = board(
        row("a", scores='{ "H-AP" = 5.0, AP = 3.0 }'),
        row("a", again, scores='{ "H-AP" = 5.0, ASI = 2.0 }'),
        row("a", elsewhere, scores='{ "H-AP" = 5.0, AP = 4.0 }'),
    )
    assert [[r.source[-1] for r in standing.rows] for standing in rank(toy, "H-AP")] == [
        ["1", "2"],
        ["3"],
    ]
    # also by a metric that only one of the tables prints
    assert [
        (standing.place, str(standing.score), len(standing.rows)) for standing in rank(toy, "ASI")
    ] == [
        (1, "2.0", 2),
        (None, "None", 1),
    ]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_a_place_is_one_more_than_the_number_of_better_results_and_names_its_neighbours(tenths):
    toy = board(
        *(row(f"m{i}", scores=f'{{ "H-AP" = {value / 10} }}') for i, value in enumerate(tenths))
    )
    for standing in rank(toy, "H-AP"):
        assert standing.score is not None
        better = sum(value > 10 * standing.score for value in tenths)
        assert standing.place == better + 1
        found = place(toy, "H-AP", float(standing.score) / 100)
        assert (found.place, found.of) == (better + 1, len(tenths))
        assert (found.better is None) == (better == 0)
        assert found.better is None or found.better.place <= better
        assert found.worse is None or found.worse.place > better


def test_a_score_by_a_metric_that_no_row_has_is_first_of_none():
    assert place(board(row("a")), "R@1", 0.5) == (1, 0, None, None)


def test_an_unknown_metric_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'H-AP'"):
        rank(board(row("a")), "HAP")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_board(str(tmp_path / "none.toml"))


# files


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of own leaderboards, and an empty folder to work in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home" / "data" / "leaderboards"


def own(dataset="sop", version="1"):
    head = f'dataset = "{dataset}"\nversion = "{version}"\nprotocol = "official"\nmetric = "H-AP"\n'
    return head + row(
        "mine", RUN.replace("toy@1", f"{dataset}@{version}"), scores='{ "H-AP" = 61.234 }'
    )


def test_own_rows_are_read_with_the_published_ones_and_boards_of_own_datasets_listed(home):
    before = len(read_board("sop").rows)
    home.mkdir(parents=True)
    (home / "sop.toml").write_text(own())
    (home / "mine.toml").write_text(own("mine"))
    assert len(read_board("sop").rows) == before + 1
    assert rank(read_board("sop"), "H-AP")[0].rows[0].method == "mine"
    assert "mine" in leaderboard.board_names()
    assert read_board("mine").dataset == "mine"
    (home / "sop.toml").write_text(own(version="2"))
    with pytest.raises(ConfigError, match="cannot be read together"):
        read_board("sop")


def test_a_leaderboards_folder_where_one_works_replaces_the_shipped_one(home):
    Path("leaderboards").mkdir()
    Path("leaderboards/sop.toml").write_text(own())
    assert [r.method for r in read_board("sop").rows] == ["mine"]
    with pytest.raises(UnknownName, match="did you mean 'inat18-base'"):
        read_board("inat-base")


# the shipped rows

SHIPPED = sorted((Path(__file__).parents[2] / "leaderboards").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_leaderboard_is_named_after_its_file_has_a_leader_and_rows_in_order_of_year(path):
    shipped = read_board_file(path)
    assert shipped.dataset == path.stem
    assert rank(shipped, shipped.metric)[0].place == 1
    assert [r.year or 9999 for r in shipped.rows] == sorted(r.year or 9999 for r in shipped.rows)


def test_every_published_row_is_there_and_no_other():
    counts = Counter(
        (r.paper.citation, path.stem)
        for path in SHIPPED
        for r in read_board_file(path).rows
        if r.paper
    )
    expected = {
        (paper, name): n
        for papers in (PUBLISHED, LATER)
        for paper, of in papers.items()
        for name, n in of.items()
    }
    assert counts == expected
    assert [sum(of.values()) for of in PUBLISHED.values()] == [83, 168, 78, 60]
    assert sum(sum(of.values()) for of in LATER.values()) == 332


def test_only_work_beyond_the_four_papers_is_marked_as_later():
    later = {
        key: citation.later
        for path in SHIPPED
        for key, citation in read_board_file(path).citations.items()
    }
    assert later == {key: key in LATER for key in (*PUBLISHED, *LATER)}


def value(name, method, metric, table):
    scores = [
        r.scores
        for r in read_board(name).rows
        if r.method == method and r.source.endswith(table) and metric in r.scores
    ]
    assert len(scores) == 1, f"{len(scores)} rows of {method} in {table}"
    return str(scores[0][metric])


@pytest.mark.parametrize(
    ("name", "method", "table", "metric", "printed"),
    [
        ("sop", "HAPPIER", "HAPPIER, ECCV 2022, Tab. 1", "H-AP", "59.4"),
        ("inat18-base", "HAPPIER", "HAPPIER, ECCV 2022, Tab. 1", "H-AP", "54.3"),
        ("inat18-full", "HAPPIER", "HAPPIER, ECCV 2022, Tab. 1", "H-AP", "47.9"),
        ("dyml-vehicle", "HAPPIER", "HAPPIER, ECCV 2022, Tab. 2", "AP", "37.0"),
        ("dyml-animal", "HAPPIER", "HAPPIER, ECCV 2022, Tab. 2", "AP", "43.8"),
        ("dyml-product", "HAPPIER", "HAPPIER, ECCV 2022, Tab. 2", "AP", "38.0"),
        ("dyml-product", "TL_SH", "HAPPIER, ECCV 2022, Tab. 2", "AP", "36.32"),
        ("hgldv2", "HAPPIER", "SupRank, TPAMI 2025, Tab. VII", "H-AP", "38.8"),
        ("hgldv2", "HAPPIER", "SupRank, TPAMI 2025, Tab. VII", "ASI", "83.8"),
        ("hgldv2", "HAPPIER_F", "SupRank, TPAMI 2025, Tab. VII", "mAP@100", "43.7"),
        ("sop", "Sum-TL_SH", "SupRank, TPAMI 2025, Tab. V", "AP", "57.6"),
        ("sop", "Smooth-AP", "SupRank, TPAMI 2025, Tab. V", "R@1", "80.9"),
        ("sop", "Smooth-AP", "SupRank, TPAMI 2025, Tab. IX", "R@1", "81.3"),
        ("sop", "HAPPIER_F", "HAPPIER, ECCV 2022, Tab. 3", "AP/super_class", "36.0"),
        ("inat18-base", "HAPPIER_F", "HAPPIER, ECCV 2022, Tab. 3", "AP/supercategory", "78.8"),
        ("inat18-base", "HAPPIER_F", "SupRank, TPAMI 2025, Tab. IX", "AP/supercategory", "85.1"),
        ("inat18-base", "HAPPIER, trained on sum-wAP", "HAPPIER, ECCV 2022, Tab. 6", "wAP", "40.5"),
        ("inat18-base", "ROADMAP", "ROADMAP, NeurIPS 2021, Tab. 1", "mAP@R", "25.1"),
        ("inat18-full", "CSL", "HAPPIER, ECCV 2022, Tab. 4", "AP/kingdom", "91.3"),
        ("inat18-full", "HAPPIER_F", "SupRank, TPAMI 2025, Tab. VI", "AP/family", "38.8"),
        ("cub200", "SoftBin* (re-run)", "ROADMAP, NeurIPS 2021, Tab. 4", "R@2", "73.14"),
        ("cub200", "RaMBO log log", "RaMBO, CVPR 2020, Tab. 3", "R@8", "90.6"),
        ("cub200", "RaMBO, no margin", "RaMBO, CVPR 2020, Tab. 7", "R@1", "63.2"),
        ("inshop", "FastAP-Matlab", "RaMBO, CVPR 2020, Tab. 4", "R@50", "99.1"),
        ("sop", "Contrastive", "RaMBO, CVPR 2020, Tab. 2", "R@1000", "89.1"),
    ],
)
def test_a_hand_checked_value_is_as_printed(name, method, table, metric, printed):
    assert value(name, method, metric, table) == printed


@pytest.mark.parametrize(
    ("name", "method", "table", "said"),
    [
        ("sop", "Smooth-AP", "Tab. V", "81.3 / 61.7"),
        ("inat18-base", "NCA++", "Tab. V", "likely copy error"),
        ("inat18-base", "HAPPIER_F", "Tab. IX", "71.0/78.8 in ECCV"),
        ("inat18-full", "HAPPIER_F", "Tab. V", "alpha = 3"),
        ("inat18-base", "SoftBin* (re-run)", "Tab. 4", "plausible typo"),
        ("hgldv2", "HAPPIER", "Tab. VII", "38.8 - 37.0 = 1.8"),
        ("dyml-product", "TL_SH", "Tab. 2", "36.32"),
        ("inshop", "FastAP-Python", "Tab. 4", "question marks"),
    ],
)
def test_a_known_disagreement_stays_with_its_row(name, method, table, said):
    doubts = [
        r.paper.doubt
        for r in read_board(name).rows
        if r.method == method and r.paper and r.paper.table == table and r.paper.doubt
    ]
    assert any(said in doubt for doubt in doubts)


def test_clcd_is_ranked_by_neither_its_asi_nor_its_map():
    for metric in ("ASI", "AP"):
        clcd = [
            s
            for s in rank(read_board("dyml-animal"), metric)
            if s.rows[0].method.startswith("CLCD")
        ]
        assert clcd
        assert all(standing.place is None for standing in clcd)


def test_published_h_ap_on_inat_base_is_the_weighted_mean_of_its_aps_but_for_the_doubted_rows():
    """H-AP at L = 2 is (2·AP + AP/supercategory)/3 up to the smallness of the fine classes; it
    tells a misprint.
    """
    rows = read_board("inat18-base").rows
    h_ap = {r.method: r.scores["H-AP"] for r in rows if r.source == "HAPPIER, ECCV 2022, Tab. 1"}
    aps = {
        r.method.replace("TL_SH", "Triplet SH"): r.scores
        for r in rows
        if r.source == "HAPPIER, ECCV 2022, Tab. 3"
    }
    shared = h_ap.keys() & aps.keys()
    assert len(shared) == 7
    for method in shared:
        assert abs(
            (2 * aps[method]["AP"] + aps[method]["AP/supercategory"]) / 3 - h_ap[method]
        ) < Decimal("0.5")


def test_a_run_says_its_hash_and_date_as_source():
    run = RunProvenance(
        sha256="ab" * 32,
        file="e",
        signature="s",
        hbench="0",
        dataset_digest="d",
        date="2026-01-02",
        queries=1,
    )
    assert Row(method="m", scores={"AP": Decimal(1)}, run=run).source == "run abababab, 2026-01-02"


def test_the_row_in_the_readme_is_a_row_of_the_shipped_file():
    readme = (Path(__file__).parents[2] / "leaderboards" / "README.md").read_text(encoding="utf-8")
    block = readme.split("```toml\n")[1].split("```")[0]
    head = HEAD.replace("genus", "super_class").replace("Me, 2026", "HAPPIER, ECCV 2022")
    assert board(block, head=head).rows[0] in read_board("sop").rows


def test_a_metric_that_hbench_computes_is_never_foreign():
    for metric in ("H-AP", "R@1", "AP/genus", "h-ap", "H AP", "map@10"):
        with pytest.raises(ConfigError, match="hbench computes"):
            board(row("a"), head=HEAD + f'[foreign_metrics]\n"{metric}" = "of boxes"\n')


def test_a_row_under_other_conditions_has_no_place():
    """They are shown below the others, whatever their scores."""
    other = (
        "ties:optimistic",
        "rel:alpha=3",
        "rel:inverse",
        "protocol:paper",
        "left-out:3(abc)",
        "tree:mine",
        "toy@2",
    )
    parts = (
        "ties:pessimistic",
        "rel:alpha=1",
        "rel:alpha=1",
        "protocol:official",
        "hbench:0.1",
        "hbench:0.1",
        "toy@1",
    )
    for made, part in zip(other, parts, strict=True):
        text = RUN.replace(part, f"{part}|{made}" if part.startswith("hbench") else made)
        places = rank(board(row("a"), row("b", text, scores='{ "H-AP" = 99.0 }')), "H-AP")
        assert [(each.place, each.rows[0].method) for each in places] == [(1, "a"), (None, "b")], (
            made
        )
    same = rank(
        board(row("a"), row("b", RUN.replace("alpha=1", "alpha=1.0"), scores='{ "H-AP" = 99.0 }')),
        "H-AP",
    )
    assert same[0].rows[0].method == "b"


# leaderboards and datasets speak of the same things

SHARED = sorted({path.stem for path in SHIPPED} & set(specs))


def test_the_papers_benchmarks_have_a_leaderboard_and_a_dataset_of_the_same_levels():
    assert {"sop", "inat18-base", "inat18-full", "cub200", "inshop", "hgldv2", *DYML} <= set(SHARED)
    assert {name: tuple(read_board(name).levels) for name in SHARED} == {
        name: tuple(specs[name].levels) for name in SHARED
    }


def test_the_shipped_rows_of_the_embedded_benchmark_are_of_its_items_as_they_are_now():
    (shipped,) = (read_board_file(path) for path in SHIPPED if path.stem == "glyphs")
    assert {row.run.dataset_digest for row in shipped.rows if row.run} == {
        digest_of(load("glyphs"))
    }
    assert all(row.run for row in shipped.rows)
