"""The cause that is named for ids spelt otherwise: it mends them, whatever was drawn, and it is
found quickly.
"""

import time
import unicodedata
import uuid
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hbench
from hbench.core.errors import SubmissionError
from hbench.submissions.embeddings.spellings import likely_cause
from hbench.submissions.embeddings.spellings.rewritings import REWRITINGS

WORDS = st.text("abcdeXYZ01289", min_size=1, max_size=6)
FOLDERS = st.lists(WORDS, max_size=2).map(lambda parts: "".join(f"{part}/" for part in parts))
PATHS = st.builds(
    lambda folder, word, number: f"{folder}im {word}-é{number}.jpg",
    FOLDERS,
    WORDS,
    st.integers(0, 999),
)
NUMBERED = st.integers(0, 9999).map(lambda number: f"{number:06}")
IDS = st.one_of(
    st.lists(PATHS, min_size=2, max_size=30, unique=True),
    st.lists(NUMBERED, min_size=2, max_size=30, unique=True),
    st.lists(st.uuids().map(str), min_size=2, max_size=30, unique=True),
)
CHANGES = {
    "case": str.upper,
    "suffix": lambda name: name.rpartition(".")[0] or name,
    "other suffix": lambda name: f"{name}.npy",
    "folder": lambda name: f"/data/x/{name}",
    "no folder": lambda name: name.rpartition("/")[2],
    "Unicode": lambda name: unicodedata.normalize("NFD", name),
    "address": quote,
    "underscore": lambda name: name.replace(" ", "_"),
    "zeros": lambda name: name.lstrip("0") or "0",
    "dashes": lambda name: name.replace("-", ""),
    "bytes": lambda name: str(name.encode()),
    "repr": repr,
    "quotes": lambda name: f'"{name}"',
    "tensor": lambda name: f"tensor({name})",
    "numpy": lambda name: f"np.str_({name!r})",
    "a list of one": lambda name: f"[{name!r}]",
    "mojibake": lambda name: name.encode().decode("latin-1"),
    "backslashes": lambda name: name.replace("/", "\\"),
    "blanks": lambda name: f"  {name}\t",
}


def after(first, second):
    return lambda name: second(first(name))


def named(cause):
    """The rewritings of the name that a cause gives, as one function of each side; None where it
    states an affix.
    """
    for name in sorted({rewriting.name for rewriting in REWRITINGS}, key=len, reverse=True):
        if cause.startswith(f"ids differ by {name}:"):
            return [(each.of_wanted, each.of_unknown) for each in REWRITINGS if each.name == name]
    for first in REWRITINGS:
        for second in REWRITINGS:
            if cause.startswith(f"ids differ by {first.name} and {second.name}:"):
                pairs = [
                    (a, b)
                    for a in REWRITINGS
                    for b in REWRITINGS
                    if {a.name, b.name} == {first.name, second.name}
                ]
                return [
                    (after(a.of_wanted, b.of_wanted), after(a.of_unknown, b.of_unknown))
                    for a, b in pairs
                ]
    return None


def mended(cause, unknown, wanted):
    """The wanted id of each unknown one, by what a cause says, in the best of the ways that have
    its name.
    """
    affixes = {
        "ids lack the ending ": lambda name, affix: name + affix,
        "ids have an extra ending ": lambda name, affix: name.removesuffix(affix),
        "ids lack the beginning ": lambda name, affix: affix + name,
        "ids have an extra beginning ": lambda name, affix: name.removeprefix(affix),
    }
    for start, mend in affixes.items():
        if cause.startswith(start):
            affix = eval(cause[len(start) :].split(": ")[0])
            return [mend(name, affix) for name in unknown]
    ways = []
    for of_wanted, of_unknown in named(cause):
        by = {of_wanted(name): name for name in wanted}
        ways.append([by.get(of_unknown(name)) for name in unknown])
    return max(
        ways, key=lambda way: sum(name == right for name, right in zip(way, wanted, strict=True))
    )


@settings(max_examples=300, deadline=None)
@given(IDS, st.sampled_from(sorted(CHANGES)))
def test_the_cause_that_is_named_mends_the_ids(ids, change):
    changed = [CHANGES[change](name) for name in ids]
    assume(len({*changed, *ids}) == 2 * len(ids))
    cause = likely_cause(ids, changed)
    assert cause is not None
    found = mended(cause, changed, ids)
    assert sum(name == right for name, right in zip(found, ids, strict=True)) >= 0.9 * len(ids), (
        cause
    )


@settings(max_examples=300, deadline=None)
@given(IDS, st.lists(st.sampled_from(sorted(CHANGES)), min_size=2, max_size=2, unique=True))
def test_two_changes_at_once_are_named_together(ids, changes):
    first, second = changes
    changed = [CHANGES[second](CHANGES[first](name)) for name in ids]
    assume(len({*changed, *ids}) == 2 * len(ids))
    cause = likely_cause(ids, changed)
    # where file names alone meet, no pair is said to be right
    if cause is not None and "in other folders" not in cause:
        found = mended(cause, changed, ids)
        assert sum(name == right for name, right in zip(found, ids, strict=True)) >= len(ids) / 2, (
            cause
        )


