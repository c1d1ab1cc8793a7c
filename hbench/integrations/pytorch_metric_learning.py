"""hbench's metrics where pytorch-metric-learning expects an AccuracyCalculator, such as in its
testers.

The losses of hbench need no adapter: they take (embeddings, labels, indices_tuple, ref_emb,
ref_labels) as its losses do, with labels (B, L), and stand in its wrappers (MultipleLosses,
CrossBatchMemory) as they are.
"""

from collections.abc import Sequence
from typing import Any

from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from hbench.core.arguments import checked
from hbench.core.errors import UsageError
from hbench.evaluation.arrays import score
from hbench.integrations import checked_metrics


class HierarchicalAccuracyCalculator(AccuracyCalculator):  # type: ignore[misc]
    """`get_accuracy(query, query_labels, reference, reference_labels)` with labels (N, L), coarse
    to fine -> metric -> fraction.

    Without a reference, or where it is the query set itself, each query is ranked among the others;
    a query is never in its own list. `metrics`: names of hbench. Its own metrics (NMI, AMI, those
    by nearest neighbours) are not computed.
    """

    @checked
    def __init__(
        self,
        metrics: str | Sequence[str] = ("H-AP", "NDCG", "R@1", "mAP@R"),
        *,
        similarity: str = "cosine",
        ties: str = "pessimistic",
    ) -> None:
        super().__init__(include=())
        self.metrics = checked_metrics(metrics, similarity=similarity, ties=ties)
        self.similarity = similarity
        self.ties = ties

    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        **_: Any,
    ) -> dict[str, float]:
        """The mean of every metric over the queries."""
        apart = {}
        if reference is not None and reference is not query:
            if ref_includes_query:
                raise UsageError(
                    "the reference holds the queries",
                    fix="give the queries alone: each is then ranked among the others",
                )
            apart = {"gallery": reference, "gallery_labels": reference_labels}

        report = score(
            query,
            query_labels,
            **apart,
            metrics=self.metrics,
            similarity=self.similarity,
            ties=self.ties,
        )
        return {name: float(str(report.scores[name])) for name in self.metrics}
