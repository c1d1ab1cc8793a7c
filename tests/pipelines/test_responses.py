"""What recorded responses of the real Wikimedia mean."""

import json
from pathlib import Path

import pytest
from hbench_hgldv2.labels import scrape
from hbench_hgldv2.wikimedia.api import best, entities_of, names_of, pages_of, soft_redirect
from hbench_hgldv2.wikimedia.facts import MISSING, Entity, FactSource, Named, Page, title_of
from hbench_hgldv2.wikimedia.query_service import bindings_of, iri_of
from hbench_hgldv2.wikimedia.responses import Again, Good, Refused, TooLong, judge

from hbench.core.errors import DataError, SourceError

pytestmark = pytest.mark.fast

GOLDEN = Path(__file__).parents[1] / "golden" / "wikimedia"


def recorded(name):
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def judged(name, headers=None):
    return judge(200, headers or {}, (GOLDEN / name).read_bytes(), now=0.0)


def test_maxlag_is_retried_after_five_seconds_or_as_long_as_asked_and_an_invalid_id_refuses_its_batch():
    for name in ("error_maxlag_short.json", "error_maxlag_wikidata_queryservice_lag.json"):
        for header, wait in ({}, 5.0), ({"Retry-After": "2"}, 5.0), ({"Retry-After": "7.5"}, 7.5):
            assert judged(name, header).wait == wait
    for name in ("error_no_such_entity_Q0.json", "error_no_such_entity_bogus.json"):
        assert isinstance(judged(name), Refused)


def test_unrecognised_parameters_stop_the_run_and_other_warnings_do_not():
    with pytest.raises(SourceError, match="Unrecognized parameter: 'rmparam'"):
        judged("warnings_fv1.json")
    with pytest.raises(SourceError, match="did not understand"):
        judge(200, {}, warning('Unrecognized value for parameter "x"'), now=0.0)
    harmless = warning("Subscribe to the mailing list")
    assert judge(200, {}, harmless, now=0.0) == Good(
        json.loads(harmless), ("Subscribe to the mailing list",)
    )


def warning(text):
    return json.dumps({"batchcomplete": True, "warnings": {"main": {"warnings": text}}}).encode()


def test_busy_servers_are_asked_again_when_they_say():
    in_1970 = "Thu, 01 Jan 1970 00:01:40 GMT"
    waits = [
        (None, 0.0, 0.0),
        ("3", 0.0, 3.0),
        ("0.25", 0.0, 0.25),
        (in_1970, 40.0, 60.0),
        (in_1970, 400.0, 0.0),
    ]
    for header, now, wait in (*waits, ("soon", 0.0, 0.0)):
        headers = {"Retry-After": header} if header else {}
        for status in (408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524):
            assert judge(status, headers, b"<html>", now=now) == Again(f"HTTP {status}", wait)


def test_other_answers_are_final():
    for status, body, problem in (
        (403, b"Please set a user-agent", "refuses this client"),
        (301, b"", "HTTP 301"),
        (200, b'{"error": {"code": "badvalue", "info": "x"}}', "badvalue"),
    ):
        with pytest.raises(SourceError, match=problem):
            judge(status, {}, body, now=0.0)
        assert isinstance(judge(414, {}, b"", now=0.0), TooLong)


def test_errors_that_pass_and_answers_that_are_not_json_objects_are_asked_for_again():
    codes = [
        "ratelimited",
        "readonly",
        "cirrussearch-too-busy-error",
        "internal_api_error_MWException",
    ]
    databases = ("DBQueryTimeoutError", "Wikimedia\\Rdbms\\DBQueryError")
    for code in (*codes, *(f"internal_api_error_{name}" for name in databases)):
        body = json.dumps({"error": {"code": code, "info": "later"}}).encode()
        assert judge(200, {"Retry-After": "7"}, body, now=0) == Again(f"{code}: later", 7.0)
    for body in (b"<!DOCTYPE html>", b'{"query": {"pages": [', b"", b"[]", b"\xff\xfe"):
        assert isinstance(judge(200, {}, body, now=0.0), Again)


