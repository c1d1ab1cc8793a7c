"""hbench serve: show a folder of pages on this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from hbench.cli.terminal import say, show


@click.command("serve")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65_535), default=8765, show_default=True, help="0 takes a free one.")
def command(folder: Path, port: int) -> None:
    """Show FOLDER, made by `hbench report` or `hbench site`, at an address of this machine until Ctrl-C.

    Only this machine can open it (127.0.0.1), and only by that name. Pages also open from the disk, without a server.

    Example: hbench serve pages
    """
    from hbench.look.pages.server import serving

    with serving(folder, port) as server:
        say("open this address; Ctrl-C ends:")
        show(server.address)
        with suppress(KeyboardInterrupt):  # the way it ends
            server.serve_forever()
