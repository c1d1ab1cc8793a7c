"""`scrape --demo`: a recorded scrape that ships, and a work folder to continue from."""

import pytest
from hbench_hgldv2.labels import recorded_scrape
from hbench_hgldv2.labels.scrape import STATUSES

from tests.command_line import call, refusal
from tests.pipelines.official import rows_of
from tests.pipelines.record_scrape import record

SHIPPED = (recorded_scrape.LANDMARKS, recorded_scrape.ANSWERS)
REASONS = {
    "", "missing", "invalid", "no_item", "item_missing", "meta_item", "combines_topics", "no_class",
}  # fmt: skip


def test_every_outcome_occurs_without_any_server(tmp_path):
    said = call("hgldv2", "--work", tmp_path, "scrape", "--demo").stderr
    assert "the demo asks nobody" in said
    links = rows_of(tmp_path / "scrape-demo" / "links.csv")
    assert {link["status"] for link in links} == set(STATUSES)
    assert {link["reason"] for link in links} == REASONS
    assert {link["via"] for link in links} >= {"sitelink", "redirect", "soft redirect", "P373"}


def test_its_folder_goes_on_to_the_review_page(tmp_path):
    call("hgldv2", "--work", tmp_path, "scrape", "--demo")
    work = tmp_path / "scrape-demo"
    for words in (["clean"], ["encode", "--encoder", "tfidf"], ["cluster", "--k", "8"], ["review"]):
        call("hgldv2", "--work", work, *words)
    statuses = {row["status"] for row in rows_of(work / "selection.csv")}
    assert statuses == {"kept", "ambiguous", "dropped"}
    assert (work / "review.html").exists()


def test_a_second_run_and_a_repetition_from_the_cache_are_up_to_date(tmp_path):
    call("hgldv2", "--work", tmp_path, "scrape", "--demo")
    assert "is up to date" in call("hgldv2", "--work", tmp_path, "scrape", "--demo").stderr
    work = tmp_path / "scrape-demo"
    again = ("--work", work, "scrape", "--raw", work / "raw", "--offline")
    assert "is up to date" in call("hgldv2", *again).stderr


@pytest.mark.parametrize(
    "option", [["--raw", "x"], ["--via", "sparql"], ["--limit", "0"], ["--contact", "a@b.org"]]
)
def test_options_that_say_what_to_scrape_are_refused_next_to_it(option, tmp_path):
    said = refusal("hgldv2", "--work", tmp_path, "scrape", "--demo", *option)
    assert f"--demo with {option[0]}" in said


def test_a_scrape_of_nothing_is_refused(tmp_path):
    said = refusal("hgldv2", "--work", tmp_path, "scrape", "--contact", "a@example.org")
    assert "give --raw FOLDER, or try --demo" in said


def test_the_recording_is_what_the_invented_wikimedia_answers(tmp_path):
    for made, shipped in zip(record(tmp_path), SHIPPED, strict=True):
        assert made.read_bytes() == shipped.read_bytes(), shipped.name


def test_the_recording_is_small():
    assert sum(path.stat().st_size for path in SHIPPED) < 200_000