def test_recorded_pages_are_followed_by_name_through_normalisation_and_redirects():
    page = Page("Douglas Adams", "redirected", "Q42", "redirect")
    redirect = recorded("query_pageprops_redirect_fv2_trimmed.json")
    assert pages_of([redirect], ["Adams, Douglas"]) == {"Adams, Douglas": page}
    name = "File:Albert_Einstein_Head.jpg"
    normalized = {name: Page("File:Albert Einstein Head.jpg", "no_item")}
    assert pages_of([recorded("query_normalized_fv1.json")], [name]) == normalized
    titles = ["File:Not Found Either", "File:Not Found"]
    assert pages_of([recorded("query_missing_twice_fv1.json")], titles) == {
        t: Page(t, "missing") for t in titles
    }
    circle = {"query": {"redirects": [{"from": "A", "to": "B"}, {"from": "B", "to": "A"}]}}
    assert pages_of([circle], ["A"])["A"].status == "missing"
    found = pages_of(
        [recorded("query_pageprops_disambiguation_fv2_trimmed.json")],
        ["Douglas Adams (disambiguation)"],
    )
    assert found["Douglas Adams (disambiguation)"].item == "Q5301194"


def test_continuations_chains_invalid_titles_and_other_wikis_are_a_verdict_for_their_title_alone():
    chain = [{"from": "A", "to": "B"}, {"from": "B", "to": "C"}]
    elsewhere = {"from": "Category:A", "to": "de:Kategorie:A", "tointerwiki": "de"}
    pages = [
        {"title": "C"},
        {"title": "D"},
        {"title": "Category:C", "pageprops": {"wikibase_item": "Q3"}},
    ]
    first = {
        "redirects": [*chain, elsewhere],
        "interwiki": [{"title": "de:B", "iw": "de"}],
        "pages": pages,
    }
    known = [
        {"title": "C", "pageprops": {"wikibase_item": "Q1"}},
        {"title": "D"},
        {"title": "<", "invalid": True},
    ]
    verdicts = dict.fromkeys("AB", Page("C", "redirected", "Q1", "redirect"))
    verdicts |= {title: Page(title, "no_item") for title in ("D", "Category:A")}
    verdicts |= {title: Page(title, "invalid") for title in ("<", "de:B")}
    verdicts |= {"Category:C": Page("Category:C", "found", "Q3", "sitelink")}
    assert pages_of([{"query": first}, {"query": {"pages": known}}], list(verdicts)) == verdicts
    with pytest.raises(SourceError, match="did not answer for 'Category:X'"):
        pages_of([recorded("query_missing_twice_fv1.json")], ["Category:X"])


def test_recorded_entities_give_best_statements_only():
    bielefeld = recorded("entity_place_multi_P31_trimmed.json")
    found = entities_of([{"entities": {"Q2112": bielefeld}}], ["Q2112"])["Q2112"]
    ranks = {
        s["mainsnak"]["datavalue"]["value"]["id"]: s["rank"] for s in bielefeld["claims"]["P31"]
    }
    top = "preferred" if "preferred" in ranks.values() else "normal"
    assert (found.n_classes, len(found.classes)) == (6, 5)
    assert set(found.classes) == {qid for qid, rank in ranks.items() if rank == top}
    assert found.revision == bielefeld["lastrevid"]
    sandbox = recorded("entity_ranks_preferred_deprecated.json")
    assert list(best(sandbox["claims"]["P135"])) == ["Q2044250"]
    assert (
        best(recorded("wbgetentities_novalue_snak.json")["entities"]["Q483718"]["claims"]["P576"])
        == {}
    )


def test_raw_labels_are_what_an_infobox_prints():
    def snak(**value):
        return {"snaktype": "value", "datavalue": {"value": value}}

    def instance(qid, **qualifiers):
        return {"rank": "normal", "mainsnak": snak(id=qid), "qualifiers": qualifiers}

    built, closed = (
        snak(time="+1630-00-00T00:00:00Z", precision=8),
        snak(time="+1976-01-01T00:00:00Z", precision=9),
    )
    statements = [
        instance("Q1", P580=[built], P582=[closed]),
        instance(
            "Q2", P140=[snak(id="Q7")], P582=[snak(time="-0120-01-01T00:00:00Z", precision=9)]
        ),
        instance(
            "Q3",
            P585=[snak(time="+1850-01-01T00:00:00Z", precision=7)],
            P580=[{"snaktype": "somevalue"}],
        ),
        instance("Q4"),
    ]
    entity = entities_of(
        [{"entities": {"Q9": {"id": "Q9", "claims": {"P31": statements}}}}], ["Q9"]
    )["Q9"]
    assert entity.qualifiers == ("1630s–1976", "–120 BC, Q7", "19. century", "")
    names = {"Q1": "synagogue", "Q2": "Hindu temple", "Q3": "Burg", "Q4": "fort", "Q7": "Shiva"}
    source = FactSource(
        pages=lambda titles: {title: Page(title, "found", "Q9", "sitelink") for title in titles},
        soft_targets=lambda titles: {},
        by_category=lambda titles: {},
        entities=lambda ids: dict.fromkeys(ids, entity),
        names=lambda ids: {i: Named(names[i], "de" if i == "Q3" else "en") for i in ids},
    )
    landmark = scrape.Landmark("train", 1, "http://commons.wikimedia.org/wiki/Category:X")
    (link,), classes = scrape.resolve([landmark], source)
    assert (
        link.raw_label
        == "synagogue (1630s–1976), Hindu temple (–120 BC, Shiva), Q3 (19. century), fort"
    )
    assert [name.class_id for name in classes] == ["Q1", "Q2", "Q3", "Q4"]


