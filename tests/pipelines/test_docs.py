"""docs/hgldv2.md: its commands exist and its decisions replay."""

import re
from pathlib import Path

from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.replay import replay, require_clean
from hbench_hgldv2.labels.label import Label
from hbench_hgldv2.steps import STEPS

TEXT = (Path(__file__).parents[2] / "docs" / "hgldv2.md").read_text(encoding="utf-8")


def test_the_page_names_every_step_and_what_it_writes():
    table = TEXT.split("| step |")[1].split("\n\n")[0]
    for name, step in STEPS.items():
        (row,) = [row for row in table.splitlines() if re.search(rf"^\| [^|]*\b{name}\b", row)]
        assert all(f"`{file}" in row for file in step.writes), row


def test_the_decisions_of_the_page_replay_without_a_conflict():
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    ids = sorted(set(re.findall(r"Q\d+", example)))
    labels = [Label(i, i, 1, 1, 0, ()) for i in ids]
    found = replay(
        labels,
        dict.fromkeys(ids, 0),
        decisions_file.loads(example.replace("expect_from: church, ", "")),
    )
    require_clean(found)
    groups = {
        "church": ["Q16970", "Q317557"],
        "monastery": ["Q160742"],
        "tower": ["Q12518"],
        "skyscraper": ["Q11303"],
    }
    groups |= {"dropped": ["Q4167836"], "bridge": ["Q181348"]}
    expected = {class_id: group for group, class_ids in groups.items() for class_id in class_ids}
    assert {row.class_id: row.group or row.status for row in found.rows} == expected
