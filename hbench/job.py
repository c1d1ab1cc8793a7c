"""A job: one test whose queries are to be ranked and measured, and who does it.

The values of a query depend on its block alone. So who computes which block, and when, changes nothing: an `Execute`
takes a job and the numbers of its blocks, and yields each block's values, in any order.

* `hbench.threads.on_threads`: in this process, the default;
* `hbench.resume.kept_in`: each finished block is kept in a folder and not computed again;
* `hbench.cluster.on_cluster`: by the workers of a dask.distributed scheduler.

`hbench.shards` computes a part of the blocks, for processes that do not talk to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hbench.by_name import ByName
from hbench.protocol import ScoreQuery
from hbench.ranking import Ranker
from hbench.values import Values


@dataclass(frozen=True)
class Job:
    """A ranker and what to compute of every query. `conditions`: all the values depend on beside the ranker, in words.

    `again`: makes the same job in another process, from the embeddings that were read there. `by_name`: the labels by
    name, where a scorer goes by them and they form no tree.
    """

    ranker: Ranker
    scorers: Sequence[ScoreQuery]
    conditions: str = ""
    again: Callable[[Any], Job] | None = None
    by_name: ByName | None = None

    @property
    def digest(self) -> str:
        """sha256 of everything the values depend on."""
        names = "" if self.by_name is None else f" {self.by_name.digest}"
        words = f"{self.ranker.digest} {len(self.scorers)} {self.conditions}{names}"
        return hashlib.sha256(words.encode()).hexdigest()


Execute = Callable[[Job, Sequence[int]], Iterator[tuple[int, Values]]]
