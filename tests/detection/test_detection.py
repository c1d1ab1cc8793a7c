"""Object detection: Pascal VOC read, Faster R-CNN taught by cross-entropy and by RaMBO, boxes
scored.
"""

import json
import re
from pathlib import Path

import pytest
import torch
from hbench_detection.detector import RESNEXT, ClassifierRankLoss, detector_of, resnext_body
from hbench_detection.recipe import CLASSES, Classification, DetectionRecipe, names, resolve
from hbench_detection.run import batches, detect, example, learn, rate, run
from hbench_detection.scores import scores_of
from hbench_detection.voc import Boxes, boxes_of, part_of
from PIL import Image
from torch import Tensor

from hbench.boards import read_board, read_board_file
from hbench.boards.runs import carried_row, recorded
from hbench.core.errors import ConfigError, DataError, SubmissionError, UnknownName, UsageError
from hbench.losses.baselines.rambo import RamboClasses
from tests.command_line import call, refusal
from tests.detection import shapes

pytestmark = pytest.mark.fast

SMALL = [
    'backbone="small"', 'weights="random"', 'train=["2007/trainval"]', 'classes=["disc", "square", '
                                                                       '"bar"]', "batch=4",
    "epochs=1", "warmup=5", "shorter=64", "longer=64",
]  # fmt: skip


@pytest.fixture(scope="module")
def voc(tmp_path_factory):
    root = tmp_path_factory.mktemp("voc")
    shapes.draw(root / "VOC2007", "trainval", 300)
    shapes.draw(root / "VOC2007", "test", 40)
    return root


def boxes(corners, classes, difficult=None):
    is_difficult = torch.tensor(difficult or [False] * len(classes), dtype=torch.bool)
    return Boxes(torch.tensor(corners, dtype=torch.float32), torch.tensor(classes), is_difficult)


def detections(corners, labels, scores):
    corners, scores = (torch.tensor(values, dtype=torch.float32) for values in (corners, scores))
    return {"boxes": corners, "labels": torch.tensor(labels), "scores": scores}


TRUTH = [[0, 0, 10, 10]]
TWO, FAR = [[0, 0, 10, 10], [20, 20, 30, 30]], [20, 20, 30, 30]
FOUND = detections(TRUTH, [1], [0.3])


def test_corners_count_pixels_from_zero_and_end_outside(tmp_path):
    (tmp_path / "a.xml").write_text(
        shapes.annotation([("bar", (1, 2, 10, 20), 0), ("disc", (5, 5, 5, 5), 1)])
    )
    found = boxes_of(tmp_path / "a.xml", shapes.CLASSES)
    assert found.corners.tolist() == [[0, 1, 10, 20], [4, 4, 5, 5]]
    assert found.classes.tolist() == [3, 1]
    assert found.difficult.tolist() == [False, True]


def test_a_broken_or_hostile_annotation_is_refused(tmp_path):
    for text, message in (
        ("<annotation>", "is not an annotation of VOC"),
        (
            "<!DOCTYPE a [<!ENTITY b 'c'>]><annotation>&b;</annotation>",
            "is not an annotation of VOC",
        ),
        ("<a>" * 200 + "</a>" * 200, "nested more than 100 deep"),
        (shapes.annotation([("bar", (9, 2, 3, 20), 0)]), "a box from"),
        (shapes.annotation([("bar", ("inf", 2, 3, 20), 0)]), "a box from"),
        (shapes.annotation([("bar", ("x", 2, 3, 20), 0)]), "could not convert"),
        (shapes.annotation([("unicorn", (1, 2, 3, 20), 0)]), "unicorn"),
    ):
        (tmp_path / "a.xml").write_text(text)
        with pytest.raises(DataError, match=message):
            boxes_of(tmp_path / "a.xml", shapes.CLASSES)


