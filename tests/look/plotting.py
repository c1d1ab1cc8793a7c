"""What the tests of plots share: a small dataset on disk, embeddings of it, and how a picture is
read back.
"""

from __future__ import annotations

import io
import json
import re
from xml.etree import ElementTree

import numpy as np
import tomli_w
from PIL import Image

import hbench
from hbench.look.figures import COLUMN, DPI, styled
from hbench.look.plots import PlotRequest, draw
from hbench.submissions import embeddings

LEVELS = ("family", "genus", "species")
HEADS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}
METRICS = [
    "H-AP",
    "HD-first-mistake",
    *(f"{m}/{level}" for m in ("AP", "R@1", "R@10") for level in LEVELS),
]
FILES = {  # of the folder that the fixture `plotted` makes, by the kind of plot that takes them
    "levels": ("one.json", "two.json"), "mistakes": ("one.parquet", "two.parquet"),
    "h-pr": ("one.parquet", "two.parquet"),
    "confusion": ("one.parquet",), "map": ("one.parquet",), "tree": ("own.csv",),
    "curves": ("a", "b"), "trust": ("answers.json",), "sizes": ("sizes.json",), "pareto": ("made.toml",), "time": ("made.toml",),
}  # fmt: skip
NASTY = '--><script>alert(1)</script> $x^2$ & "'


def request(folder, kind, **options):
    """What a kind of plot is given: its files, the dataset where it takes embeddings, and
    options."""
    files = tuple(str(folder / file) for file in FILES[kind])
    dataset = {"dataset": str(folder / "own.csv")} if files[0].endswith(".parquet") else {}
    return PlotRequest(files, **(dataset | options))


def write_table(folder, items=72, family="{}"):
    """A dataset in a table: 2 families, 6 genera, 12 species."""
    rows = []
    for n in range(items):
        own = "ab"[n % 2]
        cells = (f"i{n:03}", family.format(own), f"{own}{n % 6}", f"{own}{n % 6}{n % 12 // 6}")
        rows.append(",".join('"' + cell.replace('"', '""') + '"' for cell in cells))
    path = folder / "own.csv"
    path.write_text("item," + ",".join(LEVELS) + "\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def embedded(path, dataset, noise, seed=0, dim=8):
    """Write vectors near the means of their classes; (N, D)."""
    test = hbench.load(dataset).tests["test"]
    rng = np.random.default_rng(seed)
    vectors = noise * rng.normal(size=(len(test), dim))
    for column in test.labels.T:
        vectors += rng.normal(size=(int(column.max()) + 1, dim))[column]
    vectors = vectors.astype(np.float32)
    embeddings.write(path, test.items.tolist(), vectors)
    return vectors


def ranked_levels(dataset, vectors):
    """Rank by brute force: for every query the levels of the other items, best first."""
    labels = hbench.load(dataset).tests["test"].labels
    vectors = (
        vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1)[:, None]
    )
    found = []
    for query in range(len(labels)):
        others = [item for item in range(len(labels)) if item != query]
        others.sort(key=lambda item: -float(vectors[query] @ vectors[item]))
        found.append([int((labels[item] == labels[query]).cumprod().sum()) for item in others])
    return found


def write_boards(folder):
    """A leaderboard of six rows, one of them unranked, and the logs of two runs."""
    values = [
        (NASTY, 2020, 50, 40),
        ("b", 2021, 60, 45),
        ("c", 2021, 70, 30),
        ("d", 2023, 55, 35),
        ("f", 2024, 99, 99),
    ]
    rows = [
        {"method": method, "year": year, "scores": {"AP": float(ap), "H-AP": float(h_ap)}}
        for method, year, ap, h_ap in values
    ]
    rows[-1]["unranked"] = {"H-AP": "cut"}
    rows.append({"method": "e", "scores": {"AP": 80.0, "H-AP": 20.0}})
    board = {
        "dataset": "made",
        "version": "1",
        "protocol": "paper",
        "levels": ["genus", "species"],
        "metric": "H-AP",
    }
    board["citations"] = {"Us, 2025": {"text": "Us"}}
    board["row"] = [
        row | {"paper": {"citation": "Us, 2025", "table": row["method"]}} for row in rows
    ]
    (folder / "made.toml").write_text(tomli_w.dumps(board), encoding="utf-8")
    for run in ("a", "b"):
        (folder / run).mkdir()
        (folder / run / "log.jsonl").write_text(log_lines(run), encoding="utf-8")


