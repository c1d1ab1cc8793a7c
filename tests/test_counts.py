"""Counts that a page states are those of the files: whoever adds a row, a recipe or a loss is told
where prose still has the old number.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

import hbench
from hbench.boards import read_board
from hbench.datasets import specs
from hbench.train.recipes import files

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parent.parent
BOARDS = [read_board(str(path)) for path in sorted((ROOT / "leaderboards").glob("*.toml"))]
ROWS = [row for board in BOARDS for row in board.rows]
OWN = Counter(board.dataset for board in BOARDS for row in board.rows if row.run)
OF_PAPERS = Counter(
    "later" if board.citations[row.paper.citation].later else "papers"
    for board in BOARDS
    for row in board.rows
    if row.paper
)
# of each board; those of DyML have equally many, which are said once
LATER = {
    re.sub("^dyml-.*", "dyml", board.dataset): number
    for board in BOARDS
    if (
        number := sum(
            bool(row.paper and board.citations[row.paper.citation].later) for row in board.rows
        )
    )
}
OF_SOP = [row for board in BOARDS if board.dataset == "sop" for row in board.rows]
PROSE = [
    ("CHANGELOG.md", r"(\d+) leaderboards with", len(BOARDS)),
    ("CHANGELOG.md", r"leaderboards with (\d+) rows", len(ROWS)),
    ("CHANGELOG.md", r"- (\d+) datasets with cards", len(list(specs))),
    ("CHANGELOG.md", r"- (\d+) losses:", len(hbench.list_losses())),
    ("CHANGELOG.md", r"- (\d+) recipes with", len(files.names())),
    ("leaderboards/README.md", r"\| later work \| (\d+) \|", OF_PAPERS["later"]),
    ("leaderboards/README.md", r"The (\d+) rows of \*later work\*", OF_PAPERS["later"]),
    ("leaderboards/README.md", r"All (\d+) rows of the four papers", OF_PAPERS["papers"]),
    ("leaderboards/README.md", r"digest of their content \| (\d+) \|", sum(OWN.values())),
    *(("leaderboards/README.md", rf"\b{name} (\d+),? of which", OWN[name]) for name in OWN),
    *(
        ("leaderboards/README.md", rf"later work \| \d+ \|.*\b{name} (\d+)", number)
        for name, number in LATER.items()
    ),
    ("docs/which-sop.md", r"the (\d+) rows of our board", sum("R@1" in r.scores for r in OF_SOP)),
]


@pytest.mark.parametrize(
    ("page", "pattern", "number"), PROSE, ids=[pattern for _, pattern, _ in PROSE]
)
def test_a_count_in_prose_is_that_of_the_files(page, pattern, number):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [int(found) for found in re.findall(pattern, text)] == [number]
