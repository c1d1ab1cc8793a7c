"""Statistics of the release, counted and drawn from its real index file."""

import json
from collections import Counter

import pytest
from hbench_hgldv2.artefact import rows_text
from hbench_hgldv2.labels.released import Released

from hbench.core.errors import DataError, UsageError
from tests.command_line import call
from tests.pipelines.official import index_rows, rows_of


def test_the_counts_of_the_real_index_are_the_published_ones(tmp_path):
    real = index_rows()
    rows = [
        Released(int(r["landmark_id"]), "", "", r["hierarchical_label"], r["natural_or_human_made"])
        for r in real
    ]
    file = tmp_path / "index.csv"
    file.write_text(rows_text(rows, Released), encoding="utf-8")
    (tmp_path / "raw").mkdir()
    images = [(f"{n:016x}", row.landmark_id) for n, row in enumerate([*rows, *rows[:100]])] + [
        ("f" * 16, 10**9)
    ]
    text = "id,landmark_id\n" + "".join(f"{name},{landmark}\n" for name, landmark in images)
    (tmp_path / "raw" / "index_image_to_landmark.csv").write_text(text, encoding="utf-8")

    def run(*words):
        return call(
            "hgldv2", "--work", tmp_path, "statistics", "--released", "index", file, *words
        ).stdout

    raw = ("--raw", tmp_path / "raw")
    counts = {
        row["what"]: (row["found"], row["published"]) for row in json.loads(run(*raw, "--json"))
    }
    published = rows_of("hgldv2_78_supercategories.csv")
    by_kind = Counter(row["natural_or_human_made"] for row in published)
    of_kind = {"human-made": (by_kind["human-made"], 60), "natural": (by_kind["natural"], 18)}
    landmarks = {"index landmarks": (55_529, 55_529), "index landmarks with images": (55_529, None)}
    assert counts == {
        "super-categories": (len(published), 78),
        **of_kind,
        **landmarks,
        "index images": (55_629, None),
    }
    drawn = (tmp_path / "statistics.svg").read_text(encoding="utf-8")
    assert all(
        f">{name.strip()}" in drawn for name in (row["hierarchical_label"] for row in published)
    )
    run(*raw)
    assert (tmp_path / "statistics.svg").read_text(encoding="utf-8") == drawn
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        run("-o", tmp_path / f"s.{kind}")
        assert (tmp_path / f"s.{kind}").read_bytes().startswith(start)
    with pytest.raises(UsageError, match="is not a picture"):
        run(*raw, "-o", tmp_path / "s.txt")
    with pytest.raises(DataError, match="no landmark has a super-category"):
        call("hgldv2", "--work", tmp_path / "empty", "statistics")
