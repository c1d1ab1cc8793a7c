"""Scores vectors of texts: titles of articles, in a tree of fields and topics.

A title has a word of its topic, one that the topics of its field share, and common words. Nothing
here is a picture: vectors and a tree are enough.
"""

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

import hbench

FIELDS = {  # words that the topics of a field share, and those of each topic
    "biology": ("species cell protein", ["owl wing nest", "leaf root bloom", "shark gill fin"]),
    "physics": ("energy field mass", ["laser lens photon", "steam boil gas", "quark boson spin"]),
    "music": ("tune concert song", ["swing blues solo", "aria tenor stage", "drum beat loop"]),
    "history": ("reign treaty war", ["mummy tomb nile", "senate legion forum", "viking rune saga"]),
}  # fmt: skip
COMMON = "a study of the new in with on introduction methods results notes"
METRICS = ["H-AP", "AP/topic", "AP/field", "HD@1"]


def titles(each: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """`each` titles of every topic, and their labels (N, 2), coarse to fine."""
    topics = [
        (field, shared.split(), own.split())
        for field, (shared, of_field) in enumerate(FIELDS.values())
        for own in of_field
    ]
    texts = [
        " ".join([rng.choice(own), rng.choice(shared), *rng.choice(COMMON.split(), 4)])
        for _, shared, own in topics
        for _ in range(each)
    ]
    labels = [(field, topic) for topic, (field, _, _) in enumerate(topics) for _ in range(each)]
    return texts, np.array(labels)


if __name__ == "__main__":
    texts, labels = titles(40, np.random.default_rng(0))
    of_fields = " ".join(shared for shared, _ in FIELDS.values()).split()
    models = {
        "all words": TfidfVectorizer(),
        "not those of fields": TfidfVectorizer(stop_words=of_fields),
        "hashed to 32 numbers": HashingVectorizer(n_features=32, alternate_sign=False),
    }
    print(f"{len(texts)} titles, such as: {texts[0]}\n")
    print(f"{'vectors of':20}", *(f"{metric:>9}" for metric in METRICS))
    reports = []
    for name, model in models.items():
        vectors = model.fit_transform(texts).toarray()
        report = hbench.score(vectors, labels, level_names=["field", "topic"], metrics=METRICS)
        print(f"{name:20}", *(f"{report.scores[metric]:9.3f}" for metric in METRICS))
        reports.append(report)

    topic, tree = (hbench.compare(*reports[:2])[metric] for metric in ("AP", "H-AP"))
    print(
        f"\nThe words of the fields are worth {100 * topic.difference:.1f} points of AP, and "
        f"{100 * tree.difference:.1f} ({100 * tree.low:.1f} … {100 * tree.high:.1f}) of H-AP: "
        "most of what they mend is how far away the wrong titles are."
    )
