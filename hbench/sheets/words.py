"""What people call the columns of a table, once for every door: tables of labels, files of vectors,
lists of ids, rankings, trees, taxonomies.

A word is compared as `folded` writes it: without blanks around it, in small letters.

>>> [name for name in ("ID", "sku", "Barn owl") if is_id(name)]
['ID', 'sku']
>>> first_of(["docno", "QID"], QUERIES)
'QID'
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

# ids of items
# hbench's own, and what next to no table calls anything else
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm")  # endings
SURE_IDS = ("item", "items", "id", "ids", "image_id")
OTHER_IDS = frozenset(
    [
        # datasets of pictures: torchvision, timm, COCO, FiftyOne, Open Images, OML
        "image", "images", "imageid", "image_ids", "image_name", "image_names", "image_path",
        "image_paths", "img", "img_path", "img_paths", "file", "files", "filename", "filenames",
        "file_name", "file_names", "file_path", "file_paths", "filepath", "filepaths", "path",
        "paths", "names", "photo", "photos", "photograph", "photographs", "picture", "pictures",
        "photo_id", "sample_id", "item_id", "item_ids", "key", "keys",
        # Darwin Core, GBIF, museums
        "gbifid", "occurrenceid", "catalognumber", "taxonid", "uuid",
        # shops: Google's product feed, Amazon's reviews
        "sku", "asin", "product_id", "productid", "article_id",
    ]
)  # fmt: skip

# an index that a program wrote
# pandas without and with a name, parquet's, and the empty head that R and pandas write
INDEX = re.compile(r"(unnamed: ?\d+|__index_level_\d+__|)")
# words that number the rows where their values do: pandas' reset_index, R's write.csv, Excel
COUNTERS = re.compile(r"(index|level_\d+|rownames|row|row_id|rowid|x|nr|nr\.|no|no\.|num|number|#)")

# vectors
VECTORS = ("embedding", "embeddings", "vector", "vectors")
OTHER_VECTORS = frozenset(
    [
        "features", "feature", "feats", "feat", "emb", "embs", "embeds", "image_features",
        "image_feats", "image_embeddings", "image_embeds", "img_emb", "img_embs",
        "representations", "descriptors", "global_descriptors",
    ]
)  # fmt: skip
# numbers beside a vector that are none of its dimensions
CLASS_NUMBERS = frozenset(
    ["label", "labels", "class", "class_id", "target", "targets", "y", "split", "fold", "label_id",
     "category_id"]
)  # fmt: skip

# splits
SPLIT = "split"
SPLIT_WORDS = {
    "train": "train", "training": "train", "test": "test", "testing": "test", "eval": "test",
    "evaluation": "test", "query": "query", "queries": "query", "gallery": "gallery",
}  # fmt: skip
# columns of truth values: the splits that true and false mean; fastai writes is_valid
SPLIT_FLAGS = {
    "is_train": ("train", "test"),
    **dict.fromkeys(("is_test", "is_valid", "is_val", "is_validation"), ("test", "train")),
}
TRUTH = {
    "true": True, "1": True, "1.0": True, "yes": True, "t": True,
    "false": False, "0": False, "0.0": False, "no": False, "f": False, "": False,
}  # fmt: skip
UNUSED = "unused"  # the split of what is neither trained on nor tested
# beside "train" alone the test, as ImageNet's folders and OML's tables have it
VALIDATIONS = ("val", "validation", "valid", "dev")
# OML writes is_query and is_gallery
MASKS = {"query": "query", "is_query": "query", "gallery": "gallery", "is_gallery": "gallery"}

# rankings: ranx, PyTerrier, ir_measures, BEIR, Google Landmarks
# The surest names first: PyTerrier's `query` is a text and its `docid` a number of its own.
QUERIES = ("query_id", "qid", "q_id", "queryid", "query-id", "query_image", "query")
RETRIEVED = (
    "docno", "doc_id", "document_id", "documentid", "item_id", "corpus-id", "corpus_id",
    "gallery_id", "gallery_image", "item", "docid", "doc", "document", "gallery", "neighbor",
    "neighbour", "candidate", "retrieved",
)  # fmt: skip
SCORES = ("score", "similarity", "sim")
POSITIONS = ("rank", "position")
DISTANCES = ("distance", "dist")
GRADES = ("relevance", "rel", "grade", "qrel", "level")
LISTS = (
    "images", "items", "results", "predictions", "ranking", "retrieved", "neighbors", "neighbours",
    "docs", "hits",
)  # fmt: skip

# trees: networkx, Gephi, WordNet, SKOS
EDGES = (
    ("parent", "child"), ("source", "target"), ("from", "to"), ("hypernym", "hyponym"),
    ("broader", "narrower"), ("supercategory", "subcategory"),
)  # fmt: skip
NODES = ("id", "taxonid", "node", "node_id", "key", "code", "tax_id", "category_id", "tsn")

# taxonomies: Darwin Core, Catalogue of Life's ColDP, NCBI, ITIS, GBIF
TAXA = ("taxonid", "taxon_id", "id", "tax_id", "taxonkey", "key", "tsn")
PARENTS = (
    "parentnameusageid", "parent_id", "parentid", "parent_tax_id", "parent_tsn", "parentkey",
    "parent",
)  # fmt: skip
ACCEPTED = (
    "acceptednameusageid", "accepted_id", "acceptedid", "acceptedtaxonkey", "acceptednameusage_id",
    "accepted_tsn",
)  # fmt: skip
TITLES = ("canonicalname", "scientificname", "complete_name", "name", "label", "title")
TAXON_RANKS = ("taxonrank", "rank", "rank_name")
RANKS = (
    "domain", "superkingdom", "kingdom", "subkingdom", "phylum", "subphylum", "superclass", "class",
    "subclass", "superorder", "order", "suborder", "infraorder", "superfamily", "family",
    "subfamily", "tribe", "subtribe", "genus", "subgenus", "species", "subspecies",
)  # fmt: skip
MAIN_RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
# columns by which an export of biodiversity data is known: its levels are ranks, whatever else
# stands beside them
OF_TAXA = frozenset(
    [
        # Darwin Core and GBIF
        "taxonrank", "scientificname", "gbifid", "occurrenceid", "basisofrecord", "taxonid",
        "taxonkey", "datasetkey",
        # iNaturalist's export of observations
        "iconic_taxon_name", "taxon_id", "quality_grade", "scientific_name",
    ]
)  # fmt: skip
RANK_COLUMN = re.compile(r"taxon_(\w+)_name")  # iNaturalist's `taxon_species_name`
# QIIME's, GTDB's and SILVA's letters before a name
RANK_OF_LETTER = {
    "d": "domain", "k": "kingdom", "p": "phylum", "c": "class", "o": "order", "f": "family",
    "g": "genus", "s": "species",
}  # fmt: skip


def folded(name: str) -> str:
    """A column's name as the words here are written, without the prefix of ColDP."""
    return name.strip().casefold().removeprefix("col:")


