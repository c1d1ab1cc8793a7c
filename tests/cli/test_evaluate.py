"""hbench evaluate and compare as a person meets them: files in, tables and files out, one clear
message for bad input."""

import csv
import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hbench.datasets import Dataset, Protocol, manifest, save
from hbench.evaluation.arrays import score
from hbench.evaluation.evaluate import evaluate
from hbench.records.document import Document
from hbench.submissions import embeddings
from tests import zoo
from tests.command_line import in_folder

GOOD = [sys.executable, "-m", "hbench", "evaluate", "good.parquet", "-d", "zoo.parquet"]
SPECIES = [("felidae", "cat"), ("felidae", "lion"), ("canidae", "dog"), ("canidae", "wolf")]


@pytest.fixture(scope="module")
def copied_labels(tmp_path_factory):
    """A folder with a table, and vectors that are its labels: doubts and notes of several kinds."""
    folder = tmp_path_factory.mktemp("copied-labels")
    rows = [(f"i{n}", *SPECIES[n % 4]) for n in range(120)]
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("item", "family", "species"), *rows])
    embeddings.write(
        folder / "labels.parquet", [row[0] for row in rows], np.eye(4)[np.arange(120) % 4]
    )
    return folder


def remarks(folder, *words):
    command = ["evaluate", "labels.parquet", "-d", "table.csv", *words]
    done = subprocess.run(
        [sys.executable, "-m", "hbench", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()


def test_of_many_remarks_two_are_printed_and_the_others_counted(copied_labels):
    first, second, third, *_ = remarks(copied_labels, "-o", "report.json")
    report = json.loads((copied_labels / "report.json").read_text())
    lines = [f"doubt: {each}" for each in report["doubts"]]
    lines += [f"note: {each}" for each in report["warnings"]]
    assert [first, second] == lines[:2]  # what may be wrong, before what was read
    left = len(lines) - 2 + len(report["read"])
    assert left > 2
    assert f"{left} more" in third
    assert "--remarks" in third


def test_every_remark_is_printed_where_it_is_asked_for(copied_labels):
    remarks(copied_labels, "-o", "report.json")
    report = json.loads((copied_labels / "report.json").read_text())
    shown = remarks(copied_labels, "--remarks")
    said = [f"doubt: {each}" for each in report["doubts"]]
    said += [f"note: {each}" for each in report["warnings"]]
    assert shown[: len(said)] == said
    assert shown[len(said)].startswith("read: table.csv")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A dataset of 4 species in 2 families, 10 images each, and two embedding files of it, one
    better than the other.
    """
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    rows = [SPECIES[i % 4] for i in range(40)]
    items = [f"{family}/{species}-{i}.jpg" for i, (family, species) in enumerate(rows)]
    zoo = manifest.from_names(items, rows, levels=["family", "species"])
    zoo.write(folder / "zoo.parquet")
    centres = rng.normal(size=(4, 8))
    for name, noise in (("good", 0.4), ("bad", 1.5)):
        vectors = (centres[np.arange(40) % 4] + noise * rng.normal(size=(40, 8))).astype(np.float32)
        order = rng.permutation(40)
        embeddings.write(folder / f"{name}.parquet", [items[i] for i in order], vectors[order])
        np.savez(folder / f"{name}.npz", ids=np.array(items), vectors=vectors)
    return folder


@pytest.fixture(scope="module")
def evaluated(data):
    for name in ("good", "bad"):
        in_folder(
            data,
            "evaluate",
            f"{name}.parquet",
            "-d",
            "zoo.parquet",
            "--method",
            name,
            "-o",
            f"{name}.json",
            "--by-query",
            f"{name}.by-query.parquet",
            "--row",
            f"{name}.toml",
        )
    return data


def of_good(folder, *more, code=0):
    return in_folder(folder, "evaluate", "good.parquet", "-d", "zoo.parquet", *more, code=code)


def scores_of(folder, *words):
    return json.loads(in_folder(folder, "evaluate", *words, "-d", "zoo.parquet", "--json").stdout)[
        "scores"
    ]


def test_a_file_is_scored_as_its_vectors_are_whatever_the_order_of_its_rows(evaluated):
    document = Document.model_validate_json((evaluated / "good.json").read_text())
    zoo = manifest.read(evaluated / "zoo.parquet")
    with np.load(evaluated / "good.npz") as arrays:
        expected = score(arrays["vectors"], zoo.labels, level_names=zoo.levels)
    assert document.scores["H-AP"] == expected.document.scores["H-AP"]
    by_query = pq.read_table(evaluated / "good.by-query.parquet")
    assert by_query["query"].to_pylist() == zoo.items.tolist()
    assert np.array_equal(by_query["H-AP"].to_numpy(), expected.values["H-AP"])


def test_a_report_names_its_method_and_the_dimension_of_its_file(evaluated):
    document = Document.model_validate_json((evaluated / "good.json").read_text())
    assert document.embedding.dim == 8
    assert document.method == "good"


def test_an_evaluation_writes_the_row_of_a_leaderboard(evaluated):
    row = (evaluated / "good.toml").read_text()
    assert row.startswith("[[row]]")
    assert all(part in row for part in ("excluded-by-id", "content ="))


def test_data_goes_to_stdout_and_remarks_to_stderr(data):
    assert scores_of(data, "good.parquet")["R@1"]["queries"] == 40
    table = of_good(data, "--metrics", "H-AP,AP,AP/family").stdout
    assert all(word in table for word in ("H-AP", "family", "sim:cosine|self:excluded-by-id"))
    assert "zoo" in table.splitlines()[-1]
    for form, start in (
        ("csv", "metric,value,low"),
        ("markdown", "**good.parquet on zoo"),
        ("latex", "%"),
    ):
        shown = of_good(data, "--metrics", "H-AP", "--format", form).stdout
        assert shown.startswith(start)
        assert "H-AP" in shown


def test_queries_and_gallery_may_lie_in_files_of_their_own(data):
    two = ("--query", "good.npz", "--gallery", "good.parquet")
    assert scores_of(data, *two) == scores_of(data, "good.parquet")


def test_a_ranking_gives_the_metrics_of_its_depth_and_refuses_the_others_by_name(data):
    zoo = manifest.read(data / "zoo.parquet")
    with np.load(data / "good.npz") as arrays:
        vectors = arrays["vectors"].astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    products = vectors @ vectors.T
    np.fill_diagonal(products, -2)
    best = np.argsort(-products, axis=1, kind="stable")[:, :10]
    lines = [f"{zoo.items[q]},{' '.join(zoo.items[row])}" for q, row in enumerate(best)]
    (data / "ranking.csv").write_text("id,images\n" + "\n".join(lines) + "\n")
    run = in_folder(data, "evaluate", "ranking.csv", "-d", "zoo.parquet", "--json")
    scores = json.loads(run.stdout)["scores"]
    assert scores["R@1"]["value"] == scores_of(data, "good.parquet")["R@1"]["value"]
    assert "H-AP" not in scores
    assert "cannot give H-AP" in run.stderr
    refused = in_folder(
        data, "evaluate", "ranking.csv", "-d", "zoo.parquet", "--metrics", "H-AP,R@1", code=3
    )
    assert "cannot give H-AP" in refused.stderr


def test_check_lists_every_problem_at_once_and_writes_nothing(data, tmp_path):
    zoo = manifest.read(data / "zoo.parquet")
    vectors = np.ones((40, 4), np.float32)
    vectors[3], vectors[5, 0], vectors[6, 0] = 0, np.nan, np.inf
    ids = ["nobody.jpg", zoo.items[2], *zoo.items[2:]]
    np.savez(tmp_path / "bad.npz", ids=np.array(ids), vectors=vectors)
    run = in_folder(tmp_path, "evaluate", "bad.npz", "-d", data / "zoo.parquet", "--check", code=3)
    for fault in ("missing", "unknown", "duplicate", "NaN", "Inf", "zero"):
        assert fault in run.stderr, run.stderr
    again = in_folder(
        tmp_path, "evaluate", "bad.npz", "-d", data / "zoo.parquet", "-o", "report.json", code=3
    )
    assert "missing" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npz"]
    assert "can be scored" in of_good(data, "--check").stderr
    assert json.loads(of_good(data, "--check", "--json").stdout)["signature"].startswith("zoo@")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["good.parquet", "-d", "zoo.parquet", "--metrics", "MAP@R"], 2, "did you mean 'mAP@R'"),
        (
            ["good.parquet", "-d", "zoo.parquet", "--metrics", "AP/famly"],
            2,
            "did you mean 'family'",
        ),
        (
            ["good.parquet", "-d", "zoo.parquet", "--protocol", "oficial"],
            2,
            "did you mean 'official'",
        ),
        (["good.parquet", "-d", "zoo.parquet", "--ties", "nonsense"], 2, "'pessimistic'"),
        (
            ["good.parquet", "-d", "zoo.parquet", "--similarity", "cosin"],
            2,
            "did you mean 'cosine'",
        ),
        (["good.parquet", "-d", "glyph"], 2, "did you mean 'glyphs'"),
        (["nowhere.parquet", "-d", "zoo.parquet"], 3, "nowhere.parquet"),
        (["good.parquet"], 2, "Missing option '--dataset'"),
        (["-d", "zoo.parquet"], 2, "Give either one FILE"),
        (["good.parquet", "-d", "zoo.parquet", "--metrics", ","], 2, "no metric is named"),
        (
            ["good.parquet", "-d", "zoo.parquet", "--check", "--metrics", "MAP@R"],
            2,
            "did you mean 'mAP@R'",
        ),
        (["good.parquet", "-d", "zoo.parquet", "-o", "."], 2, ". is a folder"),
        (
            ["good.parquet", "-d", "zoo.parquet", "-o", "good.npz/x.json"],
            2,
            "good.npz/x.json cannot be written",
        ),
        (
            ["good.parquet", "-d", "zoo.parquet", "--by-query", "good.npz/x"],
            2,
            "good.npz/x cannot be written",
        ),
        (["good.parquet", "-d", "zoo.parquet", "--row", "row.toml"], 2, "--row needs --method"),
        (["good.parquet", "-d", "zoo.parquet", "--blocks", "1/2"], 2, "--resume DIR"),
        (
            ["good.parquet", "-d", "zoo.parquet", "--blocks", "1/2", "--resume", "k", "-o", "x"],
            2,
            "without --blocks",
        ),
        (["good.parquet", "-d", "zoo.parquet", "--max-memory", "1K"], 2, "KB at least"),
        (["good.parquet", "-d", "nowhere.parquet"], 4, "nowhere.parquet"),
    ],
)
def test_a_mistake_gets_one_clear_message_and_its_exit_code(data, arguments, code, message):
    run = in_folder(data, "evaluate", *arguments, code=code)
    assert message in run.stderr
    assert run.stdout == ""


def test_compare_says_how_much_better_and_how_sure(evaluated):
    """Four classes have sixteen patterns of signs, two of which are as far from 0; forty queries
    leave no doubt.
    """
    files = ("--by-query", "good.by-query.parquet", "bad.by-query.parquet")
    p = {}
    for unit in ("species", "query"):
        run = in_folder(
            evaluated, "compare", "good.json", "bad.json", "--json", "--unit", unit, *files
        )
        h_ap = next(
            each for each in json.loads(run.stdout)["differences"] if each["metric"] == "H-AP"
        )
        assert 0 < h_ap["low"] < h_ap["difference"] < h_ap["high"]
        assert h_ap["difference"] == pytest.approx(h_ap["first"] - h_ap["second"])
        p[unit] = h_ap["p"]
    assert p["species"] == 2 / 16
    assert p["query"] < 0.001
    table = in_folder(evaluated, "compare", "good.json", "bad.json", "--metrics", "H-AP", *files)
    assert "over 4 classes of the level species" in table.stdout
    assert "R@1" not in table.stdout


def test_the_csv_of_a_comparison_holds_the_numbers_of_its_json(evaluated):
    found = json.loads(in_folder(evaluated, "compare", "good.json", "bad.json", "--json").stdout)
    rows = list(
        csv.DictReader(
            io.StringIO(in_folder(evaluated, "compare", "good.json", "bad.json", "--csv").stdout)
        )
    )
    assert {row["signature"] for row in rows} == {found["signature"]}
    assert [(row["first_name"], row["second_name"]) for row in rows] == [("good", "bad")] * len(
        rows
    )
    for row, difference in zip(rows, found["differences"], strict=True):
        assert row.pop("metric") == difference.pop("metric")
        assert {
            name: None if row[name] == "" else float(row[name]) for name in difference
        } == difference


def test_compare_refuses_other_conditions_and_missing_files(evaluated):
    def refused(code, *words):
        return in_folder(evaluated, "compare", *words, code=code).stderr

    of_good(evaluated, "--ties", "optimistic", "-o", "other.json")
    assert "signatures differ" in refused(7, "good.json", "other.json")
    foreign = ("--by-query", "good.parquet", "bad.parquet")
    assert "does not hold this report's per-query values" in refused(
        3, "good.json", "bad.json", *foreign
    )
    (evaluated / "alone.json").write_text((evaluated / "good.json").read_text())
    assert "--by-query" in refused(3, "alone.json", "bad.json")
    assert "unknown metric of both reports 'P@5'" in refused(
        2, "good.json", "bad.json", "--metrics", "H-AP, P@5"
    )
    (evaluated / "empty.json").write_text("{}")
    assert "not a report" in refused(3, "good.json", "empty.json")


def test_tables_of_an_earlier_evaluation_are_refused_with_the_command_that_makes_them_anew(
    data, tmp_path
):
    words = ("-d", data / "zoo.parquet", "--metrics", "H-AP")
    in_folder(tmp_path, "evaluate", data / "bad.npz", *words, "-o", "run.json", "--top-k", "5")
    in_folder(
        tmp_path,
        "evaluate",
        data / "good.npz",
        *words,
        "-o",
        "run.json",
        "--by-query",
        "elsewhere.parquet",
    )
    in_folder(tmp_path, "evaluate", data / "good.npz", *words, "-o", "good.json", "--top-k", "5")
    refused = in_folder(tmp_path, "compare", "run.json", "good.json", code=3).stderr
    assert "run.by-query.parquet does not hold this report's per-query values" in refused
    assert "hbench evaluate good.npz" in refused
    in_folder(
        tmp_path,
        "evaluate",
        data / "good.npz",
        *words,
        "-o",
        "run.json",
        "--by-query",
        "run.by-query.parquet",
    )
    refused = in_folder(
        tmp_path, "report", "run.json", "-d", data / "zoo.parquet", "-o", "p", code=3
    ).stderr
    assert "run.top-k.parquet" in refused


def test_vectors_of_the_caller_stay_as_they_are(tmp_path):
    zoo.make(tmp_path)
    file, test = embeddings.read(tmp_path / zoo.FILE), manifest.read(tmp_path / zoo.DATASET)
    embeddings.write(tmp_path / "zoo32.parquet", file.ids, file.vectors.astype(np.float32))
    given = embeddings.read(tmp_path / "zoo32.parquet")
    for tests in (
        {"test": test},
        {"one": test, "two": dataclasses.replace(test, query=np.arange(len(test)) % 7 > 0)},
    ):
        data, before = Dataset("zoo", "1", Protocol(), None, tests), given.vectors.copy()
        stayed = evaluate(given, data)
        assert np.array_equal(given.vectors, before)
        # whose vectors may be moved
        assert zoo.same(evaluate(tmp_path / "zoo32.parquet", data), stayed)


def test_the_demo_leaves_a_report_a_picture_and_the_embedding_file(demo):
    out = demo.folder / "hbench-demo"
    written = {path.name for path in out.iterdir()}
    kept = {
        "glyphs-pca.parquet",
        "glyphs-pca.json",
        "glyphs-pca.by-query.parquet",
        "glyphs-pca.top-k.parquet",
    }
    assert written == kept | {"glyphs-pca.png", "pages"}
    assert (out / "glyphs-pca.png").read_bytes().startswith(b"\x89PNG")
    assert "H-AP" in demo.stdout
    assert "Next:" in demo.stderr


def test_the_demo_names_the_page_to_open(demo):
    page = demo.folder / demo.stderr.rstrip().rpartition("Open this page: ")[2]
    assert "glyphs" in page.read_text(encoding="utf-8")
    assert {"explore.html", "tree.html", "map.html"} <= {
        path.name for path in page.parent.iterdir()
    }


def test_the_report_of_the_demo_has_its_file_and_the_mistakes_of_every_query(demo):
    text = (demo.folder / "hbench-demo" / "glyphs-pca.json").read_text()
    document = Document.model_validate_json(text)
    assert sum(document.mistakes["test"].values()) == document.scores["R@1"].queries
    assert Path(document.embedding.file).name == "glyphs-pca.parquet"


def test_on_a_published_leaderboard_one_run_shows_both_values_and_places_by_the_official_one(
    data, tmp_path
):
    zoo = manifest.read(data / "zoo.parquet")
    tree = dataclasses.replace(zoo.tree, levels=("super_class", "class"))
    test = dataclasses.replace(zoo, tree=tree)
    save(Dataset("sop", "1", Protocol(), None, {"test": test}), tmp_path / "sop")
    run = in_folder(
        data, "evaluate", "good.parquet", "-d", tmp_path / "sop", "-o", tmp_path / "r.json"
    )
    document = Document.model_validate_json((tmp_path / "r.json").read_text())
    paper, official = document.scores["H-AP"].value, document.official["H-AP"].value
    assert paper != official
    assert f"{100 * paper:.2f}" in run.stdout
    assert f"{100 * official:.2f}" in run.stdout
    assert f"H-AP {100 * official:.2f} (official protocol) would be place 1 of" in run.stderr


def test_what_was_asked_for_is_written_before_the_table_meets_a_closed_pipe(data, tmp_path):
    command = [*GOOD, "-o", tmp_path / "r.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=data) as run:
        run.stdout.close()
        output = run.stderr.read().decode()
    assert "Traceback" not in output
    assert Document.model_validate_json((tmp_path / "r.json").read_text()).dataset == "zoo"


@pytest.mark.skipif(
    not Path("/dev/full").is_char_device(), reason="this system has no device that is always full"
)
def test_a_full_disk_behind_stdout_is_one_message(data):
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [*GOOD, "--json"], stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=data
        )
    assert run.returncode == 1
    said, advice = run.stderr.splitlines()[-2:]
    assert said == "hbench: [Errno 28] No space left on device"
    assert "make room" in advice


def test_closed_streams_are_not_terminals(data, tmp_path):
    shell = f"{' '.join(GOOD)} -o {tmp_path}/r.json >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], check=False, cwd=data).returncode == 0
    assert (tmp_path / "r.json").is_file()


def test_a_report_is_placed_only_among_rows_of_its_conditions(data, tmp_path):
    zoo = manifest.read(data / "zoo.parquet")
    save(Dataset("glyphs", "1", Protocol(), None, {"test": zoo}), tmp_path / "glyphs")
    asked = (
        "evaluate",
        "good.parquet",
        "-d",
        tmp_path / "glyphs",
        "--method",
        "mine",
        "-o",
        tmp_path / "r.json",
    )
    assert "(paper protocol) would be place" in in_folder(data, *asked).stderr
    for option, value, reason in (
        ("--protocol", "official", "the report has no scores under the paper protocol"),
        ("--ties", "optimistic", "the report's ties or relevance are not those of the rows"),
    ):
        run = in_folder(data, *asked, option, value)
        assert "would be place" not in run.stderr
        assert f"no place on the glyphs leaderboard: {reason}" in run.stderr
        adding = ("leaderboard", "add", "glyphs", tmp_path / "r.json", "--to", tmp_path / "x.toml")
        assert reason in in_folder(data, *adding, code=3).stderr
    assert not (tmp_path / "x.toml").exists()


def test_evaluation_on_a_torch_device(tmp_path):
    """The dataset is small, since without a card the kernels run in a slow simulator."""
    rows = "".join(f"i{n},{'ab'[n % 2]},s{n % 4}\n" for n in range(12))
    (tmp_path / "own.csv").write_text(f"item,genus,species\n{rows}")
    vectors = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    np.savez(tmp_path / "v.npz", ids=[f"i{n}" for n in range(12)], embeddings=vectors)
    words = ("evaluate", "v.npz", "-d", "own.csv", "--json")
    on_device = in_folder(tmp_path, *words, "--device", "cpu", "--resume", "kept")
    found = json.loads(on_device.stdout)["scores"]
    for name, own in json.loads(in_folder(tmp_path, *words).stdout)["scores"].items():
        assert found[name]["value"] == pytest.approx(own["value"], rel=1e-6)
    # its blocks are not mixed with those of the processors
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["cpu"]


def test_an_unknown_device_and_workers_beside_a_device_are_refused(data):
    assert "no device 'warp'" in of_good(data, "--device", "warp", code=2).stderr
    assert "--workers" in of_good(data, "--device", "cpu", "--workers", "2", code=2).stderr


@pytest.mark.parametrize("option", ["--by-query", "--row", "-o"])
def test_an_option_that_needs_a_file_does_not_take_the_next_option_for_one(data, tmp_path, option):
    shown = in_folder(
        tmp_path,
        "evaluate",
        data / "good.npz",
        "-d",
        data / "zoo.parquet",
        option,
        "--json",
        code=2,
    )
    assert "it needs a file, and the next word is the option --json" in shown.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_report_has_its_values_by_query_beside_it_so_that_compare_works_next(data, tmp_path):
    for name in ("a.json", "b.json"):
        in_folder(tmp_path, "evaluate", data / "good.npz", "-d", data / "zoo.parquet", "-o", name)
    assert (tmp_path / "a.by-query.parquet").exists()
    in_folder(tmp_path, "compare", "a.json", "b.json", "--metrics", "H-AP")


def test_a_folder_of_several_files_is_sent_to_the_verb_for_them(data, tmp_path):
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "a.npz").write_bytes((data / "good.npz").read_bytes())
    shown = in_folder(tmp_path, "evaluate", "many", "-d", data / "zoo.parquet", code=3)
    assert "hbench evaluate-all many" in shown.stderr


def test_a_cut_beyond_the_gallery_is_remarked_on(data, tmp_path):
    shown = in_folder(
        tmp_path,
        "evaluate",
        data / "good.npz",
        "-d",
        data / "zoo.parquet",
        "--metrics",
        "R@1,R@500",
    )
    assert "so R@500 asks only whether there is a positive" in shown.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--metrics", "R@" + "9" * 5000), ("--max-memory", "9" * 400 + "M")]
)
def test_numbers_that_no_list_and_no_memory_has_are_refused_in_a_line(
    data, tmp_path, option, value
):
    shown = in_folder(
        tmp_path, "evaluate", data / "good.npz", "-d", data / "zoo.parquet", option, value, code=2
    )
    assert len(shown.stderr) < 2000
