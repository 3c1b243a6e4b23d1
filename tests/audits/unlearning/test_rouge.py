"""ROUGE-L beside the definition's table of prefixes."""

import random

import pytest

from contamination.audits.unlearning.text_similarity import (
    longest_common_length,
    rouge_l,
    split_into_words,
)


def table_of_prefixes(one, other):
    """Length of the longest common subsequence, by the textbook's recursion."""
    row = [0] * (len(other) + 1)
    for a in one:
        new = [0]
        for place, b in enumerate(other, start=1):
            new.append(row[place - 1] + 1 if a == b else max(row[place], new[-1]))
        row = new
    return row[-1]


def test_the_longest_common_subsequence_is_that_of_the_textbook():
    rng = random.Random(0)
    for _ in range(300):
        one, other = (rng.choices("abcde", k=rng.randint(0, 90)) for _ in range(2))
        assert longest_common_length(one, other) == table_of_prefixes(one, other)


def test_lins_example():
    found = rouge_l("police kill the gunman", "police killed the gunman")
    assert (found.recall, found.precision, found.f1) == (0.75, 0.75, 0.75)
    assert rouge_l("the gunman kill police", "police killed the gunman").recall == 0.5


@pytest.mark.parametrize(("written", "reference"), [("", "a"), ("a", ""), ("", ""), ("b", "a")])
def test_nothing_in_common_is_zero(written, reference):
    found = rouge_l(written, reference)
    assert (found.recall, found.precision, found.f1) == (0, 0, 0)


def test_words_are_letters_and_digits_of_any_script():
    assert split_into_words("It's A_b 3.5, ÄRGER — 北京") == [
        "it",
        "s",
        "a",
        "b",
        "3",
        "5",
        "ärger",
        "北京",
    ]
