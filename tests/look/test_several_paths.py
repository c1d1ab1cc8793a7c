"""Pages of items with several paths show the one that a result shares with its query."""

import numpy as np

import hbench
from hbench.look.report.folder import write_report
from hbench.look.report.runs import read_runs
from tests.command_line import call
from tests.evaluation.test_several import PATHS, cells, embeddings


def test_the_explorer_and_the_strips_show_the_shared_path(opened, tmp_path):
    (tmp_path / "things.csv").write_text(cells())
    np.savez(tmp_path / "emb.npz", ids=np.array(list(PATHS)), embeddings=embeddings())
    hbench.datasets.save(hbench.load(tmp_path / "things.csv", several=True), tmp_path / "things")
    call(
        "evaluate",
        tmp_path / "emb.npz",
        "-d",
        tmp_path / "things",
        "-o",
        tmp_path / "run.json",
        "--top-k",
        5,
    )
    write_report(
        read_runs([tmp_path / "run.json"], dataset=str(tmp_path / "things")), tmp_path / "pages"
    )

    page = opened(tmp_path / "pages" / "explore.html")
    page.evaluate("() => { location.hash = 'item=1'; }")
    page.wait_for_function("() => document.getElementById('shown')?.dataset.query === 'b'")
    tiles = page.locator("#shown [data-item]")
    shown = {
        tiles.nth(n).get_attribute("data-item"): tiles.nth(n).locator(".name").inner_text()
        for n in range(5)
    }
    assert shown["a"] == "shelf"  # its first path is that of a desk
    assert shown["c"] == "desk"

    page.evaluate("() => { location.hash = 'item=0'; }")
    page.wait_for_function("() => document.getElementById('shown')?.dataset.query === 'a'")
    assert page.locator("#shown h2").inner_text() == "Office › desk; Home › shelf"
