"""Writes the site: a page that lists all leaderboards, a page for each leaderboard, and downloads
in the formats that papers and programs use."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from hbench import boards as leaderboard
from hbench.boards import Leaderboard, export, rank
from hbench.core.errors import UsageError
from hbench.core.version import __version__
from hbench.look.pages.folder import Pages, copy_assets, replacing_folder, write_script
from hbench.look.site.boards import BoardView, script_of, view_of
from hbench.look.site.cards import DatasetCard, card_of
from hbench.records.tables import latex, markdown

PACKAGE = "hbench.look.site"
FORMATS = (
    ("csv", "CSV"),
    ("json", "JSON"),
    ("tex", "LaTeX"),
    ("bib", "BibTeX"),
    ("md", "Markdown"),
)


def write_site(names: Sequence[str], folder: Path) -> Path:
    """Write the pages of these leaderboards, given by name or file, and return the path of the
    first page.

    Raises UsageError if the folder has other files, and UnknownName or ConfigError if a leaderboard
    cannot be read.
    """
    slugs = [slug_of(name) for name in names]
    if twice := sorted({slug for slug in slugs if slugs.count(slug) > 1}):
        raise UsageError(
            "every leaderboard has a separate page", found=f"{', '.join(twice)} several times"
        )

    # `map` reads nothing yet; the list below reads all leaderboards before anything is written, so
    # that a broken one leaves the old site untouched
    boards = map(leaderboard.read_board, names)
    site_pages = [
        (slug, view_of(board), card_of(board.dataset))
        for slug, board in zip(slugs, boards, strict=True)
    ]

    with replacing_folder(folder, "site") as temporary:
        copy_assets(temporary / "assets", PACKAGE)
        for place in ("data", "downloads"):
            (temporary / place).mkdir()
        # the links in the bar at the top of every page: names of files, and their titles
        links = [("index", "Leaderboards")]
        pages = Pages(PACKAGE, {"version": __version__, "present": links, "formats": FORMATS})
        listed = [{"slug": slug, "view": view, "card": card} for slug, view, card in site_pages]
        pages.write(
            temporary,
            "index",
            boards=listed,
            rows=sum(len(view.board.rows) for _, view, _ in site_pages),
        )
        for page in site_pages:
            _write_board(temporary, pages, *page)

    return folder / "index.html"


def slug_of(name: str) -> str:
    """Return the name of a leaderboard's files: the name of its dataset or file, in characters that
    are safe on disks and in addresses.

    >>> slug_of("inat18-base"), slug_of("mine/My rows#1.toml")
    ('inat18-base', 'My-rows-1')
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", Path(name).name.removesuffix(".toml"))


def _write_board(folder: Path, pages: Pages, slug: str, view: BoardView, card: DatasetCard) -> None:
    """Write the page of a leaderboard, the data that the page's scripts read, and the downloads.
    `slug` is the leaderboard's part of the file names; `card` describes the dataset."""
    pages.write(folder, f"board-{slug}", "board", slug=slug, view=view, board=view.board, card=card)
    write_script(folder / "data", f"board-{slug}", script_of(view))
    if card.tree is not None:
        write_script(folder / "data", f"tree-{slug}", card.tree)
    for suffix, text in downloads_of(view.board).items():
        (folder / "downloads" / f"{slug}.{suffix}").write_text(text, encoding="utf-8")


def downloads_of(board: Leaderboard) -> dict[str, str]:
    """Return the text of a leaderboard in every format, by the suffix of the file. Rows are sorted
    by the leaderboard's metric, best first."""
    standings = rank(board, board.metric)
    # the cells of the tables that LaTeX and Markdown have in common; `levels_of_one_test` is empty
    # if the levels are not all scored on one test
    content = export.table(standings, board.metrics, board.citations, board.levels_of_one_test)
    title = export.title(board)
    return {
        "csv": export.as_csv(board, standings),
        "json": json.dumps(export.as_json(board, standings), ensure_ascii=False, allow_nan=False)
        + "\n",
        "tex": latex(content, title=title),
        "bib": export.bibtex(board.citations),
        "md": markdown(content, title=title),
    }
