"""A scraping process that the tests kill: URL CACHE OUT RATE."""

import sys
from pathlib import Path

from hbench_hgldv2.artefact import rows_text
from hbench_hgldv2.labels import scrape
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import Cache, Client, Manners, Servers

from tests.pipelines.wikimedia_world import world_of


def main(url: str, cache: str, out: str, size: str) -> None:
    manners = Manners(rate=400.0, first_wait=0.005, longest_wait=0.05, lag_wait=0.005, timeout=5.0)
    landmarks = [
        scrape.Landmark("train", number, category)
        for number, category in world_of(int(size)).landmarks
    ]
    with Cache(Path(cache)) as answers:
        client = Client("someone@example.org", answers, manners)
        source = api.source(
            client,
            Servers(f"{url}/commons/w/api.php", f"{url}/wikidata/w/api.php", f"{url}/sparql"),
        )
        links, names = scrape.resolve(landmarks, source)
    Path(out).write_text(
        rows_text(links, scrape.Link) + rows_text(names, scrape.ClassName), encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
