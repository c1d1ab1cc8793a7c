"""Boxes of pictures as items: columns of a table, COCO's annotations."""

import json

import numpy as np
import pytest
from PIL import Image

from hbench.core.errors import DataError
from hbench.datasets import load
from hbench.datasets.pictures import open_picture, open_upright
from tests.command_line import call, refusal

# four kinds, each a square of its own colour in one of two pictures of 40 × 20
COLOURS = {"owl": (200, 0, 0), "kite": (0, 200, 0), "carp": (0, 0, 200), "pike": (90, 90, 90)}
PLACES = {"owl": ("a.png", 3), "kite": ("a.png", 21), "carp": ("b.png", 3), "pike": ("b.png", 21)}
SIDE = 12


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        image = Image.new("RGB", (40, 20), "white")
        for kind, (picture, left) in PLACES.items():
            if picture == name:
                image.paste(COLOURS[kind], (left, 4, left + SIDE, 4 + SIDE))
        image.save(folder / name)
    return folder


def table_with(folder, header, box):
    lines = [header]
    for kind, (picture, left) in PLACES.items():
        order = "birds" if kind in ("owl", "kite") else "fish"
        lines.append(f"{picture},{order},{kind},{box(left)}")
    file = folder.parent / "boxes.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def built(folder, table, *words):
    out = folder.parent / "data"
    done = call("build", "boxes", "--from", table, "--root", folder, "--out", out, *words)
    return load(out).tests["test"], done.stderr


def test_pictures_are_counted_and_not_their_boxes(pictures):
    (pictures / "b.png").unlink()
    table = table_with(pictures, "image,order,kind,bbox", lambda left: f'"[{left}, 4, 12, 12]"')
    _, said = built(pictures, table, "--box-columns", "bbox")
    assert "1 of 2 images are there" in said
    assert "1 missing (b.png)" in said


def test_a_table_of_boxes_without_the_option_is_told_of_it(pictures):
    table = table_with(pictures, "image,order,kind,bbox", lambda left: f'"[{left}, 4, 12, 12]"')
    said = refusal("build", "boxes", "--from", table, "--root", pictures)
    assert "--box-columns bbox" in said


@pytest.mark.parametrize(
    ("columns", "box", "word"),
    [
        ("x1,y1,x2,y2", lambda left: f"{left},4,{left + SIDE},{4 + SIDE}", "corners"),
        ("x,y,width,height", lambda left: f"{left},4,{SIDE},{SIDE}", "left, top"),
        ("bbox", lambda left: f'"[{left}, 4, {SIDE}, {SIDE}]"', "left, top"),
    ],
)
def test_boxes_in_columns_are_cut_from_their_pictures(pictures, columns, box, word):
    table = table_with(pictures, f"image,order,kind,{columns}", box)
    manifest, said = built(pictures, table, "--box-columns", columns)
    assert word in said
    assert manifest.levels == ("order", "kind")
    kinds = [manifest.tree.names[-1][label] for label in manifest.labels[:, -1]]
    assert sorted(kinds) == sorted(COLOURS)
    for item, kind in zip(manifest.items, kinds, strict=True):
        pixels = np.asarray(manifest.picture(item))
        assert pixels.shape == (SIDE, SIDE, 3)
        assert (pixels == COLOURS[kind]).all()


def test_a_row_without_a_box_is_the_whole_picture(pictures):
    boxes = iter(["3,4,15,16", ",,,", "3,4,15,16", ",,,"])
    table = table_with(pictures, "image,order,kind,x1,y1,x2,y2", lambda _: next(boxes))
    manifest, said = built(pictures, table, "--box-columns", "x1,y1,x2,y2")
    assert "2 rows without one" in said
    sizes = {manifest.picture(item).size for item in manifest.items}
    assert sizes == {(SIDE, SIDE), (40, 20)}


def test_boxes_of_one_picture_are_no_copies_and_the_same_box_of_equal_files_is_one(pictures):
    table = table_with(pictures, "image,order,kind,x,y,w,h", lambda left: f"{left},4,12,12")
    _, said = built(pictures, table, "--box-columns", "x,y,w,h")
    assert "copies" not in said
    (pictures / "b.png").write_bytes((pictures / "a.png").read_bytes())
    _, said = built(pictures, table, "--box-columns", "x,y,w,h", "--force")
    assert "copies" in said