def write_answers(folder):
    """What `hbench name --trust --json` prints of a naming, as far as it is drawn."""
    outcome = {"coverage": 0.6, "risk": 0.05}
    trust = {
        "target": 0.9, "said": 0.8, "haurc": 0.04, **outcome, "fixed": outcome,
        "curve": [[0, 0], [0.5, 0.02], [1, 0.2]],
    }  # fmt: skip
    answers = {"signature": f"{NASTY}@1|test", "trust": trust}
    (folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


def write_sizes(folder):
    """What `hbench evaluate --dims --bits -o` writes, as far as it is drawn."""
    sizes = [
        {
            "signature": f"{NASTY}@1|test", "bytes": size, "bits": bits,
            "scores": {"H-AP": {"value": size / 99}, NASTY: {"value": None}},
        }
        for size, bits in ((64, 32), (16, 8), (2, 1))
    ]  # fmt: skip
    (folder / "sizes.json").write_text(json.dumps({"sizes": sizes}), encoding="utf-8")


def log_lines(run):
    lines = []
    for step in range(2, 11, 2):
        loss = 1 / step + (run == "b")
        terms = {"sup_ap": loss / 2, NASTY: loss}
        lines.append(
            {"step": step, "steps": 10, "steps_per_epoch": 4, "loss": loss, "terms": terms}
        )
        if step % 4 == 0:
            lines.append({"step": step, "scores": {"H-AP": step / 20, "AP": step / 30}})
    # as a killed run leaves it
    return "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 12, "lo'


def luminance(color):
    """Relative luminance of #rrggbb (WCAG)."""
    parts = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (
        0.2126,
        0.7152,
        0.0722,
    )


def check_formats(kind, request):
    """A kind is drawn in every format, the same again, one column wide, with fonts embedded, and no
    edge cuts a text.
    """
    drawings = [draw(kind, request) for _ in range(2)]
    for suffix, head in HEADS.items():
        first, second = (drawing.as_bytes(suffix[1:]) for drawing in drawings)
        assert first.startswith(head)
        assert first == second
    check_svg(drawings[0].as_bytes("svg").decode())
    assert b"/FontFile2" in drawings[0].as_bytes("pdf")
    assert b"/Type3" not in drawings[0].as_bytes("pdf")
    with Image.open(io.BytesIO(drawings[0].as_bytes("png"))) as image:
        assert image.width == int(COLUMN * DPI)
    assert cut_texts(drawings[0]) == []


def words_of(drawing):
    """All text of a drawing's figure."""
    import matplotlib.text

    return [
        text.get_text() for text in drawing.figure.findobj(matplotlib.text.Text) if text.get_text()
    ]


def check_svg(text):
    """An SVG that is well-formed, holds no script and no handler, and loads nothing."""
    root = ElementTree.fromstring(text)
    for node in root.iter():
        assert node.tag.rpartition("}")[2] not in {"script", "foreignObject", "image", "a"}
        for name, value in node.attrib.items():
            assert not name.startswith("on")
            assert not re.match(r"(javascript|https?|file|data):", value)


def cut_texts(drawing):
    """The texts of a drawing that its edges cut."""
    import matplotlib.text
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawing.figure
    with styled():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)]
        ticks = {text for axis in axes for text in axis.findobj(matplotlib.text.Text)}
        shown = [
            text
            for text in figure.findobj(matplotlib.text.Text)
            if text.get_text().strip() and text not in ticks
        ]
        boxes = {text.get_text(): text.get_window_extent(renderer) for text in shown}
        boxes |= {
            f"{axis} of {axis.axes.get_title()}": axis.get_tightbbox(renderer) for axis in axes
        }
        right, top = figure.bbox.x1 + 1, figure.bbox.y1 + 1
        drawn = {name: box for name, box in boxes.items() if box is not None}
        return [
            name
            for name, box in drawn.items()
            if min(box.p0) < -1 or box.x1 > right or box.y1 > top
        ]
