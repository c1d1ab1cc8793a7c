"""What is cited in words is found as a paper, and its BibTeX can be read back."""

import re

import pytest

from hbench import boards as leaderboard
from hbench.datasets import specs
from hbench.datasets.metadata.publications import (
    VENUE_FIELD,
    bibtex,
    cited,
    publication_of,
    publications,
)

pytestmark = pytest.mark.fast

NO_PAPERS = {"GLDv2 README", "OML model zoo", "revisitop README"}


def test_the_papers_of_the_boards_the_losses_and_the_datasets_are_known():
    from hbench.losses import loss_entry, losses

    boards = map(leaderboard.read_board, leaderboard.board_names())
    texts = {key: source.text for board in boards for key, source in board.citations.items()}
    texts |= {name: loss_entry(name).paper for name in losses}
    unknown = {name for name, text in texts.items() if publication_of(text) is None}
    assert unknown & {"sup_hap", "HAPPIER, ECCV 2022", "arcface", "HIER, CVPR 2023"} == set()
    assert {
        name for name in unknown if re.search("(CVPR|ECCV|ICCV|NeurIPS|TPAMI)", texts[name])
    } == set()
    assert unknown >= NO_PAPERS & set(texts)
    authors = {name: [paper.authors for paper in cited(specs[name].citation)] for name in specs}
    assert {name for name, papers in authors.items() if not papers or not all(papers)} == set()


def test_a_citation_means_its_paper_which_has_one_entry_however_often_it_is_cited():
    assert (
        bibtex(
            {"a": "Sun et al., CVPR 2021", "b": "Sun et al., Dynamic metric learning, CVPR 2021"}
        ).count("@")
        == 1
    )
    for citation, keys in (
        ("Sun et al., CVPR 2021", ["sun2021dynamic"]),
        (
            "Van Horn et al., The iNaturalist dataset, CVPR 2018; split: Brown et al., Smooth-AP, "
            "ECCV 2020",
            2,
        ),
        ("HAPPIER (ECCV 2022) Table 1, ΣNCA++", ["ramzi2022happier"]),
        ("Wang et al., CVPR 2020", ["wang2020xbm"]),
        ("somebody's README", []),
    ):
        found = [each.key for each in cited(citation)]
        assert len(found) == keys if isinstance(keys, int) else found == keys


def test_every_entry_can_be_printed_and_has_what_its_kind_asks_for():
    assert len({paper.key for paper in publications()}) == len(publications())
    for paper in publications():
        text = bibtex({"x": paper.cited[0]})
        assert text.startswith(f"@{paper.kind}{{{paper.key},\n"), paper
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", text, re.MULTILINE))
        if paper.kind != "misc":
            assert {"title", "author", "year", VENUE_FIELD[paper.kind]} <= set(fields)
        assert text.count("{") == text.count("}")
        assert not re.search(r'(?<!\\)[&%$#_"]', "".join(fields.values()))