PAIRS = [
    ("case", "suffix"), ("case", "underscore"), ("no folder", "suffix"), ("folder", "case"),
    ("backslashes", "case"),
    ("suffix", "underscore"), ("zeros", "other suffix"), ("dashes", "case"), ("mojibake", "suffix"),
    ("quotes", "case"),
    ("other suffix", "bytes"), ("no folder", "case"),
]  # fmt: skip


@pytest.mark.parametrize("changes", PAIRS, ids=" and ".join)
def test_pairs_of_changes_are_found(changes):
    ids = [f"a/b/0im {number:03}-é{number % 7}.jpg" for number in range(50)]
    if "zeros" in changes:
        ids = [f"{number:05}" for number in range(50)]
    changed = ids
    for change in changes:
        changed = [CHANGES[change](name) for name in changed]
    assert mended(likely_cause(ids, changed), changed, ids) == ids


UUIDS = [str(uuid.UUID(int=7**40 * (number + 3))) for number in range(20)]


@pytest.mark.parametrize(
    ("ids", "change", "cause"),
    [
        (
            [f"{n:05}" for n in range(20)],
            lambda name: str(int(name)),
            "ids differ by leading zeros: '0' should be '00000'",
        ),
        (
            [f"im{n:04}.jpg" for n in range(20)],
            lambda name: f"im{int(name[2:6])}.jpg",
            "ids differ by leading zeros: 'im0.jpg'",
        ),
        (UUIDS, CHANGES["dashes"], "ids differ by dashes: "),
        (
            [f"im g{n}.jpg" for n in range(20)],
            CHANGES["underscore"],
            "ids differ by underscores for blanks: 'im_g0.jpg' should",
        ),
        (
            [f"im g{n}.jpg" for n in range(20)],
            quote,
            "ids differ by the quoting of addresses (%20): 'im%20g0.jpg' should",
        ),
        (
            [f"{n}.jpg" for n in range(20)],
            CHANGES["bytes"],
            "ids differ by the byte strings (b'…') that",
        ),
        (
            [str(n) for n in range(20)],
            CHANGES["tensor"],
            "ids differ by what Python prints around them: 'tensor(0)' should be '0'",
        ),
        (
            [f"é{n}" for n in range(20)],
            CHANGES["mojibake"],
            "ids differ by UTF-8 that was read as Latin-1: ",
        ),
        (
            [f"a/{n}.jpg" for n in range(20)],
            lambda name: name.replace("/", "_"),
            "ids differ by underscores for slashes: ",
        ),
        (
            [f"{n}" for n in range(20)],
            lambda name: f"{name}.0",
            "ids have an extra ending '.0': '0.0' should be '0'",
        ),
    ],
)
def test_what_tools_do_to_names_is_named(ids, change, cause):
    assert likely_cause(ids, [change(name) for name in ids]).startswith(cause)


def test_the_cause_reaches_who_evaluates(tmp_path):
    rows = [(f"{number:05}", "ab"[number % 2]) for number in range(20)]
    (tmp_path / "t.csv").write_text(
        "item,class\n" + "".join(f"{item},{name}\n" for item, name in rows)
    )
    columns = {"id": [str(number) for number in range(20)], "embedding": np.eye(20).tolist()}
    pq.write_table(pa.table(columns), tmp_path / "e.parquet")
    with pytest.raises(SubmissionError, match="'0' should be '00000'") as caught:
        hbench.evaluate(tmp_path / "e.parquet", tmp_path / "t.csv")
    assert "row numbers" not in str(caught.value)


def test_numbers_that_are_not_found_are_not_called_row_numbers_where_ids_are_numbers():
    assert (
        likely_cause(
            [str(number) for number in range(500, 540)], [str(number) for number in range(40)]
        )
        is None
    )


def test_names_that_repeat_in_every_folder_are_told_that_theirs_is_lacking():
    wanted = [f"c{number // 50}/{number % 50}.jpg" for number in range(5000)]
    cause = likely_cause(wanted, [name.partition("/")[2] for name in wanted])
    assert cause.startswith("ids differ by the leading folder: '0.jpg' should be 'c0/0.jpg'")


def test_the_ids_named_for_a_leading_folder_differ_by_nothing_else():
    """Two pictures of two classes may share their file name alone."""
    mine = [f"birds/bird {kind}/img_{number}.png" for kind in range(9) for number in range(5)]
    causes = [
        likely_cause(
            [
                f"pictures/birds/bird {kind}/img_{number}.png"
                for kind in kinds
                for number in range(5)
            ],
            mine,
        )
        for kinds in (range(6, 18), range(9, 18))  # a third of them, and none
    ]
    assert causes == [
        "ids differ by the leading folder: 'birds/bird 6/img_0.png' should be "
        "'pictures/birds/bird 6/img_0.png'",
        "ids have the file names of the wanted ones, in other folders: 'birds/bird 0/img_0.png' "
        "and 'pictures/birds/bird 9/img_0.png'",
    ]


def test_a_cause_is_found_among_very_many_ids_in_seconds():
    wanted = [f"train/n{number // 500:04}/{number % 500}.JPEG" for number in range(300_000)]
    start = time.monotonic()
    assert likely_cause(wanted, [name.lower().replace("/", "\\") for name in wanted]) is not None
    assert time.monotonic() - start < 10
