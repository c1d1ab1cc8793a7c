"""Lists the names that people give to the columns of a table. All readers use them: those of tables
of labels, files of vectors, lists of ids, rankings, trees and taxonomies.

Names are compared without blanks around them and in lower case (`folded`).

>>> [name for name in ("ID", "sku", "Barn owl") if is_id(name)]
['ID', 'sku']
>>> first_of(["docno", "QID"], QUERIES)
'QID'
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm")  # endings

# ids of items
# hbench's own names, and names that hardly any table uses for anything else
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

# an index that a program wrote: pandas' with and without a name, parquet's, and the empty name that
# R and pandas write
INDEX = re.compile(r"(unnamed: ?\d+|__index_level_\d+__|)")
# names of an index, but only if the values number the rows: pandas' reset_index, R's write.csv,
# Excel
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
# columns of numbers next to a vector that are not its dimensions
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
UNUSED = "unused"  # the split of items that are neither trained on nor tested
# if "train" is the only other split, a validation is the test, as in ImageNet's folders and OML's
# tables
VALIDATIONS = ("val", "validation", "valid", "dev")
# OML writes is_query and is_gallery
MASKS = {"query": "query", "is_query": "query", "gallery": "gallery", "is_gallery": "gallery"}

# rankings: ranx, PyTerrier, ir_measures, BEIR, Google Landmarks
# The surest names first: PyTerrier's `query` is a text, and its `docid` another number.
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
# columns that only exports of biodiversity data have: the levels of such a table are ranks, and no
# other columns
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
# the letters of prefixes such as k__, in QIIME, GTDB and SILVA
RANK_OF_LETTER = {
    "d": "domain", "k": "kingdom", "p": "phylum", "c": "class", "o": "order", "f": "family",
    "g": "genus", "s": "species",
}  # fmt: skip


def folded(name: str) -> str:
    """Return a column's name in the spelling of the words in this module: stripped, in lower case,
    and without the prefix "col:" of ColDP."""
    return name.strip().casefold().removeprefix("col:")


def rank_of(name: str) -> str:
    """Return the rank that a column's name means, without the rest that iNaturalist writes.

    >>> rank_of("taxon_order_name"), rank_of("Genus")
    ('order', 'genus')
    """
    found = RANK_COLUMN.fullmatch(folded(name))
    return found[1] if found else folded(name)


def is_id(name: str) -> bool:
    """Whether this is a known name for a column of items' ids."""
    word = folded(name)
    return word in SURE_IDS or word in OTHER_IDS


def ids_in(names: Iterable[str]) -> list[str]:
    """Return the columns that are called like ids: those with sure names, or, if there are none,
    those with other names."""
    listed = list(names)
    sure = [name for name in listed if folded(name) in SURE_IDS]
    return sure or [name for name in listed if folded(name) in OTHER_IDS]


def is_index(name: str, *, counts_rows: bool) -> bool:
    """Whether a column of this name is an index that a program wrote.

    Some names are only given by programs. Others, such as "index" or "no.", only mean an index if
    the column's values number the rows (`counts_rows`).
    """
    word = folded(name)
    return bool(INDEX.fullmatch(word) or (counts_rows and COUNTERS.fullmatch(word)))


def first_of(names: Sequence[str], words: Iterable[str]) -> str:
    """Return the column in `names` that is called by the first of the `words` that occurs; "" if
    none occurs. Of several columns with the same folded name, the leftmost is returned."""
    by_word = {folded(name): name for name in reversed(names)}
    return next((by_word[word] for word in words if word in by_word), "")


def split_words(written: Collection[str]) -> dict[str, str]:
    """Return the split that each of these words means: train, test, query, gallery, or `unused` for
    a validation set if other rows are tested. Words that mean no split are left out.

    >>> split_words(["Training", "Val"])
    {'Training': 'train', 'Val': 'test'}
    >>> split_words(["train", "val", "test", "?"])
    {'train': 'train', 'val': 'unused', 'test': 'test'}
    """
    named = {word: SPLIT_WORDS.get(word.strip().lower()) for word in written}
    # A validation set is the test if the only other split is the training set. Its words, such as
    # "val", are not in SPLIT_WORDS, so `others` has no validation set. They mean no split if there
    # are no others.
    others = {split for split in named.values() if split}
    validation = "test" if others == {"train"} else UNUSED
    for word in written:
        if others and word.strip().lower() in VALIDATIONS:
            named[word] = validation
    return {word: split for word, split in named.items() if split}


def split_flags(column: str, written: Collection[str]) -> dict[str, str] | None:
    """Return the split that each text of a column of truth values means, for a column that is
    called like such a flag (SPLIT_FLAGS); None for any other column.

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
