"""Each rule equals a naive loop of its definition."""

import pickle
import random

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from contamination.core.config import CONF, instantiate_node
from contamination.core.errors import ConfigError
from contamination.data.words import word_spans
from contamination.injection.decontamination.rules.base import WHOLE_ITEM
from contamination.injection.decontamination.rules.item_ngrams import split_words
from contamination.injection.decontamination.rules.longest_match import LongestMatch
from contamination.injection.decontamination.rules.ngram_union import NgramUnion
from tests.injection.decontamination import naive

ITEM = "The old mill by the quiet river was sold to a baker from the next valley."


def sample(seed, n_items=12, n_documents=40):
    """Items and documents of few different words, so that runs of all lengths are shared."""
    rng = random.Random(seed)
    words = ["sun", "moon", "star", "sea", "rock", "tree"]

    def text(length):
        return "".join(
            rng.choice(words) + rng.choice([" ", " ", ", ", "\n"]) for _ in range(length)
        )

    items = [text(rng.randrange(1, 25)) for _ in range(n_items)]
    documents = [text(rng.randrange(1, 60)) for _ in range(n_documents)]
    documents += [f"{text(9)} {item} {text(9)}" for item in items]
    return items, documents


@pytest.mark.parametrize(("n", "min_share", "min_ngrams"), [(3, 0.0, 1), (3, 0.4, 2), (5, 0.2, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_the_union_of_an_items_ngrams_equals_a_loop(n, min_share, min_ngrams, seed):
    items, documents = sample(seed)
    rule = NgramUnion(n=n, min_share=min_share, min_ngrams=min_ngrams, whole_item_words=None)
    search = rule.search(items)
    n_matches = 0
    for document in documents:
        shares = {i: naive.item_share(item, document, n) for i, item in enumerate(items)}
        wanted = {
            i: share
            for i, (share, count) in shares.items()
            if count >= min_ngrams and share >= min_share
        }
        assert {m.item: m.share for m in search.matches(document)} == pytest.approx(wanted)
        n_matches += len(wanted)
    assert n_matches > 5


@pytest.mark.parametrize("seed", range(3))
def test_the_share_of_a_line_equals_a_loop(seed):
    items, documents = sample(seed)
    search = NgramUnion(n=2, min_share=0.5, share_of="line", whole_item_words=None).search(items)
    for document in documents:
        wanted = set()
        for line in document.split("\n"):
            share, count = naive.line_share(items, line, 2)
            if count and share >= 0.5:
                wanted |= {
                    i for i, item in enumerate(items) if naive.line_share([item], line, 2)[1]
                }
        assert {match.item for match in search.matches(document)} == wanted


@pytest.mark.parametrize("seed", range(3))
def test_the_longest_match_equals_a_loop(seed):
    items, documents = sample(seed)
    search = LongestMatch(n=3, min_share=0.4, whole_item_words=None).search(items)
    for document in documents:
        lengths = {i: naive.longest_run(item, document, 3) for i, item in enumerate(items)}
        shares = {i: k / len(naive.words_of(items[i])) for i, k in lengths.items() if k}
        wanted = {i: share for i, share in shares.items() if share >= 0.4}
        assert {m.item: m.share for m in search.matches(document)} == pytest.approx(wanted)


def test_frequent_ngrams_are_ignored():
    items, documents = sample(5)
    rule = NgramUnion(n=3, min_share=0.3, max_documents=3, whole_item_words=None)
    counted = rule.counted_ngrams(items)
    document_counts = np.zeros(len(counted.index.grams), np.int64)
    for document in documents:
        places = counted.places(counted.numbered(document).words)
        document_counts[np.unique(places[1])] += 1
    grams_by_document = [{*naive.ngrams(naive.words_of(d), 3)} for d in documents]
    frequent = {
        gram
        for gram in set.union(*grams_by_document)
        if sum(gram in grams for grams in grams_by_document) > 3
    }
    search = rule.search(items, document_counts)
    for document in documents:
        shares = {i: naive.item_share(t, document, 3, frequent) for i, t in enumerate(items)}
        wanted = {i for i, (share, count) in shares.items() if count and share >= 0.3}
        assert {match.item for match in search.matches(document)} == wanted
    for item, reason in zip(items, search.unseen, strict=True):
        grams = {*naive.ngrams(naive.words_of(item), 3)}
        assert ("more than 3 documents" in reason) == bool(grams and grams <= frequent)
        assert ("no 3-gram" in reason) == (not grams)


@pytest.mark.parametrize("rule", [NgramUnion(n=13), LongestMatch(n=13)])
def test_short_items_match_as_a_whole_or_are_unseen(rule):
    items = [ITEM, "A short item of six words.", "Too short", "…"]
    search = rule.search(items)
    assert [bool(reason) for reason in search.unseen] == [False, False, True, True]
    document = "Look: a SHORT item, of six words; and too short, too. A short item of six words"
    (match,) = search.matches(document)
    assert (match.item, match.kind, match.share) == (1, WHOLE_ITEM, 1.0)
    assert [document[a:b] for a, b in match.spans] == [
        "a SHORT item, of six words;",
        "A short item of six words",
    ]
    assert search.matches("a short item of seven words") == []


def test_exactly_the_least_share_of_an_item_is_enough():
    item, document = "one two three four five six", "before one two three after"
    (match,) = LongestMatch(n=3, min_share=0.5).search([item]).matches(document)
    assert match.share == 0.5
    assert LongestMatch(n=3, min_share=0.51).search([item]).matches(document) == []


def test_spans_are_the_shared_text():
    document = f"First. {ITEM.upper()} And then: sold to a baker from the next hill."
    (match,) = NgramUnion(n=5).search([ITEM]).matches(document)
    assert [document[a:b] for a, b in match.spans] == [
        ITEM.upper(),
        "sold to a baker from the next",
    ]
    (match,) = LongestMatch(n=5, min_share=0.5).search([ITEM]).matches(document)
    assert [document[a:b] for a, b in match.spans] == [ITEM.upper()]
    (match,) = NgramUnion(n=5, share_of="line").search([ITEM]).matches(f"a\n{ITEM}\nb")
    assert match.spans == ((2, 2 + len(ITEM)),)


def test_a_letter_of_chinese_is_a_word():
    item = "春天的花园里有许多美丽的花朵"
    document = f"他说：{item}，真好。"
    (match,) = NgramUnion(n=8).search([item]).matches(document)
    assert document[slice(*match.spans[0])].rstrip("，") == item


def test_a_line_break_hides_an_item_from_lines_but_not_from_items():
    """As in marin's record: lines of 8 words have no 13-gram."""
    lines = ITEM.replace("quiet river", "quiet\nriver")
    assert NgramUnion(n=13).search([ITEM]).matches(lines)
    assert not NgramUnion(n=13, share_of="line").search([ITEM]).matches(lines)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("marin", {"n": 13, "min_share": 0.5, "share_of": "line", "whole_item_words": None}),
        ("contam", {"n": 8, "min_share": 0.5, "whole_item_words": None}),
        ("ngram_union", {"n": 13, "max_documents": None, "whole_item_words": 5}),
        ("longest_match", {"n": 8, "max_documents": None, "whole_item_words": 5}),
        ("embedding", {"min_similarity": 0.8}),
    ],
)
def test_each_file_makes_its_rule(name, settings):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        rule = instantiate_node("matcher", compose("decontaminate", [f"matcher={name}"]).matcher)
    assert {key: getattr(rule, key) for key in settings} == settings


def test_a_setting_outside_its_range_is_named():
    with pytest.raises(ConfigError, match=r"matcher.min_share is 1.5: give a share"):
        NgramUnion(min_share=1.5)


@pytest.mark.parametrize("rule", [NgramUnion(n=3), LongestMatch(n=3)])
def test_a_search_without_items_or_words_finds_nothing(rule):
    assert rule.search([]).matches("some words of text") == []
    assert rule.search(["… !"]).matches("some words of text") == []
    assert rule.search([ITEM]).matches("") == []
    assert pickle.loads(pickle.dumps(rule.search([ITEM]))).matches(ITEM)


def test_words_as_written_are_those_of_the_spans():
    for text in ("a b\x1cc\u2003d", "naïve b\x1cc\u2003d 春天。好", "", " x\n\ty "):
        assert split_words(text) == [text[start:end] for start, end in word_spans(text)]
