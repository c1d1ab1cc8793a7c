"""Writes rankings and relevances as a TREC run and qrels, and scores the run by pytrec_eval and by
hbench.
"""

from pathlib import Path

import numpy as np
import pytrec_eval

import hbench

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    species = np.arange(48) % 12
    labels = np.stack([species // 4, species], axis=1)
    vectors = rng.normal(size=(48, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores, levels = vectors @ vectors.T, hbench.levels_of_pairs(labels, labels)
    others = [
        [item for item in range(48) if item != query] for query in range(48)
    ]  # a query is not in its own list
    run = {f"q{q}": {f"i{item}": float(scores[q, item]) for item in others[q]} for q in range(48)}
    gains = {
        f"q{q}": {f"i{item}": int(2 ** levels[q, item] - 1) for item in others[q]}
        for q in range(48)
    }
    with Path("run.trec").open("w") as file:
        file.writelines(
            f"{q} Q0 {item} 0 {score:.9f} mine\n"
            for q, row in run.items()
            for item, score in row.items()
        )
    with Path("qrels.trec").open("w") as file:
        file.writelines(
            f"{q} 0 {item} {gain}\n"
            for q, row in gains.items()
            for item, gain in row.items()
            if gain
        )
    theirs = pytrec_eval.RelevanceEvaluator(gains, {"ndcg"}).evaluate(run)
    print(
        "NDCG",
        np.mean([each["ndcg"] for each in theirs.values()]),
        hbench.score(vectors, labels).scores["NDCG"],
    )
