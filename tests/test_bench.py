"""`make bench`: its tables have a place in docs/scale.md each, and are written there alone."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
MEASURED = {
    "title": "10 × 2, 2 levels", "threads": 1, "memory": 7.4, "design": "hbench, all metrics",
    "microseconds": 1234.5, "ratio": 1.234, "low": 1.0, "high": 12.3, "whole": 0.123,
    "torch_to_best": 2.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_goes_between_its_marks_and_nowhere_else(bench):
    names = re.findall(r"<!-- make bench: (\w+) -->", PAGE)
    written = bench.replaced(PAGE, {name: f"new {name}" for name in names})
    assert all(f"<!-- make bench: {name} -->\nnew {name}\n<!-- -->" in written for name in names)
    assert bench.replaced(written, dict(zip(names, ["x"] * len(names), strict=True))).count(
        "\nx\n"
    ) == len(names)
    outside = r"<!-- make bench: \w+ -->.*?<!-- -->"
    assert re.sub(outside, "", written, flags=re.DOTALL) == re.sub(
        outside, "", PAGE, flags=re.DOTALL
    )


def test_rows_are_those_of_the_page(bench):
    assert bench.evaluation_row(MEASURED) == (
        "10 × 2, 2 levels: hbench, all metrics",
        "1",
        "1,234",
        "1.23 (1.00 … 12)",
        "2.47",
        "0.1 s",
    )
    assert bench.memory_rows([MEASURED]) == [
        ("peak memory beyond inputs and libraries, 10 × 2, 2 levels", "7 MB")
    ]
    assert bench.table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert "numpy " in bench.machine()


def test_a_benchmark_says_its_rows(bench):
    """The simulation touches no data; its table is that of the page to the last digit."""
    rows = bench.run("scale", ["simulate"])
    assert (
        bench.table(
            ("slow workers", "blocks as tasks (`--scheduler`)", "fixed shares (`--blocks`)"), rows
        )
        in PAGE
    )
