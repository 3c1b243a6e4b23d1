"""N-grams, verbatim texts and near-duplicates, beside loops over strings."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contamination.data.near_duplicates import (
    ComparedItem,
    NearDuplicateFilter,
    NearDuplicateHasher,
    duplicates_on_other_side,
    normalised_words,
)
from contamination.data.ngrams import (
    NgramIndex,
    VerbatimCounter,
    WordNumbers,
    hash_windows,
    rarest_window_starts,
    words_of,
)
from contamination.data.words import normalise_text
from tests.properties import orders


def test_a_word_is_composed_but_its_signs_stay_what_they_are():
    assert [*words_of("\ufb01sh x\u00b2 cafe\u0301")] == ["\ufb01sh", "x\u00b2", "caf\u00e9"]


NUMBERS = st.lists(st.integers(0, 3), max_size=14).map(lambda words: np.array(words, np.int32))
WORDS = st.lists(st.sampled_from(["a", "b", "A", "c.", "-", "ç"]), max_size=9).map(" ".join)
TEXTS = st.text("ab \n\u200b", max_size=9)


def grams_of(words, n):
    return [tuple(words[i : i + n].tolist()) for i in range(len(words) - n + 1)]


@given(st.lists(NUMBERS, min_size=1, max_size=4), NUMBERS, st.integers(1, 5), st.data())
def test_an_index_finds_the_n_grams_of_its_texts(texts, words, n, data):
    index = NgramIndex(texts, n)
    every = {gram for text in texts for gram in grams_of(text, n)}
    assert {tuple(gram) for gram in index.grams.tolist()} == every
    assert index.sizes.tolist() == [max(1, len(set(grams_of(text, n)))) for text in texts]
    places, rows = index.places(words)
    found = [(p, tuple(index.grams[r].tolist())) for p, r in zip(places, rows, strict=True)]
    expected = [(i, gram) for i, gram in enumerate(grams_of(words, n)) if gram in every]
    assert found == expected
    first = list(dict.fromkeys(gram for _, gram in expected))
    assert [tuple(index.grams[row].tolist()) for row in index.find(words)] == first
    for row, gram in enumerate(index.grams.tolist()):
        owners = [t for t, text in enumerate(texts) if tuple(gram) in grams_of(text, n)]
        assert sorted(index.owners(row)) == owners
    which, owners = index.all_owners(np.arange(len(index.grams)))
    pairs = [(row, owner) for row in range(len(index.grams)) for owner in index.owners(row)]
    assert list(zip(which.tolist(), owners.tolist(), strict=True)) == pairs
    order = data.draw(orders(len(texts)))  # texts in another order are the same index
    moved = NgramIndex([texts[i] for i in order], n)
    np.testing.assert_array_equal(moved.grams, index.grams)
    assert moved.sizes.tolist() == index.sizes[order].tolist()


@given(NUMBERS, NUMBERS, st.integers(1, 8))
def test_windows_have_one_hash_where_their_words_are_the_same(one, other, n):
    hashes = hash_windows(one, n), hash_windows(other, n)
    assert [len(own) for own in hashes] == [max(0, len(w) - n + 1) for w in (one, other)]
    grams = grams_of(one, n) + grams_of(other, n)
    both = np.concatenate(hashes).tolist()
    for (gram, own), (second, its) in combinations(zip(grams, both, strict=True), 2):
        assert (own == its) == (gram == second)


@given(st.lists(st.lists(st.integers(1, 2), min_size=3, max_size=8), min_size=1, max_size=4))
def test_the_rarest_window_is_shared_by_the_fewest_texts(texts):
    texts = [np.array(text, np.int32) for text in texts]
    starts = rarest_window_starts(texts, 3)
    for text, start in zip(texts, starts, strict=True):
        shared = [sum(gram in grams_of(t, 3) for t in texts) for gram in grams_of(text, 3)]
        if len(texts) > 1:
            assert shared[start] == min(shared)
        middle = (len(text) - 3) // 2
        rarest = [i for i, n in enumerate(shared) if len(texts) == 1 or n == min(shared)]
        assert abs(start - middle) == min(abs(i - middle) for i in rarest)


@given(WORDS, st.lists(WORDS, max_size=3))
def test_words_have_one_number_where_they_are_alike(text, known):
    words = dict.fromkeys(word for own in known for word in words_of(own))
    numbers = WordNumbers({word: place + 1 for place, word in enumerate(words)})
    expected = [numbers.known.get(word, 0) for word in words_of(text)]
    assert numbers.of(text).tolist() == expected
    shouted = text.upper()
    if shouted.lower() == text.lower():
        assert words_of(shouted) == words_of(text)
    assert words_of(f"  {text}\n") == words_of(text)


def occurrences(text, within):
    return sum(within.startswith(text, start) for start in range(len(within)))


@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=3))
def test_whole_texts_are_counted_as_a_loop_counts_them(texts, searched):
    """Where no zero-width space is, which may stand in the place of a blank."""
    texts = [text.replace("\u200b", "") for text in texts]
    plain = [text.replace("\u200b", "") for text in searched]
    wanted = {normalise_text(text) for text in texts} - {""}
    counter = VerbatimCounter(texts)
    found = counter.count_each(plain)
    for text, counts in zip(plain, found, strict=True):
        expected = {own: occurrences(own, normalise_text(text)) for own in wanted}
        assert dict(counts) == {own: number for own, number in expected.items() if number}
        assert counter.count(text) == counts
    hidden = counter.count_each([text.replace(" ", "\u200b") for text in plain])
    for counts, more in zip(found, hidden, strict=True):
        assert all(more[text] >= number for text, number in counts.items())


LONG = st.lists(st.sampled_from("abcd"), min_size=11, max_size=16)


@given(st.lists(st.tuples(LONG, st.booleans()), min_size=2, max_size=5), st.data())
def test_near_duplicates_share_thirteen_words_or_all(drawn, data):
    texts, members = zip(*drawn, strict=True)
    items = [ComparedItem([" ".join(t)], [" ".join(t)]) for t in texts]
    keys = NearDuplicateHasher()

    def alike(one, other):
        sets = [{tuple(t[i : i + 13]) for i in range(len(t) - 12)} for t in (one, other)]
        return bool(sets[0] & sets[1]) or "".join(one) == "".join(other)

    expected = {}
    for i, (text, member) in enumerate(drawn):
        others = [j for j, (t, m) in enumerate(drawn) if m != member and alike(text, t)]
        if others:
            expected[i] = others[0]
    assert duplicates_on_other_side(items, members, keys) == expected
    swapped = duplicates_on_other_side(items, [not member for member in members], keys)
    assert swapped == expected  # whichever side is called members
    kept = NearDuplicateFilter(keys)
    accepted = []
    for text, item in zip(texts, items, strict=True):
        is_new = not any(alike(text, other) for other in accepted)
        assert kept.accept(item) == is_new
        accepted += [text] * is_new
    order = data.draw(orders(len(items)))
    moved = duplicates_on_other_side([items[i] for i in order], [members[i] for i in order], keys)
    assert {int(order[i]) for i in moved} == set(expected)


@given(st.lists(st.sampled_from("abc"), min_size=13, max_size=15))
def test_case_and_punctuation_hide_no_near_duplicate(words):
    keys = NearDuplicateHasher()
    plain, dressed = " ".join(words), "-".join(words).upper() + "!"
    assert normalised_words(dressed) == normalised_words(plain) == words
    own, other = (keys.of(ComparedItem([text], [text])) for text in (plain, dressed))
    assert set(own.tolist()) == set(other.tolist())
