"""Draws docs/pictures/wings.svg: the wings of the package and what each imports, read from the
imports themselves.

Run: python docs/pictures/wings.py. An arrow that follows from others is left out.
"""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHAT = {  # what lives there, and where its box stands: floor, and columns from the left
    "core": ("errors, files, tables, compilation", 0, 3),
    "sheets": ("what people bring, read", 1, 3),
    "tree": ("label trees, policies, drawing", 2, 3),
    "datasets": ("manifests, builds, downloads", 4, 0),
    "metrics": ("formulas, relevance, protocols", 3, 3),
    "trust": ("masses, thresholds, answers", 4, 4),
    "engine": ("exact ranking, kernels, executors", 4, 2),
    "records": ("reports, values by query, comparison", 5, 0),
    "submissions": ("embedding files, rankings, ids", 5, 2),
    "evaluation": ("a submission becomes a report", 6, 3),
    "losses": ("rank losses, baselines, CPU kernels", 4, 6),
    "auditing": ("wrong labels, copies, sureness", 7, 2),
    "boards": ("leaderboards: rows, verification", 7, 0),
    "train": ("loop, models, recipes", 9, 3),
    "look": ("pictures, pages", 8, 0),
    "cli": ("one file per verb", 10, 3),
    "hbench_detection": ("pipeline: RaMBO's object detection", 11, 2),
    "hbench_hgldv2": ("pipeline: H-GLDv2's super-categories", 11, 4),
}
WIDTH, HEIGHT, GAP, FLOOR, MARGIN = 230, 46, 70, 92, 20
Arrows = dict[str, set[str]]


def imported(folder: Path, own: str) -> set[str]:
    """The wings that the modules in a folder import, its own left out."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.startswith("hbench.")
            ):
                found.add(node.module.split(".")[1])
            elif isinstance(node, ast.ImportFrom) and node.module == "hbench":
                found |= {alias.name for alias in node.names}
    return found & set(WHAT) - {own}


def arrows() -> Arrows:
    """What each wing imports."""
    shelves = {
        wing: ROOT / ("pipelines" if wing.startswith("hbench_") else "hbench") for wing in WHAT
    }
    return {wing: imported(shelves[wing] / wing, wing) for wing in WHAT}


def reachable(wing: str, all_arrows: Arrows) -> set[str]:
    """All that a wing imports, directly or through others."""
    return all_arrows[wing].union(*(reachable(each, all_arrows) for each in all_arrows[wing]))


def direct(all_arrows: Arrows) -> Arrows:
    """The arrows that do not follow from others."""
    return {
        wing: {
            each
            for each in found
            if not any(each in reachable(other, all_arrows) for other in found - {each})
        }
        for wing, found in all_arrows.items()
    }


def place(wing: str) -> tuple[int, int]:
    """The left and upper edge of a wing's box."""
    _, floor, column = WHAT[wing]
    return MARGIN + (WIDTH + GAP) * column // 2, MARGIN + FLOOR * floor


def drawn() -> str:
    """The picture as SVG text."""
    right, bottom = (max(place(wing)[axis] for wing in WHAT) for axis in (0, 1))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + WIDTH + MARGIN} '
        f'{bottom + HEIGHT + MARGIN}" '
        'font-family="sans-serif">',
        "<title>The wings of hbench; an arrow leads from a wing to one that it imports</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for wing, targets in direct(arrows()).items():
        x, y = place(wing)
        for target in sorted(targets):
            to_x, to_y = place(target)[0] + WIDTH // 2, place(target)[1] + HEIGHT
            lines.append(
                f'<path d="M{x + WIDTH // 2} {y} C{x + WIDTH // 2} {y - 30} {to_x} {to_y + 40} '
                f'{to_x} {to_y + 2}" '
                'fill="none" stroke="#667" stroke-width="1.4" marker-end="url(#head)"/>'
            )
    for wing, (what, _, _) in WHAT.items():
        x, y = place(wing)
        lines += [
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="7" fill="#e8f0f8" '
            'stroke="#4477aa"/>',
            f'<text x="{x + WIDTH // 2}" y="{y + 20}" font-size="15" font-weight="bold" '
            f'text-anchor="middle">{wing}</text>',
            f'<text x="{x + WIDTH // 2}" y="{y + 36}" font-size="11.5" fill="#445" '
            'text-anchor="middle">'
            f"{escape(what)}</text>",
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(drawn(), encoding="utf-8")
