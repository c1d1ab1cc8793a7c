"""Manifests: their invariants, their digest, and that parquet brings them back."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import DataError, IntegrityError, TreeError
from hbench.datasets import manifest as manifests
from hbench.datasets.manifest import Manifest
from hbench.tree import LabelTree
from hbench.tree.names import class_rows

pytestmark = pytest.mark.fast

LEVELS = ["kingdom", "species"]
NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=5
)


@st.composite
def contents(draw):
    items = draw(
        st.lists(
            NAMES.filter(lambda name: not set(name) & set("/\\.")),
            min_size=1,
            max_size=12,
            unique=True,
        )
    )
    kingdoms = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    rows = []
    for _ in items:
        kingdom = draw(st.sampled_from(kingdoms))
        rows.append((kingdom, f"{kingdom}:{draw(st.sampled_from('abc'))}"))
    query = np.array(draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items))))
    return items, rows, query


def made(items, rows, query):
    return manifests.from_names(items, rows, levels=LEVELS, query=query, gallery=~query)


@settings(max_examples=60, deadline=None)
@given(contents(), st.randoms())
def test_the_digest_is_of_the_content_not_of_its_order_nor_of_how_nodes_are_numbered(
    content, random
):
    items, rows, query = content
    order = list(range(len(items)))
    random.shuffle(order)
    shuffled = made([items[i] for i in order], [rows[i] for i in order], query[order])
    manifest = made(*content)
    assert shuffled.digest == manifest.digest
    backwards = [names[::-1] for names in manifest.tree.names]
    last = np.array([len(names) - 1 for names in manifest.tree.names])
    tree, labels = LabelTree.from_labels(last - manifest.labels, levels=LEVELS, names=backwards)
    assert (
        Manifest(manifest.items, labels, tree, manifest.query, manifest.gallery).digest
        == manifest.digest
    )


@settings(max_examples=60, deadline=None)
@given(contents(), contents())
def test_other_content_has_another_digest(one, other):
    same = sorted(zip(one[0], one[1], one[2], strict=True)) == sorted(
        zip(other[0], other[1], other[2], strict=True)
    )
    assert (made(*one).digest == made(*other).digest) == same


@settings(max_examples=25, deadline=None)
@given(contents())
def test_parquet_brings_a_manifest_back(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "back.parquet"
    manifest = made(*content)
    manifest.write(path)
    back = manifests.read(path, digest=manifest.digest)
    assert back.items.tolist() == content[0]
    assert [class_rows(back.tree)[fine] for fine in back.labels[:, -1]] == content[1]
    assert back.query.tolist() == content[2].tolist()


def test_a_manifest_of_many_row_groups_comes_back(tmp_path):
    rows = [(f"k{i % 7}", f"k{i % 7} s{(i * 37) % 91 * 7 + i % 7}") for i in range(1000)]
    manifest = manifests.from_names([f"{i}" for i in range(1000)], rows, levels=LEVELS)
    manifest.write(tmp_path / "one.parquet")
    table = pq.read_table(tmp_path / "one.parquet")
    pq.write_table(table, tmp_path / "many.parquet", row_group_size=10)
    back = manifests.read(tmp_path / "many.parquet")
    assert back.digest == manifest.digest
    assert np.array_equal(
        back.labels[:, 1] == back.labels[5, 1], manifest.labels[:, 1] == manifest.labels[5, 1]
    )


def test_ignore_groups_are_kept_and_counted_in_the_digest(tmp_path):
    plain = manifests.from_names(["a", "b"], [("x", "y"), ("x", "y")], levels=LEVELS)
    grouped = dataclasses.replace(plain, ignore=np.array([4, -1]))
    grouped.write(tmp_path / "m.parquet")
    assert manifests.read(tmp_path / "m.parquet").ignore.tolist() == [4, -1]
    assert grouped.digest != plain.digest


def test_changed_content_is_found_out(tmp_path):
    path = tmp_path / "m.parquet"
    manifests.from_names(["a", "b"], [("x", "y"), ("x", "z")], levels=LEVELS).write(path)
    table = pq.read_table(path)
    pq.write_table(
        table.set_column(0, "item", [["a", "c"]]).replace_schema_metadata(table.schema.metadata),
        path,
    )
    with pytest.raises(IntegrityError, match="other content than recorded"):
        manifests.read(path)


def test_items_that_are_not_inside_or_not_unique_and_levels_named_as_a_column_are_refused():
    for item in ("a..b", "..a", "a/..b/c", "a//b", "ä/é", "a b", "."):  # unusual, and inside
        assert len(manifests.from_names([item], [("x", "y")], levels=LEVELS)) == 1
    for item, levels, problem in (
        ("", LEVELS, "no name"),
        ("b\0c", LEVELS, "no name"),
        ("a", LEVELS, r"not unique.*\n.*\n.*a"),
        ("b", ["class", "item"], "item cannot be the name of a level"),
    ):
        with pytest.raises(DataError, match=problem):
            manifests.from_names(["a", item], [("x", "y")] * 2, levels=levels)


@pytest.mark.parametrize("item", ["/b", "b/../c", "..", "b\\c"])
def test_items_outside_of_a_folder_are_scored_but_have_no_pictures(item):
    manifest = manifests.from_names(["a", item], [("x", "y")] * 2, levels=LEVELS)
    with pytest.raises(DataError, match="leave its folder"):
        dataclasses.replace(manifest, picture=str)


@pytest.mark.parametrize("size", [0, 4, -50, None])
def test_a_truncated_or_foreign_parquet_file_is_refused(tmp_path, size):
    file = tmp_path / "m.parquet"
    manifests.from_names([str(i) for i in range(500)], [("x", "y")] * 500, levels=LEVELS).write(
        file
    )
    if size is None:
        pq.write_table(pa.table({"item": ["a"]}), file)
    else:
        file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(
        DataError, match="is not a manifest" if size is None else r"m\.parquet cannot be read"
    ):
        manifests.read(file)


@pytest.mark.parametrize("column", ["item", "coarse", "fine", "query", "gallery", "ignore"])
def test_empty_cells_of_a_manifest_without_a_digest_are_refused(tmp_path, column):
    items = [
        ("a", "x", "1", True, True, 0),
        ("b", "x", "2", True, False, 1),
        ("c", "y", "3", False, True, -1),
    ]
    names = ("item", "coarse", "fine", "query", "gallery", "ignore")
    rows = dict(zip(names, map(list, zip(*items, strict=True)), strict=True))
    path = tmp_path / "m.parquet"
    metadata = {"hbench.levels": '["coarse", "fine"]'}
    pq.write_table(pa.table(rows).replace_schema_metadata(metadata), path)
    assert len(manifests.read(path)) == 3
    rows[column] = [rows[column][0], None, rows[column][2]]
    pq.write_table(pa.table(rows).replace_schema_metadata(metadata), path)
    with pytest.raises(DataError, match=f"empty cells in the column {column}"):
        manifests.read(path)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ([[0.0, 0.0], [0.0, 1.0]], "no numbers"),
        ([[0, 0], [0, 7]], "does not have"),
        ([[0, 0], [0, 2]], "no path of the tree"),
        ([[0], [0]], "no numbers"),
    ],
    ids=["floats", "an unknown class", "another parent", "one level"],
)
def test_labels_that_are_no_paths_of_the_tree_are_refused(labels, named):
    tree, _ = LabelTree.from_columns([["a", "a", "b"], ["p", "q", "r"]], levels=LEVELS)
    both = np.ones(2, bool)
    with pytest.raises(TreeError, match=named):
        Manifest(np.array(["x", "y"], object), np.array(labels), tree, both, both)
