"""Makes the embedding files of hbench's own rows assets of a release: finds each row's file by its
content, copies it, and writes its address to come into the row.

Run: python .ci/release_rows.py FOLDER https://HOST/releases/download/v1.0 [--out dist/rows]
FOLDER has the files, under any names; `hbench leaderboard rerun` makes those that are lost.
"""

import argparse
import shutil
import sys
from pathlib import Path

from hbench.boards import Row, read_board_file
from hbench.boards.proof.fetched import contents_in, with_runs

BOARDS = Path(__file__).parents[1] / "leaderboards"


def release(board: Path, kept: dict[str, Path], address: str, out: Path) -> tuple[int, list[str]]:
    """Copy the files of a board's rows that have no address yet, write their addresses, and return
    how many there are, and the methods whose file is not there."""
    dataset = read_board_file(board).dataset
    changes: list[tuple[Row, dict[str, object]]] = []
    missing = []
    for row in read_board_file(board).rows:
        if row.run is None or row.run.url is not None:
            continue
        file = kept.get(row.run.digest)
        if file is None:
            missing.append(row.method)
            continue
        # its content names an asset: two rows of one method, or of one name, do not meet
        asset = out / f"{dataset}-{row.run.digest[:16]}{file.suffix.lower()}"
        shutil.copyfile(file, asset)
        changes.append((row, {"url": f"{address.rstrip('/')}/{asset.name}"}))

    written = with_runs(board, changes) if changes else []
    return sum(written), missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where the embedding files are")
    parser.add_argument("address", help="where the assets will be, https://…")
    parser.add_argument("--out", type=Path, default=Path("dist/rows"))
    parser.add_argument("--boards", type=Path, default=BOARDS)
    given = parser.parse_args()

    given.out.mkdir(parents=True, exist_ok=True)
    kept = contents_in(given.folder)
    for board in sorted(given.boards.glob("*.toml")):
        number, missing = release(board, kept, given.address, given.out)
        if number or missing:
            sys.stdout.write(f"{board.stem}\t{number} with their address\n")
        for method in missing:
            sys.stdout.write(f"{board.stem}\t{method}: no file there has its content\n")


if __name__ == "__main__":
    main()
