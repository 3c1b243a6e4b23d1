"""Whole texts in other text, beside a plain search."""

import pickle
import random
from collections import Counter

import pytest

from contamination.data.ngrams import BLOCK_CHARACTERS, VerbatimCounter
from contamination.data.words import normalise_text

LETTERS = "abc é日𝄞"


def overlapping(part: str, whole: str) -> int:
    """How often one text occurs in another; occurrences may overlap."""
    count, place = 0, whole.find(part) if part else -1
    while place >= 0:
        count, place = count + 1, whole.find(part, place + 1)
    return count


def naive(texts, text):
    counts = {part: overlapping(part, normalise_text(text)) for part in map(normalise_text, texts)}
    return {part: count for part, count in counts.items() if count}


@pytest.mark.parametrize("seed", range(6))
def test_counts_equal_a_plain_search(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice(LETTERS) for _ in range(3_000))
    starts = [(rng.randrange(2_900), rng.randrange(1, 60)) for _ in range(60)]
    texts = [text[start : start + length] for start, length in starts]
    texts += [rng.choice(LETTERS) * 3, "not there at all", "", " \n"]
    verbatim = VerbatimCounter(texts)
    assert verbatim.count(text) == naive(texts, text)
    assert pickle.loads(pickle.dumps(verbatim)).count(text) == naive(texts, text)
    documents = [text[a : a + 500] for a in range(0, 3_000, 500)]
    assert verbatim.count_each(documents) == [naive(texts, part) for part in documents]


def test_a_text_is_found_across_the_pieces_that_are_hashed_at_once():
    text = "a text of some words"
    for before in range(BLOCK_CHARACTERS - 30, BLOCK_CHARACTERS + 2):
        assert VerbatimCounter([text]).count("x" * before + text + "y" * 40) == {text: 1}


def test_case_and_white_space_do_not_count_and_punctuation_does():
    found = VerbatimCounter(["Is it RED?\nYes"])
    assert found.count("They asked:is it\t\tred?  yes, it is.") == {"is it red? yes": 1}
    assert found.count("Is it red: yes") == {}


def test_what_goes_on_in_the_next_document_is_in_neither():
    assert VerbatimCounter(["one two"]).count_each(["one", "two", "one two"]) == [
        {},
        {},
        {"one two": 1},
    ]


def test_occurrences_may_overlap():
    assert VerbatimCounter(["la la"]).count("la la la") == {"la la": 2}
    assert overlapping("aa", "aaaa") == 3
    assert overlapping("", "aaaa") == 0


def test_a_zero_width_space_may_stand_within_a_word_or_for_a_blank():
    found = VerbatimCounter(["the ferry sails", "to"]).count
    assert found("the\u200bferry\u200bsails") == {"the ferry sails": 1}
    assert found("t\u200bhe fe\u200brry sails") == {"the ferry sails": 1}
    assert found("the \u200bferry\u200b\u2060 sails \u200b") == {"the ferry sails": 1}
    assert found("the\u200b\u200bferry sails, the ferry\u200b sails") == {"the ferry sails": 2}
    assert found("the\u200bferry sai\u200bls") == {}  # in one text it stands for one or the other
    text = "a the\u200bferry sails to t\u200bhe ferry sails, t\u200bo to\u200bto"
    assert found(text) == {"the ferry sails": 2, "to": 4}
    assert sum(VerbatimCounter(["to"]).count_each([text, "to", text]), Counter()) == {"to": 9}
