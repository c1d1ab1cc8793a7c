"""`review --demo`: a page of shipped data in Chromium, and a work folder to continue from."""

import json

from hbench_hgldv2.curation import decisions_file, review

from tests.command_line import call
from tests.pipelines.official import official


def run(work, *words):
    return call("hgldv2", "--work", work, *words).stdout


def test_the_demo_is_a_page_with_two_reviewers_and_a_folder_to_replay(opened, tmp_path, findings):
    run(tmp_path, "review", "--demo")
    work = tmp_path / "demo"
    page = opened(work / "review.html")
    assert findings(page) == []
    output = json.loads(
        run(work, "agreement", str(work / "decisions.yaml"), str(work / "released.yaml"), "--json")
    )
    shown = page.text_content("#queue")
    assert shown == f"released: κ {output['kappa']:.3f}, {len(output['queue'])} to talk about"
    assert len(output["queue"]) > 3
    run(work, "replay", "--strict")
    first = (work / "review.html").read_bytes()
    mine = decisions_file.load(work / "decisions.yaml")
    first_one = mine.model_copy(update={"decisions": mine.decisions[:1]})
    (work / "decisions.yaml").write_text(decisions_file.dumps(first_one), encoding="utf-8")
    run(tmp_path, "review", "--demo")
    assert len(decisions_file.load(work / "decisions.yaml").decisions) == 1
    assert (work / "review.html").read_bytes() != first


def test_the_demo_ships_the_released_labels():
    labels, groups = official()
    text = (review.DEMO / "train_label_to_hierarchical.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1 + len(labels)
    assert all(f",{label.label},{groups[label.class_id]}," in text for label in labels)
