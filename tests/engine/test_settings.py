"""A signature is written and read by one class: each is the inverse of the other, and settings come
back from it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import UnknownName, UsageError
from hbench.engine.settings import Settings, Signature, Words
from hbench.engine.similarity import similarities
from hbench.metrics.level_sequence import ties
from hbench.metrics.protocols import protocols

pytestmark = pytest.mark.fast

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="|+:", categories=("L", "N", "P")),
    min_size=1,
    max_size=12,
)
SIGNATURES = st.builds(
    Signature,
    dataset=WORDS,
    tests=st.lists(WORDS, min_size=1, max_size=3).map(tuple),
    words=st.builds(
        Words,
        similarity=WORDS,
        ties=WORDS,
        partial=st.booleans(),
        several=st.integers(1, 9),
        queries=st.just("") | WORDS,
        left_out=st.just("") | WORDS,
        relevance=WORDS,
        protocol=WORDS,
    ),
    version=WORDS,
    tree=st.just("") | WORDS,
)
SETTINGS = st.builds(
    Settings,
    protocol=st.sampled_from(sorted(protocols)),
    ties=st.sampled_from(sorted(ties)),
    similarity=st.sampled_from(sorted(similarities)),
    relevance=st.sampled_from(["alpha", "sum_wap", "exponential"]),
    alpha=st.just(1.0) | st.floats(0.25, 8),
).filter(lambda settings: settings.relevance == "alpha" or settings.protocol == "paper")


@given(SIGNATURES)
def test_reading_is_the_inverse_of_writing(signature):
    assert Signature.parse(str(signature)) == signature


@given(SETTINGS)
def test_settings_come_back_from_their_signature(settings):
    conditions = settings.resolve(("genus", "species"))
    again = Signature.parse(str(conditions.signature("sop@1", ["test"]))).settings.resolve(
        ("genus", "species")
    )
    assert again.signature("sop@1", ["test"]) == conditions.signature("sop@1", ["test"])
    if settings.relevance == "alpha":
        assert again.exponent == settings.alpha


@pytest.mark.parametrize(
    "text", ["", "sop@1", "voc07|test:x|AP50:11-point|hbench:0.1", "a|b|sim:cosine|ties:x"]
)
def test_another_text_is_refused(text):
    with pytest.raises(UsageError):
        Signature.parse(text)


def test_a_relevance_that_needs_more_than_its_name_or_that_nobody_released_is_refused():
    for words in ({"relevance": "table"}, {"relevance": "sum_wap", "protocol": "official"}):
        with pytest.raises(UsageError):
            Settings(**words).resolve(("genus", "species"))


@pytest.mark.parametrize(
    "words",
    [
        {"ties": "x"},
        {"protocol": "x"},
        {"similarity": "x"},
        {"relevance": "x"},
        {"unit": "x"},
        {"metrics": "AP/x"},
    ],
)
def test_a_word_that_is_not_known_is_refused_before_any_work(words):
    with pytest.raises(UnknownName):
        Settings(**words).resolve(("genus", "species"))