def test_two_years_are_one_part_wherever_they_lie_and_no_list_leaves_its_folder(tmp_path):
    for year, part in (("VOC2007", "trainval"), ("VOC2012", "val")):
        shapes.draw(tmp_path / "VOCdevkit" / year, part, 2)
    both = part_of(tmp_path, ["2007/trainval", "2012/val"], shapes.CLASSES)
    assert [file.parts[-3] for file in both.files] == ["VOC2007", "VOC2007", "VOC2012", "VOC2012"]
    (tmp_path / "VOCdevkit").rename(tmp_path / "moved")
    assert (
        part_of(tmp_path / "moved", ["2007/trainval", "2012/val"], shapes.CLASSES).digest
        == both.digest
    )
    with pytest.raises(DataError, match="VOC 2007 is not in"):
        part_of(tmp_path, ["2007/trainval"], shapes.CLASSES)
    (tmp_path / "moved" / "VOC2012" / "ImageSets" / "Main" / "val.txt").write_text("../../secret\n")
    with pytest.raises(DataError, match="names no images"):
        part_of(tmp_path / "moved", ["2012/val"], shapes.CLASSES)


TEN = [[20 * place, 0, 20 * place + 10, 10] for place in range(10)]


def test_ap50_is_the_mean_over_eleven_recalls_without_difficult_objects():
    for truth, difficult, found, ap50 in (
        (TRUTH, [False], TRUTH, 1),
        # right, wrong, right: precision 1 up to recall 1/2 (0 to 0.5: six recalls of eleven), then
        # 2/3 (five)
        (TWO, [False, False], [TWO[0], [40, 40, 50, 50], FAR], (6 * 1 + 5 * 2 / 3) / 11),
        # six of ten objects and nothing else: 0 to 0.6 are seven recalls of eleven
        (TEN, [False] * 10, TEN[:6], 7 / 11),
        # a difficult object is neither asked for nor a mistake, however often it is found
        (TWO, [False, True], [FAR, TWO[0]], 1),
        (TWO, [False, True], [FAR, [20, 20, 30, 29], [21, 20, 30, 30], TWO[0]], 1),
        (TWO, [False, True], [TWO[0]], 1),
    ):
        shown = detections(
            found, [1] * len(found), [0.9 - 0.1 * place for place in range(len(found))]
        )
        assert scores_of(
            [shown], [boxes(truth, [1] * len(truth), difficult)], ["disc"]
        ).ap50 == pytest.approx(ap50)


def test_a_box_counts_at_the_overlaps_that_it_has():
    part = detections([[0, 0, 6.2, 10]], [1], [0.9])  # 62 of 100 pixels
    scores = scores_of([part], [boxes(TRUTH, [1])], ["disc"])
    assert (scores.ap50, scores.ap50_95) == pytest.approx((1, 3 / 10))  # 0.5, 0.55 and 0.6 of ten
    assert scores_of([FOUND], [boxes(TRUTH, [1])], ["disc"]).ap50_95 == pytest.approx(1)
    # holds the difficult one, overlaps by 1/16
    touching = detections([[20, 20, 60, 60], TWO[0]], [1, 1], [0.9, 0.8])
    assert scores_of([touching], [boxes(TWO, [1, 1], [False, True])], ["disc"]).ap50 < 0.6


def test_a_class_without_objects_has_no_ap_and_one_that_is_never_detected_has_ap_zero():
    absent = scores_of([FOUND], [boxes(TRUTH, [1])], ["disc", "bar"])
    assert absent.per_class["disc"] == pytest.approx(1)
    assert absent.per_class["bar"] != absent.per_class["bar"]
    assert absent.ap50 == pytest.approx(1)
    missed = scores_of([FOUND], [boxes(TWO, [1, 2])], ["disc", "bar"])
    assert (missed.per_class["bar"], missed.ap50) == pytest.approx((0, 0.5))


def test_the_shipped_recipes_have_the_values_of_the_paper():
    assert names() == ["voc07-cross-entropy", "voc07-rambo"]
    rambo = resolve("voc07-rambo")
    assert (rambo.epochs, rambo.batch, rambo.lr, rambo.drops) == (12, 8, 0.1, (9,))
    settings = rambo.classification
    assert (settings.lam, settings.margin, settings.memory, settings.joint) == (
        0.5,
        0.15,
        7,
        pytest.approx(1 / 3),
    )
    assert len(CLASSES) == len(set(CLASSES)) == 20
    cross_entropy = resolve("voc07-cross-entropy")
    differing = {"method", "lr", "least_score", "source", "classification"}
    assert rambo.model_dump(exclude=differing) == cross_entropy.model_dump(exclude=differing)


def test_the_third_backbone_of_the_paper_computes_what_timm_does_with_its_weights():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    theirs = timm.create_model(RESNEXT, pretrained=False, num_classes=0).eval()
    ours = resnext_body().eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))