def rank_of(name: str) -> str:
    """The word of a column of ranks without what iNaturalist writes around it.

    >>> rank_of("taxon_order_name"), rank_of("Genus")
    ('order', 'genus')
    """
    found = RANK_COLUMN.fullmatch(folded(name))
    return found[1] if found else folded(name)


def is_id(name: str) -> bool:
    """Whether people call the column of ids of items by this name."""
    word = folded(name)
    return word in SURE_IDS or word in OTHER_IDS


def ids_in(names: Iterable[str]) -> list[str]:
    """The columns that are called like ids: those of the sure words, else those of the others."""
    listed = list(names)
    sure = [name for name in listed if folded(name) in SURE_IDS]
    return sure or [name for name in listed if folded(name) in OTHER_IDS]


def is_index(name: str, *, counts_rows: bool) -> bool:
    """Whether a column of this name is an index, which a program wrote: by a name that only
    programs give; with `counts_rows`, that is, where its values number the rows, also by names such
    as "index" or "no."."""
    word = folded(name)
    return bool(INDEX.fullmatch(word) or (counts_rows and COUNTERS.fullmatch(word)))


def first_of(names: Sequence[str], words: Iterable[str]) -> str:
    """The column, out of `names`, that is called by the first of the words that any is called by;
    "" for none. Of columns that are called alike the leftmost counts."""
    by_word = {folded(name): name for name in reversed(names)}
    return next((by_word[word] for word in words if word in by_word), "")


def split_words(written: Collection[str]) -> dict[str, str]:
    """The split that each of these words names: train, test, query, gallery, or `unused` for a
    validation where others are tested; without the words that name none.

    >>> split_words(["Training", "Val"])
    {'Training': 'train', 'Val': 'test'}
    >>> split_words(["train", "val", "test", "?"])
    {'train': 'train', 'val': 'unused', 'test': 'test'}
    """
    named = {word: SPLIT_WORDS.get(word.strip().lower()) for word in written}
    # a validation is the test of a table that has nothing else beside its training
    others = {split for split in named.values() if split}
    validation = "test" if others == {"train"} else UNUSED
    for word in written:
        if others and word.strip().lower() in VALIDATIONS:
            named[word] = validation
    return {word: split for word, split in named.items() if split}


def split_flags(column: str, written: Collection[str]) -> dict[str, str] | None:
    """The split that each text of a column of truth values names, for a column that is called as
    such flags are; None for any other column.

    >>> split_flags("is_valid", ["True", "False"])
    {'True': 'test', 'False': 'train'}
    >>> split_flags("is_valid", ["seen", "checked"])
    """
    flag = SPLIT_FLAGS.get(folded(column))
    truth = {word: TRUTH.get(word.strip().lower()) for word in written}
    if flag is None or None in truth.values():
        return None
    of_true, of_false = flag
    return {word: of_true if is_true else of_false for word, is_true in truth.items()}