def test_cocos_annotations_are_read_with_their_supercategories(pictures):
    kinds = [
        {"id": 7 + n, "name": kind, "supercategory": "bird" if n < 2 else "fish"}
        for n, kind in enumerate(COLOURS)
    ]
    annotations = [
        {"image_id": picture, "category_id": 7 + n, "bbox": [left, 4, SIDE, SIDE]}
        for n, (picture, left) in enumerate(PLACES.values())
    ]
    content = {
        "images": [{"id": name, "file_name": name} for name in ("a.png", "b.png")],
        "annotations": [*annotations, annotations[0]],
        "categories": kinds,
    }
    file = pictures.parent / "instances.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    manifest, said = built(pictures, file)
    assert "annotations of COCO" in said
    assert "1 boxes there twice" in said
    assert manifest.levels == ("supercategory", "category")
    assert len(manifest) == 4
    for item, label in zip(manifest.items, manifest.labels[:, -1], strict=True):
        kind = manifest.tree.names[-1][label]
        assert (np.asarray(manifest.picture(item)) == COLOURS[kind]).all()


def test_other_json_is_refused(pictures):
    file = pictures.parent / "other.json"
    file.write_text('{"rows": []}', encoding="utf-8")
    assert "COCO" in refusal("build", "other", "--from", file, "--root", pictures)


@pytest.mark.parametrize(
    ("columns", "box", "word"),
    [
        ("x1,y1,x2,y2", "15,4,3,16", "boxes are none"),
        ("x1,y1,x2,y2", "3,4,,16", "boxes are none"),  # no whole picture: a number was forgotten
        ("x1,y1,x2,y2", "inf,4,inf,16", "boxes are none"),
        ("x,y,width,height", "inf,4,12,12", "boxes are none"),
        ("x1,y1,x2", "3,4,15", "four numbers"),
        ("x1,y1,x2,top", "a,4,15,16", "no numbers"),
        ("bbox", '"[1, 2, 3]"', "four numbers"),
    ],
)
def test_what_is_no_box_is_refused(pictures, columns, box, word):
    table = table_with(pictures, f"image,order,kind,{columns}", lambda _: box)
    words = ["build", "none", "--from", table, "--root", pictures, "--box-columns", columns]
    assert word in refusal(*words)


def test_columns_that_are_not_there_are_named(pictures):
    table = table_with(pictures, "image,order,kind,x,y,w,h", lambda left: f"{left},4,12,12")
    words = ["build", "none", "--from", table, "--root", pictures, "--box-columns", "x1,y1,x2,y2"]
    assert "x1" in refusal(*words)


def test_a_box_is_cut_as_far_as_it_lies_inside_and_one_outside_is_refused(pictures):
    assert open_picture(pictures, "a.png#xywh=30,10,50,50").size == (10, 10)
    assert open_picture(pictures, "a.png#xywh=3.4,4.6,1.2,1").size == (2, 2)
    with pytest.raises(DataError, match="outside"):
        open_picture(pictures, "a.png#xywh=50,10,5,5")


def test_a_box_is_of_the_stored_pixels_and_is_turned_as_exif_says(tmp_path):
    image = Image.new("RGB", (40, 20), "white")
    image.paste((200, 0, 0), (0, 0, 10, 6))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    assert open_upright(tmp_path, "turned.png#xywh=0,0,10,6").size == (6, 10)


@pytest.mark.parametrize("box", ["[NaN, 4, 12, 12]", "[3, 4, Infinity, 12]", "[3, 4, 0, 12]"])
def test_numbers_of_coco_that_are_no_box_are_refused(pictures, box):
    content = (
        '{"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "owl"}],'
        f' "annotations": [{{"image_id": 1, "category_id": 1, "bbox": {box}}}]}}'
    )
    file = pictures.parent / "bad.json"
    file.write_text(content, encoding="utf-8")
    assert "COCO" in refusal("build", "bad", "--from", file, "--root", pictures)


def test_a_box_that_begins_outside_is_cut_at_the_edge(pictures):
    assert open_picture(pictures, "a.png#xywh=-2,-1.5,10,10").size == (8, 9)
