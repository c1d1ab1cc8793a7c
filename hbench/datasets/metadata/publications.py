"""Finds the publication that a short citation means, and writes BibTeX.

Specs, losses and leaderboards cite in words ("Sun et al., CVPR 2021"). Authors, title and venue of
a paper are stored in the SPEC of its dataset, or in `publications.toml`. Any other source, such as
a README, becomes a plain note.

>>> publication_of("HAPPIER (ECCV 2022) Eq. 6").key
'ramzi2022happier'
>>> print(bibtex({"mine": "Me & You, Here 2026 (arXiv 2601.01234)"}), end="")
@misc{mine,
  title = {{mine}},
  note = {Me \\& You, Here 2026 (arXiv 2601.01234)},
  year = {2026},
  eprint = {2601.01234},
  archiveprefix = {arXiv}
}
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from hbench.core.untrusted import parse_toml
from hbench.datasets.spec import Publication, specs

VENUE_FIELD = {
    "article": "journal",
    "inproceedings": "booktitle",
    "techreport": "institution",
    "misc": "howpublished",
}
YEAR = re.compile(r"\b(?:19|20)\d\d\b(?!\.)")  # not before a dot, as in arXiv's 2004.01804


@cache
def publications() -> tuple[Publication, ...]:
    """Return all known publications: those of methods in publications.toml, and the papers of
    datasets, of which those with the same key count once."""
    text = resources.files(__package__).joinpath("publications.toml").read_text(encoding="utf-8")
    of_methods = [Publication(key=key, **entry) for key, entry in parse_toml(text).items()]
    of_datasets = {paper.key: paper for name in specs for paper in specs[name].papers}
    return (*of_methods, *of_datasets.values())


def publication_of(citation: str) -> Publication | None:
    """Find the publication that a citation means; None if no known publication fits.

    A publication has some phrases that identify it (`cited`), and fits if the citation contains one
    of them, in any case of letters. Of several publications, the one with the longest such phrase
    is taken.
    """
    papers = [
        (len(phrase), paper)
        for paper in publications()
        for phrase in paper.cited
        if phrase.lower() in citation.lower()
    ]
    return max(papers, key=lambda pair: pair[0])[1] if papers else None


def cited(citation: str) -> list[Publication]:
    """Find the publications of a citation that may name several, separated by "; "."""
    return [paper for part in citation.split("; ") if (paper := publication_of(part)) is not None]


def bibtex(citations: Mapping[str, str]) -> str:
    """Write BibTeX for {short name: citation in words}, sorted by key; "" for no citations.

    A known publication gets one entry, even if it is cited several times. Any other source becomes
    @misc, with the citation as its note.
    """
    cited = [
        publication_of(text) or _publication_of_unknown(name, text)
        for name, text in citations.items()
    ]
    papers = {paper.key: paper for paper in cited}
    return "\n".join(_bibtex_entry(papers[key]) for key in sorted(papers))


def _publication_of_unknown(name: str, text: str) -> Publication:
    """Make a publication of an unknown source, with its year and its number on arXiv if the text
    has them."""
    key = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    # a year in the short name goes before one in the text; the last one is taken, since earlier
    # ones may be part of a title
    years = YEAR.findall(name) or YEAR.findall(text)
    arxiv = re.findall(r"arXiv[ :](\d{4}\.\d{4,5})", text)
    year = int(years[-1]) if years else None
    number = next(iter(arxiv), "")
    return Publication(
        key=key, kind="misc", title=name, authors=(), cited=(), year=year, note=text, arxiv=number
    )


def _bibtex_entry(paper: Publication) -> str:
    """Write a publication as an entry of BibTeX, without empty fields.

    Titles and names of groups get a second pair of braces, so that BibTeX changes no capitals in a
    title and does not split the name of a group.
    """
    fields = {
        "title": f"{{{_for_tex(paper.title)}}}",
        # a person is "Family, Given"; a name without a comma is that of a group
        "author": " and ".join(
            _for_tex(name) if "," in name else f"{{{_for_tex(name)}}}" for name in paper.authors
        ),
        VENUE_FIELD[paper.kind]: _for_tex(paper.venue),
        "note": _for_tex(paper.note),
        "volume": paper.volume,
        "number": paper.number,
        "pages": paper.pages,
        "year": "" if paper.year is None else str(paper.year),
        "eprint": paper.arxiv,
        "archiveprefix": "arXiv" if paper.arxiv else "",
    }
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items() if value)

    return f"@{paper.kind}{{{paper.key},\n{lines}\n}}\n"


def _for_tex(text: str) -> str:
    """Escape a text so that TeX prints it unchanged. A straight double quote becomes two single
    ones, which TeX prints as closing quotes."""
    named = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        '"': "''",
    }
    return "".join(named.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)
