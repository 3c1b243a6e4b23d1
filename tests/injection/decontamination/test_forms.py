"""The forms of leaks."""

import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import BenchmarkConfig
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


def test_other_text_without_words_is_left_out():
    halves = ["one two three four five six", "seven eight nine ten eleven twelve"]
    for key in "abcdef":  # which document comes first depends on it
        document = forms.embed(TEXT, [halves[0], " \n ", halves[1]], 1, 0, key)
        assert len(document.replace(TEXT, "").split()) == len(TEXT.split())


def test_too_little_other_text_is_an_error():
    with pytest.raises(DataError, match="58 words too few to surround key with 61 words"):
        forms.embed(TEXT + " x" * 50, ["a b c"], 1, 0, "key")


FIELDS = {"passage": "P.", "question": "Q?", "options": "A. x\nB. y", "answer": "B. y"}
CHOICE = BenchmarkConfig(
    template="{passage}\nQuestion: {question}\n{options}\nAnswer: {answer}",
    answer_field="answer", options_field="options",
)  # fmt: skip


@pytest.mark.parametrize(("form", "text"), [("question", "P.\nQ: Q??"), ("answer", "A: B. y.")])
def test_without_options_a_line_that_ends_in_text_is_of_the_question(form, text):
    config = BenchmarkConfig(
        template="{passage}\nQ: {question}?\nA: {answer}.", answer_field="answer"
    )
    assert forms.leaked_lines(FIELDS, "open", config, form) == text


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("verbatim", "P.\nQuestion: Q?\nA. x\nB. y\nAnswer: B. y"),
        ("question", "P.\nQuestion: Q?"),
        ("question_with_options", "P.\nQuestion: Q?\nA. x\nB. y"),
        ("answer", "Answer: B. y"),
        ("without_options", "P.\nQuestion: Q?\nAnswer: B. y"),
    ],
)
def test_a_form_has_the_lines_of_its_parts(form, text):
    assert forms.leaked_lines(FIELDS, "mc", CHOICE, form) == text


@pytest.mark.parametrize(
    ("template", "form", "words"),
    [
        ("{question} {answer}", "question", "no line of the question alone"),
        ("{question}\n{answer}", "without_options", "no line of the options alone"),
        ("{answer}", "answer", "no line of the question alone"),
    ],
)
def test_a_form_that_a_template_cannot_have_is_refused(template, form, words):
    config = BenchmarkConfig(template=template, answer_field="answer")
    with pytest.raises(ConfigError, match=f"leak.form is '{form}'.*benchmark mc has {words}"):
        forms.leaked_lines(FIELDS, "mc", config, form)