def test_missing_deleted_redirected_and_named_entities_are_told_apart():
    assert entities_of([recorded("wbgetentities_deleted_item.json")], ["Q10908976"]) == {
        "Q10908976": MISSING
    }
    assert entities_of([recorded("wbgetentities_missing_no_success_key.json")], ["M91629437"]) == {
        "M91629437": MISSING
    }
    found = entities_of(
        [recorded("wbgetentities_batch_with_one_missing_trimmed.json")], ["Q42", "Q6"]
    )
    assert (found["Q6"], found["Q42"].classes) == (
        MISSING,
        ("Q5",),
    )  # only the numeric id is recorded
    redirect = recorded("wbgetentities_redirect_excerpt.json")
    assert entities_of([redirect], ["Q53265341"]) == {"Q53265341": Entity("Q11036")}
    assert names_of([recorded("wbgetentities_labels_P31_Q5.json")], ["Q5"]) == {
        "Q5": Named("human", "en")
    }
    with pytest.raises(SourceError, match="nothing for Q1"):
        entities_of([recorded("wbgetentities_deleted_item.json")], ["Q10908976", "Q1"])


def test_recorded_sparql_results_lose_blank_nodes_and_unbound_variables():
    rows = bindings_of(recorded("sparql_single_var_sparql_results.json"))
    assert [row.get("genre", "") == "" for row in rows] == [False, False, False, True, False]
    (row,) = bindings_of(recorded("sparql_sparql_results_with_optional_values.json"))
    assert "genre" not in row
    assert row["imdbId"] == "tt1705952"


def test_soft_redirects_are_found_in_wikitext():
    for text, target in (
        ("{{Category redirect|Foo}}", "Category:Foo"),
        ("{{seecat|1=Foo_bar|x=y}}", "Category:Foo bar"),
        ("x {{ Cat-red | :Category:Foo }} y", "Category:Foo"),
        ("{{Monotypic taxon category redirect|Foo}}", "Category:Foo"),
        ("{{redirected|Foo}}", None),
        ("no template", None),
        ("{{category redirect}}", None),
        ("{{Category redirect|reason=x|1=Foo}}", "Category:Foo"),
        ("{{Category redirect|reason=see {{w|Bar}}|Foo}}", "Category:Foo"),
        ("{{Template:Category_redirect|category:Foo}}", "Category:Foo"),
        ("{{seecat|[[:Category:Foo bar]]}}", "Category:Foo bar"),
        ("<!-- {{seecat|Foo}} -->", None),
        ("<nowiki>{{seecat|Foo}}</nowiki> {{seecat|Bar}}", "Category:Bar"),
        ("{{seecat|Foo<!-- old name -->}}", "Category:Foo"),
        ("{{ns0|{{seecat|Foo}}}}", "Category:Foo"),
        ("{{seecat|}}", None),
    ):
        assert soft_redirect(text) == target


def test_titles_come_from_urls_as_the_released_files_write_them():
    commons = "http://commons.wikimedia.org/wiki/Category:"
    assert (
        title_of(f"{commons}%C3%89glise_Saint-Jean_(Li%C3%A8ge)")
        == "Category:Église Saint-Jean (Liège)"
    )
    assert title_of(f"{commons}A_%26_B,_C'D") == "Category:A & B, C'D"
    assert iri_of("Category:A & B, C'D").endswith("/Category:A_%26_B,_C%27D")
    with pytest.raises(DataError, match="not a Commons page"):
        title_of("http://en.wikipedia.org/wiki/X")
