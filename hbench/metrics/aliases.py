"""Suggests hbench's spelling of a metric for the names that other tools use.

>>> meant_by("recall@1"), meant_by("top-5 accuracy/genus"), meant_by("map@10"), meant_by("happier")
("'R@1' (TR@1 is the share of all right items)", "'R@5/genus'", "'mAP@10'", None)
"""

import re

RECALLS = ("recall", "rec", "recallk", "cumulativematching", "cmc")
HITS = (
    "top",
    "accuracy",
    "acc",
    "topaccuracy",
    "topacc",
    "hit",
    "hits",
    "hitrate",
    "success",
    "successrate",
    "rank",
    "nn",
)
# keys are lower-case letters only; {k} is replaced by the cut
WITH_CUT = {
    **dict.fromkeys(("map", "meanaverageprecision", "averageprecision", "ap", "mapk"), "mAP@{k}"),
    **dict.fromkeys(("precision", "prec", "meanprecision", "p"), "P@{k}"),
    **dict.fromkeys(("ndcg", "normalizeddiscountedcumulativegain", "normalizeddcg"), "NDCG@{k}"),
    **dict.fromkeys((*RECALLS, *HITS, "r"), "R@{k}"),
    **dict.fromkeys(("mmp", "modifiedmeanprecision"), "mMP@{k}"),
    **dict.fromkeys(("hierarchicalprecision", "hprecision", "hp"), "H-P@{k}"),
    **dict.fromkeys(("hierarchicalrecall", "hrecall", "hr"), "H-R@{k}"),
    **dict.fromkeys(("hierarchicaldistance", "hierarchicaldist", "hierdist", "hd"), "HD@{k}"),
}
WITHOUT_CUT = {
    **dict.fromkeys(("map", "meanaverageprecision", "averageprecision", "ap"), "AP"),
    **dict.fromkeys(("mapr", "mapatr", "meanaverageprecisionatr"), "mAP@R"),
    **dict.fromkeys(("rprecision", "precisionatr", "rprec", "pr"), "P@R"),
    **dict.fromkeys(
        ("mrr", "meanreciprocalrank", "reciprocalrank", "recriprank", "reciprank"), "MRR"
    ),
    **dict.fromkeys(("ndcg", "normalizeddiscountedcumulativegain"), "NDCG"),
    **dict.fromkeys(("hap", "hierarchicalap", "hierarchicalaverageprecision", "hmap"), "H-AP"),
    **dict.fromkeys(("asi", "averagesetintersection"), "ASI"),
    **dict.fromkeys(("sumwap", "σwap", "weightedap"), "wAP"),
    **dict.fromkeys((*RECALLS, *HITS), "R@1"),
    **dict.fromkeys(("precision", "prec"), "P@1"),
    **dict.fromkeys(("hierarchicaldistance", "hierdist"), "HD@1"),
}
OF_ALL_LEVELS = ("H-", "HD", "NDCG", "wAP")
ALL_RIGHT = " (TR@{k} is the share of all right items)"


def meant_by(text: str) -> str | None:
    """Return hbench's spelling of a metric that other tools call `text`, quoted for the suggestion
    in an error message; None if the text is not known.

    >>> meant_by("ndcg_at_10")
    "'NDCG@10'"
    """
    # split "top-5 accuracy/genus" into the name, the mark "/" or "#", and the level
    parts = re.fullmatch(r"([^/#]*)([/#]?)(.*)", text, re.DOTALL)
    assert parts is not None  # the pattern matches any text
    name, mark, level = parts.groups()
    plain = re.sub(r"[\W_]", "", name.casefold())  # lower-case letters and digits: "top5accuracy"
    spelled = WITHOUT_CUT.get(plain)
    k = "1"  # if `text` has no number, as "recall" or "recall@k"

    # the cut is a number, or the letter k, within or after the name: "map at 10", "recall@k"
    if spelled is None and (
        found := re.fullmatch(r"(?P<base>\D+?)(?:at)?(?P<k>[1-9]\d*|k)(?P<rest>\D*)", plain)
    ):
        k = "1" if found["k"] == "k" else found["k"]
        # such as "R@{k}". Letters after the cut may belong to the name, as in "top5accuracy"; if no
        # metric is called so, they are ignored
        spelled = WITH_CUT.get(found["base"] + found["rest"]) or WITH_CUT.get(found["base"])

    if spelled is None:
        return None

    # metrics of all levels take no level
    at_level = "" if spelled.startswith(OF_ALL_LEVELS) else mark + level
    meant = f"'{spelled.format(k=k)}{at_level}'"
    # "recall" means R@k in metric learning (whether a right item is among the first k), but TR@k in
    # information retrieval (how many of the right items are): mention TR@k as well. Do so for
    # "cmc" (cumulative matching), too, which is another word for R@k.
    if plain.startswith(("rec", "cmc")) and spelled.startswith("R@"):
        return meant + ALL_RIGHT.format(k=k)
    return meant