def test_the_third_backbone_makes_a_detector_that_scores_boxes():
    changes = ['backbone="resnext101_32x4d"', 'weights="random"', "shorter=64", "longer=96"]
    detector = detector_of(resolve("voc07-cross-entropy", changes)).eval()
    with torch.no_grad():
        (found,) = detector([torch.rand(3, 64, 80)])
    assert found["boxes"].shape[1:] == (4,)
    assert all(weight.requires_grad for weight in detector.backbone.body.parameters())


def test_changes_and_mistakes_of_recipes(tmp_path):
    assert resolve("voc07-rambo", ["classification.lam=2.0"]).classification.margin == 0.15
    for error, problem, name, *changes in (
        (UnknownName, "voc07-rambo", "voc07-ramb"),
        (ConfigError, "lamb", "voc07-rambo", "classification.lamb=2.0"),
        (UsageError, "changes nothing", "voc07-rambo", "batch"),
        (DataError, r"mine\.toml cannot be read", str(tmp_path / "mine.toml")),
    ):
        with pytest.raises(error, match=problem):
            resolve(name, changes)


def test_a_parameter_of_rambo_is_refused_beside_cross_entropy():
    with pytest.raises(ConfigError, match=r"classification\.lam would change nothing"):
        resolve("voc07-cross-entropy", ["classification.lam=0.1"])
    changes = ["classification.loss=rambo", "classification.lam=0.1"]
    assert resolve("voc07-cross-entropy", changes).classification.lam == 0.1


def test_a_recipe_is_printed_in_full_by_both_verbs_and_read_again(tmp_path):
    printed = call("recipes", "voc07-rambo", "--set", "lr=.02").stdout
    assert call("detect", "voc07-rambo", "--set", "lr=.02", "--print").stdout == printed
    (tmp_path / "mine.toml").write_text(printed)
    assert resolve(str(tmp_path / "mine.toml")) == resolve("voc07-rambo", ["lr=.02"])


def test_recipes_lists_those_of_detectors_beside_the_others():
    listed = call("recipes", "--csv").stdout
    assert "voc07-cross-entropy,cross-entropy,resnet50" in listed
    assert "sop-happier," in listed


def test_without_a_folder_nothing_is_trained():
    assert "--root" in refusal("detect", "voc07-rambo")


def test_every_key_of_a_recipe_is_explained_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "detection.md").read_text(encoding="utf-8")
    table = page.partition("## The keys of a recipe")[2]
    keys = {*DetectionRecipe.model_fields, *Classification.model_fields} - {"classification"}
    for key in keys:
        assert re.search(rf"`(classification)?\.?{key}`", table), key


def test_the_rank_loss_is_rambos_of_log_probabilities_without_the_background():
    logits = torch.tensor([[0.0, 2.0, 1.0], [1.0, -1.0, 3.0], [4.0, 0.5, 0.2]], requires_grad=True)
    classes = torch.tensor([2, 1, 0])
    loss = ClassifierRankLoss(RamboClasses(margin=0.0, memory=0))(logits, classes)
    # one positive in each class's list: region 1 for class 1, region 0 for class 2
    log_p = logits.detach() - logits.detach().exp().sum(dim=1, keepdim=True).log()
    ranks = [int((log_p[:, c] > log_p[i, c]).sum()) + 1 for c, i in ((1, 1), (2, 0))]
    mean_ap = sum(1 / rank for rank in ranks) / 2
    flat = torch.cat([log_p[:, 1], log_p[:, 2]])
    places = sorted(int((flat > value).sum()) + 1 for value in (log_p[1, 1], log_p[0, 2]))
    joint = (1 / places[0] + 2 / places[1]) / 2
    assert loss.item() == pytest.approx(2 / 3 * (1 - mean_ap) + 1 / 3 * (1 - joint), abs=1e-6)
    loss.backward()
    assert isinstance(logits.grad, Tensor)


def test_the_learning_rate_rises_then_drops():
    recipe = resolve("voc07-rambo", ["warmup=10"])
    assert [rate(recipe, 0, step) for step in (0, 4, 9, 50)] == pytest.approx(
        [0.01, 0.05, 0.1, 0.1]
    )
    assert rate(recipe, 9, 5_000) == pytest.approx(0.01)


