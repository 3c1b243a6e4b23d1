"""The methods that read what a model writes, beside loops of their definitions."""

import math
import zlib
from dataclasses import replace

import numpy as np
import pytest

from contamination.data.words import split_at_share
from contamination.detection.methods.cdd import Cdd, edit_distances
from contamination.detection.methods.samia import Samia
from contamination.detection.passes import Continuation, Example

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "the", "dog", "on", "the", "it"]


def continuation(rng, most=12):
    ids = rng.integers(0, 5, rng.integers(0, most)).astype(np.int32)
    return Continuation(ids=ids, text=" ".join(rng.choice(WORDS, rng.integers(0, most))), scored=9)


def distance(one, other):
    """Levenshtein's, by the recursion's table."""
    table = [[max(i, j) for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            around = (table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a != b))
            table[i][j] = min(around)
    return table[-1][-1]


def test_a_text_is_cut_behind_a_word():
    assert split_at_share(" one two\n three  four ", 0.5) == (" one two", "\n three  four ")
    assert split_at_share("one two three", 0.5) == ("one", " two three")
    assert split_at_share("one two three four", 0.5, 1) == ("one", " two three four")
    assert split_at_share("one", 0.5) == ("one", "")
    assert split_at_share(" \n", 0.5) == (" \n", "")
    assert split_at_share(" ".join("a" * 100), 0.29)[0].count("a") == 29


def test_edit_distances_are_the_tables():
    rng = np.random.default_rng(0)
    for _ in range(100):
        one, *others = (continuation(rng).ids for _ in range(8))
        assert edit_distances(one, others).tolist() == [distance(one, each) for each in others]


@pytest.mark.parametrize(("alpha", "share"), [(0.0, 1 / 4), (0.1, 2 / 4), (0.2, 3 / 4)])
def test_a_continuation_is_close_up_to_the_share_of_the_longest_and_no_further(alpha, share):
    edited_ids = [np.array([*range(10 - n), *[99] * n], np.int32) for n in range(4)]
    method = Cdd(alpha=alpha, n=4)
    greedy, drawn = method.passes
    sampled = [Continuation(ids=ids, text="", scored=9) for ids in edited_ids]
    example = Example("x", "one two", {greedy: (sampled[0],), drawn: tuple(sampled)})
    assert method.score(example) == share


def test_peaks_are_a_loops():
    rng = np.random.default_rng(1)
    for alpha in (0.0, 0.05, 0.29, 1.0):
        method = Cdd(alpha=alpha, n=20)
        greedy, drawn = method.passes
        one, *others = [continuation(rng) for _ in range(24)]
        example = Example("x", "one two", {greedy: (one,), drawn: tuple(others)})
        others = others[:20]
        longest = max(len(each.ids) for each in [one, *others])
        near = [distance(one.ids, e.ids) <= math.floor(alpha * longest + 1e-9) for e in others]
        assert method.score(example) == sum(near) / 20
    one.ids = one.ids[:0]
    assert method.flag(example) == "the model ends the text after the prompt"
    assert method.flag(replace(example, text="one")) == "no word after the prompt"


@pytest.mark.parametrize("gram", [1, 2, 3])
@pytest.mark.parametrize("compressed", [False, True])
def test_recall_is_a_loops(gram, compressed):
    rng = np.random.default_rng(gram)
    method = Samia(n=4, gram=gram, compressed=compressed)
    drawn = tuple(continuation(rng, 30) for _ in range(6))
    text = " ".join(rng.choice(WORDS, 24))
    found = []
    for one in drawn[:4]:
        rest, own = text.split()[12:], one.text.split()
        left = [own[i : i + gram] for i in range(len(own) - gram + 1)]
        wanted = [rest[i : i + gram] for i in range(len(rest) - gram + 1)]
        hits = 0
        for each in wanted:
            if each in left:
                left.remove(each)
                hits += 1
        found.append(hits / len(wanted) * (len(zlib.compress(one.text.encode())) ** compressed))
    example = Example("x", text, {method.passes[0]: drawn})
    assert method.score(example) == pytest.approx(np.mean(found), rel=1e-12)
    assert method.flag(example) == ""
    short = replace(example, text="one two" + " three" * (gram - 2))
    assert method.score(short) == 0 or gram == 1
    assert (method.flag(short) == "") == (gram == 1)
    assert method.flag(replace(example, text="one")).startswith(f"fewer than {gram} words")
