"""Explains ids that are spelt differently from the dataset's, such as with another suffix.

A rewriting undoes what files, tools and languages add to a name or change in it. Rewritings, and
pairs of them, are tried in turn on the wanted ids, on those of the file, or on both. The first one
that makes nine tenths of the ids equal is named, with a pair of ids; else one that makes half of
them equal.

>>> likely_cause(["00007", "00012"], ["7", "12"])
"ids differ by leading zeros: '7' should be '00007'"
>>> likely_cause(["a b/x.jpg", "a b/y.jpg"], ["a_b/X.jpg", "a_b/Y.jpg"])
"ids differ by letter case and underscores for blanks: 'a_b/X.jpg' should be 'a b/x.jpg'"
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Literal
from unicodedata import normalize

from hbench.core.errors import examples, shorten
from hbench.submissions.embeddings.spellings.rewritings import (
    OF_FOLDERS,
    REWRITINGS,
    Rewriting,
    Spelling,
    letters_of,
)

SAMPLE = 1000  # ids of the shorter list that are looked for in the longer one
PAIR_SAMPLE = 100  # of these, on which pairs of rewritings are tried first
CANDIDATES = 20_000  # most ids of the longer list with the letters of one in the sample
NEARLY_ALL = 0.9
HALF = 0.5
NAMES = [rewriting.name for rewriting in REWRITINGS]


def likely_cause(missing: Sequence[str], unknown: Sequence[str]) -> str | None:
    """Explain unknown ids by a rewriting that makes them equal to missing ones, in words; None if
    there is none.

    A sample of the shorter list is compared with those ids of the longer list that have the same
    letters and digits.
    """
    if not missing or not unknown:
        return None

    shorter, longer = sorted((missing, unknown), key=len)
    mirrored = shorter is unknown  # whether the sample has unknown ids, and not missing ones
    sample = shorter[:: max(1, len(shorter) // SAMPLE)][:SAMPLE]  # evenly over the list
    names, others = _with_same_letters(sample, longer, CANDIDATES)
    # in turn: one rewriting, two rewritings, row numbers, one rewriting that explains half of them
    search = partial(_pairs_by_first_rewriting, names, others, mirrored=mirrored)
    # pairs (unknown, wanted) of ids, and the rewriting that makes them equal, in words; or None
    found = search(REWRITINGS, NEARLY_ALL) or search(
        _rewritings_by_two(names, others, mirrored=mirrored), NEARLY_ALL
    )
    if not found and _are_row_numbers(missing, unknown):
        return (
            "ids look like row numbers: give the items' names, such as "
            f"{examples(map(repr, missing), most=2)}"
        )

    if found:
        return _in_words(*found)
    found = search(REWRITINGS, HALF)
    if not found:
        return None
    pairs, difference = found
    if difference in OF_FOLDERS:  # a rewriting that ignores folders
        # equal file names of only half of them prove little, since many folders may have a 1.jpg:
        # a pair is suggested only if one path is the other without leading folders
        spelling = OF_FOLDERS[difference]  # rewrites ids so that their folders can be compared
        below = _pairs_below_folders(names, others, spelling, mirrored=mirrored)
        if not below:
            met = " and ".join(shorten(repr(name)) for name in pairs[0])
            return f"ids have the file names of the wanted ones, in other folders: {met}"
        pairs = below + pairs  # the first pair is shown
    return _in_words(pairs, difference)


def _are_row_numbers(missing: Sequence[str], unknown: Sequence[str]) -> bool:
    """Whether all unknown ids are numbers while the missing ones are not. Otherwise numbers may be
    proper ids."""
    are_numbers = all(name.isdecimal() for name in unknown[:SAMPLE])
    are_wanted_so = all(name.isdecimal() for name in missing[:SAMPLE])
    return are_numbers and not are_wanted_so


def _with_same_letters(
    sample: Sequence[str], longer: Iterable[str], most: int
) -> tuple[list[str], list[str]]:
    """The sample, each name once, and the names of the longer list that have the same letters and
    digits as one of the sample. If these are more than `most`, the sample is made smaller.
    """
    sample = list(dict.fromkeys(sample))
    found = _with_letters_of(sample, longer)
    # Many names may have the same letters, such as numbers that restart in every folder. The sample
    # is reduced in proportion, to at least 20 names.
    if len(found) > most:
        sample = sample[: max(20, len(sample) * most // len(found))]
        found = _with_letters_of(sample, found)
    return sample, found


def _with_letters_of(sample: Sequence[str], names: Iterable[str]) -> list[str]:
    """The names, each once, that have the same letters and digits as some name of the sample. No
    rewriting could make any other name equal to one of the sample."""
    known = {key for name in sample for key in letters_of(name)}
    return list(dict.fromkeys(name for name in names if not known.isdisjoint(letters_of(name))))


def _pairs_by_first_rewriting(
    sample: list[str],
    others: list[str],
    rewritings: Iterable[Rewriting],
    share: float,
    *,
    mirrored: bool,
) -> tuple[list[tuple[str, str]], str] | None:
    """The pairs (unknown, wanted) of ids that a rewriting makes equal, and the rewriting's name;
    None if no rewriting does.

    The first of the `rewritings` is taken that makes the given share of the sample equal to one of
    the `others`. The sample has wanted ids and `others` unknown ones; if `mirrored`, the
    sample has unknown ids and `others` wanted ones."""
    if not others:
        return None
    for rewriting in rewritings:
        # At NEARLY_ALL a name with several partners is no pair. At HALF, a lower share, each name
        # has one of its partners: names such as the 1.jpg of many folders still show the rewriting.
        pairs = _pairs_that_meet(
            sample, others, rewriting, mirrored=mirrored, only_one=share == NEARLY_ALL
        )
        if len(pairs) >= share * len(sample):
            return pairs, rewriting.name
    return None


def _rewritings_by_two(
    sample: list[str], others: list[str], *, mirrored: bool
) -> Iterator[Rewriting]:
    """Yield pairs of rewritings, each as one rewriting, that make most of a smaller sample equal to
    others. Trying all pairs on the whole sample would take long.

    Unknown ids are those of a file that the dataset does not have, wanted ids those of the dataset
    that the file lacks. `mirrored`: whether the sample has unknown ids and `others` wanted ones,
    else it is the other way round.
    """
    # `few`: at most PAIR_SAMPLE ids of the sample; `near`: the others with the same letters and
    # digits as one of them, as only these can become equal. If these are more than ten times
    # PAIR_SAMPLE, the few become fewer in proportion. Most of the few must find a partner.
    few, near = _with_same_letters(
        sample[:: max(1, len(sample) // PAIR_SAMPLE)][:PAIR_SAMPLE], others, 10 * PAIR_SAMPLE
    )
    for first, second in permutations(REWRITINGS, 2):
        both = Rewriting(
            # one name for both orders of two rewritings, in the order of REWRITINGS
            " and ".join(sorted((first.name, second.name), key=NAMES.index)),
            _one_after_the_other(first.of_wanted, second.of_wanted),
            _one_after_the_other(first.of_unknown, second.of_unknown),
        )
        # rewritings of one name are variants of the same mend, such as of one side or of both
        if first.name != second.name:
            # ids that become equal to several others prove nothing
            pairs = _pairs_that_meet(few, near, both, mirrored=mirrored, only_one=True)
            if len(pairs) >= NEARLY_ALL * len(few):
                yield both


def _one_after_the_other(first: Spelling, second: Spelling) -> Spelling:
    """A function that applies both functions to a name, one after the other."""
    return lambda name: second(first(name))


def _pairs_that_meet(
    sample: Sequence[str],
    others: Sequence[str],
    rewriting: Rewriting,
    *,
    mirrored: bool,
    only_one: bool,
) -> list[tuple[str, str]]:
    """The pairs (unknown, wanted) of different names that a rewriting makes equal. If `only_one`,
    names with several partners are skipped. `mirrored`: the sample has unknown names, and
    `others` wanted ones; if not, the sample has wanted names, and `others` unknown ones."""
    # the sample's names are rewritten as wanted ones or, if `mirrored`, as unknown ones
    of_sample, of_others = rewriting.of_wanted, rewriting.of_unknown
    if mirrored:
        of_sample, of_others = of_others, of_sample
    # from the rewritten to the original name; None if `only_one`, and several names become equal
    partners: dict[str, str | None] = {}
    for name in others:
        common = of_others(name)
        if common not in partners:
            partners[common] = name
        elif only_one:
            partners[common] = None

    mine = [(name, of_sample(name)) for name in sample]
    counts = Counter(common for _, common in mine)
    met = [
        (name, partners.get(common)) for name, common in mine if not only_one or counts[common] == 1
    ]
    return [
        (name, partner) if mirrored else (partner, name)  # the unknown name first
        for name, partner in met
        if partner is not None and partner != name
    ]


def _pairs_below_folders(
    sample: Sequence[str], others: Sequence[str], spelling: Spelling, *, mirrored: bool
) -> list[tuple[str, str]]:
    """The pairs (unknown, wanted) in which one path is the other without some leading folders, once
    both are rewritten by `spelling`. `mirrored`: whether the unknown names are in the sample and
    the wanted ones in `others`, and not the other way round."""
    # from the rewritten name, and from each end of it (b/c and c for a/b/c), to the original name
    whole = {spelling(name): name for name in others}
    ends = {end: name for path, name in whole.items() for end in _ends_of(path)}
    met = []
    for name in sample:
        path = spelling(name)  # it may be the end of another path, or have one as its own end
        other = ends.get(path) or next(filter(None, map(whole.get, _ends_of(path))), None)
        if other is not None:
            met.append((name, other) if mirrored else (other, name))
    return met


def _ends_of(path: str) -> Iterator[str]:
    """Yield a path without its first folder, without its first two, and so on: for a/b/c, these are
    b/c and c."""
    while path := path.partition("/")[2]:
        yield path


def _in_words(pairs: list[tuple[str, str]], difference: str) -> str:
    """The difference in words, with the first pair. If all pairs (unknown, wanted) differ by the
    same text, that text is named."""
    unknown, wanted = pairs[0]
    how = _shared_affix(pairs) or f"differ by {difference}"
    # of letters that look alike, only the names of their forms tell one from the other
    forms = [f" ({form})" if form else "" for form in _forms(unknown, wanted)]
    return (
        f"ids {how}: {shorten(repr(unknown))}{forms[0]} should be {shorten(repr(wanted))}{forms[1]}"
    )


def _forms(unknown: str, wanted: str) -> tuple[str, str]:
    """The Unicode normal forms of two names that look alike, NFC or NFD; "" for both if they differ
    by more than that, or if a name mixes forms."""
    pairs: tuple[tuple[Literal["NFC", "NFD"], Literal["NFC", "NFD"]], ...]
    pairs = (("NFC", "NFD"), ("NFD", "NFC"))
    for given, right in pairs:
        alike = normalize(right, unknown) == wanted and normalize(given, wanted) == unknown
        if alike and unknown != wanted:
            return given, right
    return "", ""


def _shared_affix(pairs: list[tuple[str, str]]) -> str:
    """The text that all pairs (unknown, wanted) lack, or have too much, at one end; "" if they
    share none."""
    for how, part in AFFIXES:
        parts = {part(*pair) for pair in pairs}
        if len(parts) == 1 and parts != {""}:
            return f"{how} {shorten(repr(min(parts)))}"
    return ""


AFFIXES: tuple[tuple[str, Callable[[str, str], str]], ...] = (
    (
        "lack the ending",
        lambda unknown, wanted: wanted[len(unknown) :] if wanted.startswith(unknown) else "",
    ),
    (
        "have an extra ending",
        lambda unknown, wanted: unknown[len(wanted) :] if unknown.startswith(wanted) else "",
    ),
    (
        "lack the beginning",
        lambda unknown, wanted: wanted.removesuffix(unknown) if wanted.endswith(unknown) else "",
    ),
    (
        "have an extra beginning",
        lambda unknown, wanted: unknown.removesuffix(wanted) if unknown.endswith(wanted) else "",
    ),
)