def test_every_epoch_sees_every_image_once_in_its_own_order():
    recipe = resolve("voc07-rambo", ["batch=4"])
    orders = [
        [place for batch in batches(10, recipe, epoch) for place in batch] for epoch in (0, 1, 0)
    ]
    assert sorted(orders[0]) == list(range(10))
    assert orders[0] == orders[2] != orders[1]


def test_a_mirrored_image_has_mirrored_boxes(tmp_path):
    image = Image.new("RGB", (8, 4))
    image.putpixel((1, 2), (255, 255, 255))
    shapes.write(
        tmp_path / "VOC2007", "one", image, [("disc", (2, 3, 2, 3), 0), ("bar", (1, 1, 8, 4), 1)]
    )
    (tmp_path / "VOC2007" / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "VOC2007" / "ImageSets" / "Main" / "test.txt").write_text("one\n")
    part = part_of(tmp_path, ["2007/test"], shapes.CLASSES)
    mirrored, target = example(part, 0, resolve("voc07-rambo", ["flip=1.0"]), 0)
    assert target["boxes"].tolist() == [[6, 2, 7, 3]]  # the difficult bar is not learnt from
    assert mirrored.sum(dim=0).argmax() == 2 * 8 + 6


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("voc07-cross-entropy", ["lr=0.02"]),
        (
            "voc07-rambo",
            ["lr=0.05", "classification.memory=0"],
        ),  # seven batches of memory are long beside 75 steps
    ],
)
@pytest.mark.usefixtures("one_thread")
def test_in_one_epoch_the_loss_falls_and_ap50_rises(voc, name, changes):
    recipe = resolve(name, [*SMALL, *changes])
    torch.manual_seed(0)
    model = detector_of(recipe)
    training, test = (
        part_of(voc, recipe.train, recipe.classes),
        part_of(voc, recipe.test, recipe.classes),
    )
    before = scores_of(detect(model, test), test.boxes, recipe.classes)
    losses = learn(model, training, recipe)
    after = scores_of(detect(model, test), test.boxes, recipe.classes)
    assert len(losses) == 75
    assert sum(losses[-15:]) < 0.9 * sum(losses[:15])
    assert before.ap50 < 0.05
    assert after.ap50 > 0.1
    assert after.ap50_95 > before.ap50_95


@pytest.mark.usefixtures("one_thread")
def test_rambo_with_its_memory_learns_in_four_epochs_at_a_lower_rate(voc):
    recipe = resolve("voc07-rambo", [*SMALL, "lr=0.02", "epochs=4"])
    assert recipe.classification.memory == 7
    torch.manual_seed(0)
    model = detector_of(recipe)
    learn(model, part_of(voc, recipe.train, recipe.classes), recipe)
    test = part_of(voc, recipe.test, recipe.classes)
    assert scores_of(detect(model, test), test.boxes, recipe.classes).ap50 > 0.6


@pytest.fixture
def few(tmp_path):
    shapes.draw(tmp_path / "VOC2007", "trainval", 6)
    shapes.draw(tmp_path / "VOC2007", "test", 3)
    return tmp_path


def detected(root, out, *more):
    changes = [part for change in SMALL for part in ("--set", change)]
    return call(
        "detect", "voc07-rambo", "--root", root, "--out", out, "--device", "cpu", *changes, *more
    )


def test_a_run_writes_what_a_leaderboard_takes(few, tmp_path, monkeypatch):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path / "home"))
    result = detected(few, tmp_path / "out", "--json")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert json.loads(result.stdout) == report
    assert set(report["scores"]) == {"AP50", "AP50:95"}
    # other images, whatever their list is called
    with pytest.raises(SubmissionError, match="another dataset"):
        carried_row(tmp_path / "out" / "report.json", "voc07")
    (tmp_path / "out" / "report.json").write_text(json.dumps(report | {"dataset": "voc07@1"}))
    board = tmp_path / "voc07.toml"
    call("leaderboard", "add", "voc07", tmp_path / "out" / "report.json", "--to", board)
    row = read_board_file(board).rows[-1]
    assert row.method == "Faster R-CNN RaMBO"
    assert float(row.scores["AP50"]) == pytest.approx(100 * report["scores"]["AP50"], abs=0.01)
    assert row.run.sha256 == report["detections"]["sha256"]
    damaged = tmp_path / "damaged.json"
    damaged.write_text(
        json.dumps(report | {"dataset": "voc07@1", "row": report["row"] | {"year": "long ago"}})
    )
    with pytest.raises(ConfigError, match="breaks its schema") as refused:
        carried_row(damaged, "voc07")
    assert "year" in refused.value.found
    with pytest.raises(SubmissionError, match="object detection"):
        recorded(row, read_board("voc07"))


