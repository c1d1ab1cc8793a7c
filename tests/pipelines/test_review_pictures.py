"""`review --raw`: example pictures on the cards, of the images that are there."""

import csv
import io
import re

import numpy as np
import pytest
from hbench_hgldv2.curation import pictures, review
from hbench_hgldv2.labels.clean import CleanedLandmark
from PIL import Image

from hbench.core.errors import DataError, UsageError
from hbench.datasets.benchmarks.gldv2 import file_of
from tests.command_line import call
from tests.look.elements import each
from tests.pipelines.review_pages import MATERIAL, card

CATEGORY = "http://commons.wikimedia.org/wiki/Category:Place_{}"
CLASSES = ("church", "chapel", "church ruin", "lake", "lake shore", "castle")
IMAGES = 3  # of each landmark


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([header, *rows])


def draw(raw, image, colour="teal", size=(300, 200)):
    path = raw / file_of("train", image)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def ids_of(landmark):
    return [f"{landmark:02}{place}" for place in range(IMAGES)]


def review_with(work, raw):
    return call("hgldv2", "--work", work, "review", "--raw", raw).stderr


@pytest.fixture
def raw(tmp_path):
    """Two landmarks of each class, with three images each, all there."""
    folder = tmp_path / "raw"
    landmarks = list(enumerate([*CLASSES, *CLASSES]))
    labels = [(n, CATEGORY.format(n), name, name, "natural") for n, name in landmarks]
    header = ["landmark_id", "category", "supercategory", "hierarchical_label"]
    header.append("natural_or_human_made")
    write(folder / "metadata/train_label_to_hierarchical.csv", header, labels)
    lists = [(n, " ".join(ids_of(n))) for n, _ in landmarks]
    write(folder / "metadata/train_clean.csv", ["landmark_id", "images"], lists)
    for landmark, _ in landmarks:
        for image in ids_of(landmark):
            draw(folder, image)
    return folder


@pytest.fixture
def work(tmp_path, raw):
    """A work folder that is ready to review: three clusters."""
    folder = tmp_path / "work"
    released = raw / "metadata/train_label_to_hierarchical.csv"
    call("hgldv2", "--work", folder, "clean", "--released", "train", released)
    call("hgldv2", "--work", folder, "encode", "--encoder", "tfidf")
    call("hgldv2", "--work", folder, "cluster", "--k", "3", "--algorithm", "ward")
    return folder


def shown(page, title):
    return each(card(page, title), ".pictures img", "e.alt")


def test_a_card_shows_up_to_four_pictures_of_its_labels(opened, work, raw, findings):
    assert "3 of 3 cards have pictures" in review_with(work, raw)
    page = opened(work / "review.html")
    assert sorted(shown(page, "lake …")) == [
        "lake shore: Place 10", "lake shore: Place 4", "lake: Place 3", "lake: Place 9",
    ]  # fmt: skip
    assert len(shown(page, "castle …")) == 4
    assert set(each(page, ".pictures img", "e.naturalWidth")) == {128}
    assert findings(page) == []


def test_pictures_go_with_their_labels_to_another_card(opened, work, raw):
    review_with(work, raw)
    page = opened(work / "review.html")
    card(page, "lake …").locator(".row", has_text="lake shore").click()
    page.keyboard.press("m")
    page.keyboard.type("coast")
    page.keyboard.press("Enter")
    assert {alt.split(":")[0] for alt in shown(page, "coast")} == {"lake shore"}
    assert {alt.split(":")[0] for alt in shown(page, "lake …")} == {"lake"}


def test_a_page_without_images_has_none(opened):
    page = opened(MATERIAL)
    assert page.locator("img, .pictures").count() == 0


def test_missing_and_damaged_pictures_are_counted_and_others_take_their_place(work, raw):
    (raw / file_of("train", "050")).unlink()
    (raw / file_of("train", "110")).write_bytes(b"no picture")
    said = review_with(work, raw)
    assert "3 of 3 cards have pictures" in said
    assert "2 pictures were not found or cannot be read" in said
    assert f"such as {raw}/train/0/5/0/050.jpg" in said
    page = (work / "review.html").read_text(encoding="utf-8")
    assert len(re.findall(r"data:image/webp", page)) == 3 * pictures.SHOWN


