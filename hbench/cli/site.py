"""hbench site: all leaderboards as a folder of static pages."""

from pathlib import Path

import click

from hbench.cli.names import FILE
from hbench.cli.terminal import bar, say, show


@click.command("site")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--out", "-o", type=FILE, required=True, help="The folder; a former site is replaced."
)
def command(names: tuple[str, ...], out: Path) -> None:
    """Make static pages of leaderboards, by default of all: sort, filter, two metrics against each
    other, sources and doubts, BibTeX, CSV, LaTeX and JSON, and each dataset's card and tree.

    NAME is a dataset (`hbench leaderboard list`) or the path of a TOML file. Open DIR/index.html;
    no server is needed.

    Example: hbench site -o leaderboards-site
    """
    from hbench import boards as leaderboard
    from hbench.look.pages.folder import refuse_folder
    from hbench.look.site.folder import write_site

    refuse_folder(out, "site")  # raises for a folder with files that are not a former site
    # leaderboards without rows are left out, unless they are named
    with bar("writing pages"):
        page = write_site(
            names
            or [name for name in leaderboard.board_names() if leaderboard.read_board(name).rows],
            out,
        )
    say("open this page:")
    show(str(page))
