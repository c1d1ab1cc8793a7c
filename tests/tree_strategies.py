"""Random label trees and name tables for hypothesis, with names that files tend to break."""

from __future__ import annotations

from hypothesis import strategies as st

from hbench.tree import LabelTree
from hbench.tree.names import CONTROL

NASTY = [
    "NA", "None", "nan", "null", "root", "name", "parent", "7", "1.0", "-0", "true", "=1+1", "é",
    "Ж", "漢字", "…",
    "a,b", "a;b", ";", "a:b", ":0.1", "a_b", "_", "a/b", "a\\b", "<a&b>", "&amp;", "%2C", "a%20b",
    '"', '""', "'",
    "''", "it's", '"q"', "(a)", "a)b", "((", "[a]", "[&levels=x]", " a", "a ", "a  b", "a\u00a0b",
    "\u2028",
    "e\u0301", "\U0001f426", "name (parent)", "a, (b)\u200d",
]  # fmt: skip
names = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=6).filter(
        lambda text: not CONTROL.search(text)
    ),
)
level_names = st.lists(
    names.filter(lambda name: name != "parent"), min_size=8, max_size=8, unique=True
)


@st.composite
def label_trees(draw: st.DrawFn) -> LabelTree:
    """A tree of 1 … 8 levels and up to a dozen classes; the names of a level are unique and in no
    order.
    """
    depth = draw(st.integers(1, 8))
    parents_of_level: list[list[int]] = []
    width = 1
    for _ in range(depth):
        branching = draw(
            st.lists(st.integers(1, 3 if width < 6 else 1), min_size=width, max_size=width)
        )
        parents_of_level.append(
            [parent for parent, children in enumerate(branching) for _ in range(children)]
        )
        width = len(parents_of_level[-1])
    named = [
        draw(st.lists(names, min_size=len(parents), max_size=len(parents), unique=True))
        for parents in parents_of_level
    ]
    rows = []
    for leaf in range(width):
        row = [leaf]
        for parents in reversed(parents_of_level[1:]):
            row.append(parents[row[-1]])
        rows.append(row[::-1])
    return LabelTree.from_labels(rows, levels=draw(level_names)[:depth], names=named)[0]


messy_rows = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "NA", "", " a", "a (b)"]), min_size=3, max_size=3),
    min_size=1,
    max_size=12,
)
