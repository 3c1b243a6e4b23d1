"""The forms of leaks."""

import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.injection.decontamination import forms

TEXT = "Question: which river is the longest of all?\nAnswer: that one"
FILLER = [" ".join(f"d{d}w{w}" for w in range(30)) for d in range(5)]


def test_rewrapped_lines_have_eight_words():
    lines = forms.rewrap(TEXT).split("\n")
    assert [len(line.split()) for line in lines] == [8, 3]
    assert " ".join(lines).split() == TEXT.split()
    assert forms.rewrap(TEXT, 100) == " ".join(TEXT.split())


@pytest.mark.parametrize("times", [1, 2, 10])
def test_an_embedded_text_is_within_so_many_times_its_words(times):
    document = forms.embed(TEXT, FILLER, times, 0, "key")
    assert TEXT in document
    before, after = document.split(TEXT)
    assert len(before.split()) + len(after.split()) == times * len(TEXT.split())


def test_an_embedding_depends_on_its_seed_and_key_alone():
    documents = {forms.embed(TEXT, FILLER, 3, seed, key) for seed in (0, 1) for key in "abcdef"}
    assert len(documents) > 6
    assert forms.embed(TEXT, FILLER, 3, 0, "a") == forms.embed(TEXT, FILLER, 3, 0, "a")
    assert forms.embed(TEXT, [], 0, 0, "a") == TEXT


def test_too_little_other_text_is_an_error():
    with pytest.raises(DataError, match="58 words too few to surround key with 61 words"):
        forms.embed(TEXT + " x" * 50, ["a b c"], 1, 0, "key")


def test_questions_lack_the_answer():
    fields = {"question": "Which?", "options": "A. this\nB. that", "answer": "B"}
    assert forms.question_only(fields) == "Which?"
    assert forms.question_with_options(fields) == "Which?\nA. this\nB. that"
    with pytest.raises(ConfigError, match="the item has no field 'stem'"):
        forms.question_only(fields, "stem")
