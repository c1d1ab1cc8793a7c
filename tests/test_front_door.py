"""What `import hbench` offers beside scoring: lists of names, comparing, leaderboards, short
pictures of long things.
"""

import inspect
import pydoc
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import hbench
from hbench.losses import build_loss
from hbench.submissions import embeddings
from tests.training import small_glyphs


@pytest.fixture(scope="module")
def reports():
    """A good and a bad model of 12 species in 4 genera."""
    rng = np.random.default_rng(0)
    species = np.arange(240) % 12
    labels, centres = np.stack([species // 3, species], axis=1), np.eye(12)[species]
    vectors = [centres + noise * rng.normal(size=centres.shape) for noise in (0.3, 0.9)]
    return [hbench.score(each, labels, level_names=["genus", "species"]) for each in vectors]


def test_names_are_listed_by_pattern():
    assert hbench.list_datasets("inat18*") == ["inat18-base", "inat18-full"]
    assert {"glyphs", "sop"} <= set(hbench.list_datasets()) & set(hbench.list_leaderboards())
    assert hbench.list_metrics("*NDCG*") == ["NDCG", "NDCG@k"]
    assert "sup_hap" in hbench.list_losses("sup_*")
    assert all(name.startswith("sop-") for name in hbench.list_recipes("sop-*"))


def test_two_reports_are_compared_in_memory_as_their_files_are(reports, tmp_path):
    good, bad = reports
    for name, report in (("good", good), ("bad", bad)):
        report.write(tmp_path / f"{name}.json")
        report.write_by_query(tmp_path / f"{name}.by-query.parquet")
    compared = hbench.compare(good, bad, metrics="H-AP,R@1")
    by_files = hbench.compare(
        tmp_path / "good.json", str(tmp_path / "bad.json"), metrics=["H-AP", "R@1"]
    )
    assert list(compared) == list(by_files)
    assert (compared.methods, by_files.methods) == (("first", "second"), ("good", "bad"))
    assert compared["R@1"].difference == pytest.approx(good.scores["R@1"] - bad.scores["R@1"])
    assert compared.to_pandas().loc["H-AP", "difference"] == compared["H-AP"].difference
    assert "over 12 classes of the level species" in repr(compared)
    assert hbench.compare(good, bad, unit="genus")["H-AP"].units == 4


def test_two_reports_of_one_method_are_told_apart_by_their_files(reports, tmp_path):
    for folder, report in zip(("one", "two"), reports, strict=True):
        named = replace(report, document=report.document.model_copy(update={"method": "HAPPIER"}))
        named.write(tmp_path / folder / "report.json")
        named.write_by_query(tmp_path / folder / "report.by-query.parquet")
    files = [tmp_path / folder / "report.json" for folder in ("one", "two")]
    expected = "HAPPIER (one/report)", "HAPPIER (two/report)"
    assert hbench.compare(*files, metrics="H-AP").methods == expected
    same = hbench.compare(files[0], files[0], metrics="H-AP").methods
    assert same == ("HAPPIER (first)", "HAPPIER (second)")


def test_own_data_is_built_embedded_and_trained_on_by_functions(tmp_path):
    data = hbench.load("glyphs")
    names = [
        [tree_names[i] for tree_names, i in zip(data.train.tree.names, row, strict=True)]
        for row in data.train.labels
    ]
    table = [["item", *data.levels], *([f"{n}.png", *row] for n, row in enumerate(names[:40]))]
    (tmp_path / "letters.csv").write_text("\n".join(",".join(row) for row in table))
    remarks = []
    source = hbench.OwnSource(str(tmp_path / "letters.csv"), ", ".join(data.levels))
    for unfit in ({"copies": "frist"}, {"background": "whiteish"}):
        with pytest.raises(hbench.UsageError):
            hbench.OwnSource("letters.csv", **unfit)
    built = hbench.build(source=source, out=tmp_path / "letters", on_remark=remarks.append)
    assert (len(built.tests["test"]), built.levels) == (40, data.levels)
    assert any("0 of 40 images are there" in remark for remark in remarks)
    with pytest.raises(hbench.UsageError):
        hbench.build(source=source, out=tmp_path / "letters")
    few = small_glyphs()
    pictured = replace(few.tests["test"], picture=data.tests["test"].picture)
    few = replace(few, tests={"test": pictured})
    file = hbench.embed(
        "torchvision:resnet18",
        few,
        tmp_path / "e.npz",
        weights="random",
        size=32,
        device="cpu",
    )
    assert 0 < hbench.evaluate(file, few, metrics="H-AP").scores["H-AP"] < 1
    with pytest.raises(hbench.UnknownName):
        hbench.train.train("glyphs-hapier", tmp_path / "run")


def test_arrays_with_ids_are_scored_on_a_dataset_as_their_file_is(tmp_path):
    test = hbench.load("glyphs").tests["test"]
    vectors = np.random.default_rng(0).normal(size=(len(test), 8)).astype(np.float32)
    order = np.random.default_rng(1).permutation(len(test))
    embeddings.write(tmp_path / "e.npz", test.items.tolist(), vectors)
    by_file = hbench.evaluate(tmp_path / "e.npz", "glyphs", metrics=["H-AP", "R@1"])
    for kind in (np.asarray, torch.from_numpy):
        by_arrays = hbench.evaluate(
            kind(vectors[order]), "glyphs", ids=test.items[order].tolist(), metrics=["H-AP", "R@1"]
        )
        assert dict(by_arrays.scores) == dict(by_file.scores)
        assert by_arrays.signature == by_file.signature
    for ids in (test.items[1:].tolist(), [f"no/{item}" for item in test.items]):
        with pytest.raises(hbench.SubmissionError):
            hbench.evaluate(vectors, "glyphs", ids=ids)
    with pytest.raises(hbench.UsageError, match="ids="):
        hbench.evaluate(vectors, "glyphs")


def test_what_cannot_be_compared_is_refused(reports):
    other = hbench.score(
        np.eye(4), np.array([[0, 0], [0, 0], [1, 1], [1, 1]]), level_names=["genus", "species"]
    )
    vectors, labels = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4
    one, two = (
        hbench.score(vectors, each, metrics="R@1")
        for each in (labels, np.roll(labels, 20) // 2 * 2)
    )
    # the same classes, of other items
    moved = hbench.score(vectors, np.sort(labels), metrics="R@1")
    for first, second in ((reports[0], other), (one, two), (one, moved)):
        with pytest.raises(hbench.ComparisonError):
            hbench.compare(first, second)
    with pytest.raises(hbench.UnknownName):
        hbench.compare(*reports, metrics="HD@1")
    with pytest.raises(hbench.UnknownName):
        hbench.compare(*reports)["HD@1"]
    with pytest.raises(hbench.SubmissionError):
        hbench.leaderboard("sop").place(reports[0])


def test_a_leaderboard_is_a_table_with_places():
    board = hbench.leaderboard("sop")
    table = board.to_pandas()
    assert len(table) == len(board.rows)
    assert table["H-AP"].dropna().is_monotonic_decreasing
    assert table.iloc[0]["method"] == "HAPPIER"
    assert "rows, ranked by H-AP" in repr(board) == str(board)


def test_long_things_have_short_pictures():
    manifest = hbench.load("glyphs").tests["test"]
    shown = [
        manifest.tree,
        manifest,
        hbench.load("glyphs"),
        hbench.leaderboard("sop"),
        build_loss("sup_hap", tau=0.5),
    ]
    assert all(len(repr(each)) < 300 for each in shown)
    assert repr(shown[2]).startswith("<Dataset glyphs@")
    assert "11,164 queries" in repr(manifest)
    assert "tau=0.5" in repr(shown[-1])
    assert float(shown[-1](torch.eye(2), torch.tensor([[0, 0], [0, 0]]))) >= 0


def test_a_manifest_is_a_table():
    manifest = hbench.load("glyphs").tests["test"]
    table = manifest.to_pandas()
    assert list(table.columns) == ["item", *manifest.levels, "query", "gallery"]
    assert table["script"].nunique() == 5
    assert table["item"].tolist() == manifest.items.tolist()


def test_every_public_name_is_there():
    assert all(getattr(hbench, name) is not None for name in dir(hbench))
    with pytest.raises(AttributeError):
        hbench.no_such_name  # noqa: B018


def test_the_help_of_the_package_is_read_in_one_sitting_and_names_whatever_is_public():
    text = pydoc.plain(pydoc.render_doc(hbench))
    assert len(text.splitlines()) <= 800
    for name in set(dir(hbench)) - {"__version__"}:
        assert re.search(rf"\b{name}\b", text), name
    functions = [name for name in dir(hbench) if inspect.isfunction(getattr(hbench, name))]
    assert [name for name in functions if not re.search(rf"^    {name}(\(| = )", text, re.M)] == []


def public():
    """The functions and classes of hbench, but for its errors, which have the parts of their base."""
    values = {name: getattr(hbench, name) for name in dir(hbench)}
    for name, value in values.items():
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if callable(value) and not (is_error and value is not hbench.HBenchError):
            yield pytest.param(value, id=name)


@pytest.mark.parametrize("value", list(public()))
def test_a_public_docstring_has_a_line_for_every_argument(value):
    text = inspect.getdoc(value)
    section = re.search(r"^(?:Args|Attributes):\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section
    told = re.findall(r"^    \**(\w+):", section[1], re.MULTILINE)
    assert told == list(getattr(value, "model_fields", inspect.signature(value).parameters))


CANNOT_FAIL = {"levels_of_pairs", *(name for name in dir(hbench) if name.startswith("list_"))}


def documented():
    """What people call: the functions of hbench and of its metrics, and the methods of its classes
    that are not errors.
    """
    metrics = {name: getattr(hbench.metrics, name) for name in hbench.metrics.__all__}
    for name, value in {
        **{name: getattr(hbench, name) for name in dir(hbench)},
        **metrics,
    }.items():
        if inspect.isfunction(value):
            yield pytest.param(value, id=name)
        elif inspect.isclass(value) and not issubclass(value, Exception):
            methods = inspect.getmembers(value, inspect.isroutine)
            yield from (
                pytest.param(method, id=f"{name}.{method_name}")
                for method_name, method in methods
                if not method_name.startswith("_")
                and getattr(method, "__qualname__", "").startswith(f"{name}.")
            )
    yield pytest.param(build_loss, id="losses.build_loss")
    yield pytest.param(hbench.train.train, id="train.train")


@pytest.mark.parametrize("function", list(documented()))
def test_a_public_docstring_names_every_argument_and_the_errors(function):
    text = inspect.getdoc(function)
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    assert text
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]
    if "." not in function.__qualname__ and function.__name__ not in CANNOT_FAIL:
        assert re.search("[Rr]aises|errors", text)
