"""Thumbnails on the review page: drawn from image folders, beside the page, and seen in Chromium."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from hbench_hgldv2.artefact import read_rows
from hbench_hgldv2.cli import demo, group
from hbench_hgldv2.curation import pictures
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.work_folder import Work
from PIL import Image
from playwright.sync_api import Browser

from hbench.core.errors import DataError
from tests.pipelines.review_pages import watched

COLORS = ["red", "lime", "blue", "yellow", "magenta"]


def raw_with_images(folder: Path, landmarks: int, split: str = "train") -> Path:
    """Two images for each landmark, one colour for all of a landmark; the first image of landmark 2 is missing."""
    lines = []
    for landmark in range(1, landmarks + 1):
        names = [f"{landmark:03x}{copy}{'0' * 12}" for copy in (1, 2)]
        lines.append((landmark, names))
        for name in names[landmark == 2 :]:
            path = folder / split / name[0] / name[1] / name[2] / f"{name}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (200, 150), COLORS[landmark % len(COLORS)]).save(path, quality=95)
    if split == "train":
        text = "landmark_id,images\n" + "".join(f"{landmark},{' '.join(names)}\n" for landmark, names in lines)
        (folder / "train_clean.csv").write_text(text, encoding="utf-8")
    else:
        text = "id,landmark_id\n" + "".join(f"{name},{landmark}\n" for landmark, names in lines for name in names)
        (folder / "index_image_to_landmark.csv").write_text(text, encoding="utf-8")
    return folder


def kept(landmark: int, *classes: str, split: str = "train", status: str = "kept") -> CleanedLandmark:
    return CleanedLandmark(split, landmark, "", status, "", classes)


@pytest.mark.parametrize("split", ["train", "index"])
def test_a_label_shows_three_landmarks_and_of_each_the_first_image_there_is(tmp_path: Path, split: str) -> None:
    raw = raw_with_images(tmp_path, 6, split)
    selection = [kept(n, "Q1", split=split) for n in range(1, 6)]
    selection += [kept(6, "Q2", split=split, status="ambiguous"), kept(99, "Q3", split=split)]
    found = pictures.chosen(selection, raw)
    first = [f"{split}/0/0/{n}/00{n}{copy}{'0' * 12}.jpg" for n, copy in ((1, 1), (2, 2), (3, 1))]
    assert found == {"Q1": first}


def test_what_cannot_be_read_has_no_picture(tmp_path: Path) -> None:
    raw = raw_with_images(tmp_path, 3)
    files = pictures.chosen([kept(n, f"Q{n}") for n in (1, 2, 3)], raw)
    (raw / files["Q2"][0]).write_bytes(b"no image")
    places = pictures.draw(tmp_path / "sheets", ["Q3", "Q2", "Q1"], files, raw)
    assert places == {"Q3": [0], "Q1": [1]}
    with Image.open(tmp_path / "sheets" / "0.webp") as sheet:
        for place, color in ((0, (255, 255, 0)), (1, (0, 255, 0))):
            seen = sheet.convert("RGB").getpixel((96 * place + 48, 48))
            assert isinstance(seen, tuple)
            assert max(abs(a - b) for a, b in zip(seen, color, strict=True)) < 12


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train_clean.csv").write_text("landmark_id,images\n1,abc\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no images of landmarks"):
        pictures.chosen([kept(1, "Q1")], tmp_path)


def test_the_page_shows_the_pictures_beside_their_labels(browser: Browser, tmp_path: Path) -> None:
    work = Work(tmp_path / "work")
    demo.make(work)
    raw = raw_with_images(tmp_path / "raw", 162)
    result = CliRunner().invoke(group, ["--work", str(work.folder), "review", "--images", str(raw)])
    assert result.exit_code == 0, result.output
    page = watched(browser, work / "review.html")
    page.locator(".picture").first.wait_for()
    page.wait_for_load_state("networkidle")
    landmarks = read_rows(work / "selection.csv", CleanedLandmark)
    for row in page.locator(".row:not(.at)").all()[:5]:
        label = row.get_attribute("data-id")
        (landmark, *_) = [each.landmark_id for each in landmarks if label in each.classes]
        shot = Image.open(io.BytesIO(row.locator(".picture").first.screenshot())).convert("RGB")
        wanted = Image.new("RGB", (1, 1), COLORS[landmark % len(COLORS)]).getpixel((0, 0))
        seen = shot.getpixel((shot.width // 2, shot.height // 2))
        assert isinstance(seen, tuple)
        assert isinstance(wanted, tuple)
        assert max(abs(a - b) for a, b in zip(seen, wanted, strict=True)) < 12
    page.keyboard.press("ArrowDown")  # the current row is higher, and the cards below make room
    page.keyboard.press("ArrowDown")
    boxes = page.locator(".card").evaluate_all("cards => cards.map(card => card.getBoundingClientRect().toJSON())")
    for a in boxes:
        below = [b["top"] for b in boxes if b["left"] == a["left"] and b["top"] > a["top"]]
        assert a["bottom"] < min(below, default=a["bottom"] + 1)
    assert not page.problems  # type: ignore[attr-defined]
    page.screenshot(path=str(tmp_path / "page.png"))
    page.close()