def test_a_folder_without_any_image_leaves_the_page_without_pictures(work, raw):
    (raw / "train").rename(raw / "elsewhere")
    assert "0 of 3 cards have pictures" in review_with(work, raw)
    assert "data:image/webp" not in (work / "review.html").read_text(encoding="utf-8")


def test_other_landmarks_come_before_another_picture_of_the_same(raw):
    rows = [CleanedLandmark("train", 0, "", "kept", "", ("Q0",))]
    rows += [CleanedLandmark("train", n, "", "kept", "", ("Q1",)) for n in (1, 2, 3)]
    found = pictures.examples_of(raw, rows, [["Q0", "Q1"]]).of_class
    assert [example.title for example in found["Q0"]] == ["0"]
    assert [example.title for example in found["Q1"]] == ["1", "2", "3"]


def test_the_same_images_give_the_same_page(work, raw):
    review_with(work, raw)
    first = (work / "review.html").read_bytes()
    review_with(work, raw)
    assert (work / "review.html").read_bytes() == first


def test_the_list_of_all_of_train_serves_where_the_clean_one_is_not(work, raw):
    (raw / "metadata/train_clean.csv").unlink()
    rows = [(image, "http://a", n) for n in range(2 * len(CLASSES)) for image in ids_of(n)]
    write(raw / "train.csv", ["id", "url", "landmark_id"], rows)
    assert "3 of 3 cards have pictures" in review_with(work, raw)


def test_an_id_that_leads_out_of_the_folder_is_not_opened(work, raw):
    outside = [(n, "../../../secret") for n in range(2 * len(CLASSES))]
    write(raw / "metadata/train_clean.csv", ["landmark_id", "images"], outside)
    said = review_with(work, raw)
    assert "0 of 3 cards have pictures" in said
    assert "secret" not in said


def test_a_folder_without_lists_of_images_is_refused(work, tmp_path):
    with pytest.raises(DataError, match="does not say which images a landmark has") as refused:
        review_with(work, tmp_path)
    assert "metadata/train_clean.csv" in refused.value.expected


def test_the_demo_has_no_pictures(work, raw):
    with pytest.raises(UsageError, match="either --demo or --raw"):
        call("hgldv2", "--work", work, "review", "--demo", "--raw", raw)


def test_labels_of_a_table_have_no_pictures(tmp_path, raw):
    table = tmp_path / "birds.csv"
    table.write_text("id,label,count\n1,barn owl,4\n2,tawny owl,3\n3,wood duck,2\n")
    for words in (["clean", "--labels", table], ["encode", "--encoder", "tfidf"]):
        call("hgldv2", "--work", tmp_path / "birds", *words)
    call("hgldv2", "--work", tmp_path / "birds", "cluster", "--k", "2")
    with pytest.raises(UsageError, match="the labels are those of a table"):
        review_with(tmp_path / "birds", raw)


@pytest.fixture
def noise(tmp_path):
    """120 cards of one class each, with four landmarks, whose pictures are as large as they get."""
    pixels = np.random.default_rng(0).integers(0, 255, (128, 128, 3), np.uint8)
    Image.fromarray(pixels).save(file := io.BytesIO(), format="PNG")
    selection = [
        CleanedLandmark("train", landmark, "", "kept", "", (f"Q{landmark // 4}",))
        for landmark in range(480)
    ]
    lists = [(row.landmark_id, f"n{row.landmark_id:03}") for row in selection]
    write(tmp_path / "train_clean.csv", ["landmark_id", "images"], lists)
    for _, image in lists:
        path = tmp_path / file_of("train", image)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
    return tmp_path, selection, [[f"Q{number}"] for number in range(120)]


def test_the_pictures_of_a_page_are_bounded_and_the_last_cards_have_none(noise, capsys):
    found = pictures.examples_of(*noise)
    sizes = [len(example.address) for row in found.of_class.values() for example in row]
    assert sum(sizes) <= pictures.MOST_LETTERS
    assert 0 < found.cards < 120
    assert list(found.of_class) == [f"Q{number}" for number in range(found.cards)]
    said = capsys.readouterr().err
    assert f"{found.cards} of 120 cards" in said
    assert f"the last {120 - found.cards} have none, because a page holds 6 MB of them" in said


def test_cards_come_in_the_order_of_the_page():
    landmarks = {label.class_id: label.landmarks for label in MATERIAL.labels}
    sums = [sum(landmarks[i] for i in ids) for ids in review.cards_of(MATERIAL)]
    assert sums == sorted(sums, reverse=True)
