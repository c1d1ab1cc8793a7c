"""Scraping against a local Wikimedia that misbehaves."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hbench_hgldv2.artefact import rows_text
from hbench_hgldv2.labels import scrape
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import Cache, Client, Manners, Servers, user_agent

from hbench.core.errors import DataError, SourceError
from tests.pipelines.wikimedia_server import Server, serving
from tests.pipelines.wikimedia_world import world_of

CONTACT = "someone@example.org"


class FakeClock:
    """Time that passes only when someone sleeps."""

    def __init__(self):
        self.now = 1_000.0

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


@contextmanager
def scraping(world, file, *, contact=CONTACT, manners=None, **faults):
    """A running server of a world, and a client whose cache is `file`."""
    clock = FakeClock()
    with serving(Server(world, now=clock.time, **faults)) as server, Cache(file) as cache:
        yield server, Client(contact, cache, manners or Manners(), clock)


def resolved(world, server, client):
    servers = Servers(
        f"{server.url}/commons/w/api.php",
        f"{server.url}/wikidata/w/api.php",
        f"{server.url}/sparql",
    )
    landmarks = [scrape.Landmark("train", number, category) for number, category in world.landmarks]
    return scrape.resolve(landmarks, api.source(client, servers))


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """A world of every shape, the cache that a scrape of it filled, and what the scrape found."""
    world, file = world_of(800), tmp_path_factory.mktemp("varied") / "cache.sqlite"
    with scraping(world, file, longest_url=1500) as (server, client):
        return world, file, server, resolved(world, server, client)


def test_every_landmark_of_a_varied_world_ends_where_it_must(varied):
    world, _, _, (links, _) = varied
    assert len(links) == 800
    for (_, url), link in zip(world.landmarks, links, strict=True):
        linked = (link.status, link.via, link.topic, link.reason, link.classes)
        assert linked == world.expected[scrape.title_of(url)], url
    assert {link.status for link in links} >= {"found", "redirected", "missing", "no_item"}


def test_a_class_without_an_english_name_has_another_or_none(varied):
    _, _, _, (_, names) = varied
    foreign = {
        name.class_id: (name.label, name.language) for name in names if name.language != "en"
    }
    assert foreign == {"Q9058": ("Kirchengebäude", "de"), "Q9059": ("", "")}


def test_the_cache_replays_a_scrape_without_any_server(varied):
    world, file, server, found = varied
    with Cache(file) as cache:
        offline = Client(None, cache)
        assert resolved(world, server, offline) == found
        assert offline.counts["requests"] == 0


def test_a_landmark_that_is_not_in_the_cache_is_refused_without_a_server(varied):
    world, file, server, _ = varied
    new = (1, "http://commons.wikimedia.org/wiki/Category:New")
    more = dataclasses.replace(world, landmarks=[*world.landmarks, new])
    with Cache(file) as cache, pytest.raises(DataError, match="not in the cache"):
        resolved(more, server, Client(None, cache))


def test_faults_change_nothing_and_requests_keep_their_distance(tmp_path):
    world = world_of(1000)
    with scraping(world, tmp_path / "calm.sqlite") as running:
        calm = resolved(world, *running)
    with scraping(world, tmp_path / "rough.sqlite", faults=0.35, longest_url=1500) as (
        server,
        client,
    ):
        rough = resolved(world, server, client)
        outcomes = Counter(outcome for *_, outcome in server.log)
        times = [when for when, *_ in server.log]
        assert Counter(server.answered()).most_common(1)[0][1] == 1
        assert {agent for _, agent, _, _ in server.log} == {user_agent(CONTACT)}
    assert rough == calm
    assert min(b - a for a, b in pairwise(times)) >= 1 - 1e-9
    expected = (
        "answered, too long, maxlag, ratelimited, database, 429, 503, 500, html, truncated, dropped"
    )
    assert set(outcomes) == set(expected.split(", "))


def test_a_scrape_killed_and_resumed_ten_times_gives_the_undisturbed_bytes(tmp_path):
    size, kills = 2500, 10
    world = world_of(size)
    with scraping(world, tmp_path / "calm.sqlite") as (server, client):
        links, names = resolved(world, server, client)
        undisturbed = rows_text(links, scrape.Link) + rows_text(names, scrape.ClassName)
        total = len(server.log)
    out = tmp_path / "out.csv"
    with serving(Server(world, faults=0.25, longest_url=1500)) as server:
        program = [sys.executable, "-m", "tests.pipelines.scrape_process"]
        command = [*program, server.url, str(tmp_path / "c.sqlite"), str(out), str(size)]
        environment = {**os.environ, "PYTHONPATH": f"{Path.cwd()}:{Path.cwd() / 'pipelines'}"}
        for number in range(1, kills + 1):
            process = subprocess.Popen(command, env=environment)
            while len(server.log) < number * total // (kills + 2) and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        assert not out.exists()
        subprocess.run(command, env=environment, check=True)
        repeated = {
            request: count for request, count in Counter(server.answered()).items() if count > 1
        }
        assert {agent for _, agent, _, _ in server.log} == {user_agent(CONTACT)}
    assert out.read_text(encoding="utf-8") == undisturbed
    # at most the request in flight at each kill
    assert sum(count - 1 for count in repeated.values()) <= kills


def test_a_batch_with_too_many_values_or_a_bad_id_is_halved_until_it_passes(tmp_path):
    world = world_of(120)
    with scraping(world, tmp_path / "cache.sqlite") as (server, client):
        endpoint = f"{server.url}/wikidata/w/api.php"
        params = api.COMMON | {"action": "wbgetentities", "props": "info|claims"}
        ids = [*sorted(world.items)[:70], "bogus", *sorted(world.items)[70:100]]
        batches = list(client.ask_batched(endpoint, params, "ids", ids, size=101))
    assert [i for batch, _ in batches for i in batch] == ids
    refused = [batch for batch, answers in batches if isinstance(answers, api.Refused)]
    assert refused == [["bogus"]]


def test_a_server_that_never_recovers_is_given_up_after_the_stated_tries(tmp_path):
    world = world_of(10)
    with scraping(world, tmp_path / "cache.sqlite", faults=1.0, manners=Manners(attempts=4)) as (
        server,
        client,
    ):
        with pytest.raises(SourceError, match="did not answer in 4 tries"):
            resolved(world, server, client)
        assert len(server.log) == 4
        assert len(client.cache) == 0


def test_an_unknown_parameter_stops_the_run_instead_of_answering_another_question(tmp_path):
    unknown = api.COMMON | {"action": "query", "ppporp": "wikibase_item"}
    running = scraping(world_of(1), tmp_path / "cache.sqlite")
    with running as (server, client), pytest.raises(SourceError, match="did not understand"):
        client.ask(f"{server.url}/w/api.php", unknown)


@pytest.mark.parametrize("contact", ["", "me", "me@", "<me@example.org>", "a b@example.org"])
def test_no_request_is_made_without_a_contact(contact, tmp_path):
    with (
        Cache(tmp_path / "cache.sqlite") as cache,
        pytest.raises(Exception, match="whom to write to"),
    ):
        Client(contact, cache)


def test_train_and_index_ids_are_kept_apart_and_bad_files_are_refused(tmp_path):
    file = tmp_path / "train_label_to_category.csv"
    url = "http://commons.wikimedia.org/wiki/Category:A,_B"
    file.write_text(f'landmark_id,category\n7,"{url}"\n', encoding="utf-8")
    assert scrape.read_landmarks(file, "train") == [scrape.Landmark("train", 7, url)]
    for text, problem in (
        ("landmark_id,category\n7,x\n7,y\n", "landmarks twice"),
        ("id,category\n", "lacks columns"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=problem):
            scrape.read_landmarks(file, "train")


def test_as_many_requests_are_announced_as_are_made(tmp_path):
    world = world_of(4_000)
    with scraping(world, tmp_path / "cache.sqlite", parts=False) as (server, client):
        resolved(world, server, client)
    assert client.counts["requests"] == pytest.approx(scrape.expected_requests(4_000), rel=0.1)
    assert len([request for request in server.answered() if "P373" in request]) <= 2