def test_detections_are_scored_again_to_the_same_numbers(voc, tmp_path):
    """A detector that is right for half of the images, and sure of it."""
    recipe = resolve("voc07-rambo", SMALL)
    test = part_of(voc, recipe.test, recipe.classes)
    results = [
        {
            "image_id": file.stem,
            "category_id": int(label),
            "bbox": [x, y, right - x, low - y],
            "score": 0.9,
        }
        for place, (file, own) in enumerate(zip(test.files, test.boxes, strict=True))
        for (x, y, right, low), label in zip(own.corners.tolist(), own.classes, strict=True)
        if place % 2
    ]
    (tmp_path / "detections.json").write_text(json.dumps(results))
    for folder, source in (
        ("first", tmp_path / "detections.json"),
        ("second", tmp_path / "first" / "detections.json"),
    ):
        detected(voc, tmp_path / folder, "--score", source)
    first, second = (
        json.loads((tmp_path / folder / "report.json").read_text())
        for folder in ("first", "second")
    )
    assert first == second
    assert 0.3 < first["scores"]["AP50"] < 0.7


def test_files_that_are_not_detections_are_refused(few, tmp_path):
    for content, problem in (
        ([{}, {"image_id": "none"}], "KeyError.*in result 2"),
        ({}, "dict in place of a list"),
        ([{"category_id": 1.5}, {}], "a category that is none of 1.*of the image test_0000"),
        ([{"category_id": 0}], "a category that is none of 1"),
        ([{"bbox": [4, 4, -3, 2]}], "a box of negative width or height"),
    ):
        whole = {"image_id": "test_0000", "category_id": 1, "bbox": [1, 1, 4, 4], "score": 0.5}
        results = [whole | each for each in content] if isinstance(content, list) else content
        (tmp_path / "detections.json").write_text(json.dumps(results))
        with pytest.raises(DataError, match=f"(?s)does not hold detections.*{problem}"):
            detected(few, tmp_path / "out", "--score", tmp_path / "detections.json")
        assert not (tmp_path / "out" / "report.json").exists()


@pytest.mark.usefixtures("one_thread")
# with RaMBO's memory of past scores
@pytest.mark.parametrize("name", ["voc07-cross-entropy", "voc07-rambo"])
def test_a_killed_run_resumes_to_the_same_bits(few, tmp_path, name):
    recipe = resolve(name, [*SMALL, "epochs=2"])
    whole = run(recipe, few, tmp_path / "whole")
    run(resolve(name, SMALL), few, tmp_path / "halves")
    with pytest.raises(DataError, match="holds a run"):
        run(recipe, few, tmp_path / "halves")
    with pytest.raises(UsageError, match="a run of another recipe"):
        run(resolve(name, [*SMALL, "lr=0.5"]), few, tmp_path / "halves", resume=True)
    kept = (tmp_path / "halves" / "recipe.json").read_text()
    (tmp_path / "halves" / "recipe.json").write_text("[]")
    with pytest.raises(DataError, match="cannot be read"):
        run(recipe, few, tmp_path / "halves", resume=True)
    (tmp_path / "halves" / "recipe.json").write_text(kept)
    again = run(recipe, few, tmp_path / "halves", resume=True)
    assert again == whole
    last = tmp_path / "halves" / "last.pt"
    torch.save({"model": {}, "epoch": []}, last)
    with pytest.raises(DataError, match="cannot be loaded"):
        run(recipe, few, last.parent, resume=True)
    last.write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be resumed"):
        run(recipe, few, last.parent, resume=True)


def test_a_missing_image_is_named(few, tmp_path):
    (few / "VOC2007" / "JPEGImages" / "test_0001.jpg").unlink()
    with pytest.raises(DataError, match="test_0001"):
        run(resolve("voc07-cross-entropy", SMALL), few, tmp_path / "out")
