"""What a scrape of all 304,000 categories asks of Wikimedia: requests, and hours at one a second,
in simulated time.

python benchmarks/scrape.py [CATEGORIES [DEATHS]]

Wikimedia is the tests' local server, with their mixture of outcomes (found, redirected, missing,
without item …); one answer in fifty is a fault (lag, limits, 5xx, HTML, cut-off), and long URLs are
refused. The run is ended DEATHS times, and goes on from the cache.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from hbench_hgldv2.labels import scrape
from hbench_hgldv2.labels.scrape import expected_requests
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import Cache, Client, Manners, Servers

# the tests' Wikimedia, from wherever this is called
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.pipelines.wikimedia_server import Server, serving
from tests.pipelines.wikimedia_world import World, world_of


class Killed(Exception):
    """The process has ended here."""


class SimulatedClock:
    """Time that passes only by sleeping, and ends the run at `deaths`, seconds from its begin."""

    def __init__(self, deaths: list[float]) -> None:
        self.now = 0.0
        self.deaths = deaths

    def monotonic(self) -> float:
        """Seconds since the begin; the client's clock has this name, and `time`."""
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        """Let time pass, and end the run if its next death has come."""
        self.now += seconds
        if self.deaths and self.now > self.deaths[0]:
            self.deaths.pop(0)
            raise Killed


def main(categories: int = 304_000, deaths: int = 3) -> None:
    """Scrape, and print what it asked for and how long it would take."""
    world = world_of(categories)
    announced = expected_requests(categories)
    # a request takes a second: the run ends after equal parts of them
    clock = SimulatedClock([announced * number / (deaths + 1) for number in range(1, deaths + 1)])
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Server(world, faults=0.02, parts=False)) as server,
    ):
        links, client = scraped(world, server, Path(folder) / "cache.sqlite", clock)
        needed = client.counts["cached"] + client.counts["requests"]
        faults = Counter(outcome for *_, outcome in server.log if outcome != "answered")
        repeated = sum(count - 1 for count in Counter(server.answered()).values())
    wrong = [
        link.title
        for link in links
        if outcome(link) != world.expected[scrape.title_of(link.category)]
    ]
    print(f"categories               {len(links):10,}   links other than expected {len(wrong):,}")
    print(
        f"requests announced       {announced:10,}   needed {needed:,}, answered twice for {deaths} "
        f"deaths: {repeated:,}"
    )
    print(f"faults and long URLs     {sum(faults.values()):10,}   " + ", ".join(sorted(faults)))
    print(f"hours at one a second    {clock.now / 3600:10.2f}")
    print(
        "status                   "
        + ", ".join(f"{n:,} {name}" for name, n in Counter(link.status for link in links).items())
    )


def scraped(
    world: World, server: Server, cache: Path, clock: SimulatedClock
) -> tuple[list[scrape.Link], Client]:
    """Scrape a world from a server, again from the cache after every death; return the links, and
    the client that got the last of them."""
    landmarks = [scrape.Landmark("train", number, category) for number, category in world.landmarks]
    servers = Servers(
        f"{server.url}/commons/w/api.php",
        f"{server.url}/wikidata/w/api.php",
        f"{server.url}/sparql",
    )
    while True:
        with Cache(cache) as answers:
            client = Client("someone@example.org", answers, Manners(), clock)
            try:
                return scrape.resolve(landmarks, api.source(client, servers))[0], client
            except Killed:
                continue


def outcome(link: scrape.Link) -> tuple[str, str, str, str, tuple[str, ...]]:
    """What a link says, in the form in which the tests' world says what it should."""
    return link.status, link.via, link.topic, link.reason, link.classes


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
