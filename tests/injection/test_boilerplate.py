"""Words of a template that many examples share are not their own text."""

import random
import time

import pytest

from contamination.data.ngrams import _code_points, rarest_window_starts
from contamination.injection.shared_text_search import (
    Matcher,
    PoolSearch,
    SharedPassage,
    warn_of_shared_passages,
)
from contamination.injection.verification import _TokenSearch

TEMPLATE = "Read the next question with care, then answer it in one short word alone:"
PASSAGE = "The ferry to the island sails at noon and at six unless the river has ice on it."


def words(rng, n):
    return " ".join(f"w{rng.randrange(5_000)}" for _ in range(n))


def pool_of(n, prefix=TEMPLATE):
    """Examples of a template and 11 words each."""
    rng = random.Random(n)
    return {f"mine-{i}": f"{prefix} {words(rng, 11)}" for i in range(n)}


def matching(texts, document, fields=None):
    return {m.example_id: m.rule for m in Matcher(texts, fields).iter_matches(document)}


def document_with(text):
    rng = random.Random(-1)
    return f"{words(rng, 40)} {text} {words(rng, 40)}"


@pytest.mark.parametrize("n", [3, 8, 20, 200])
def test_a_template_is_no_match(n):
    texts = pool_of(n)
    assert matching(texts, document_with(TEMPLATE)) == {}
    assert matching(texts, document_with(f"{TEMPLATE} {words(random.Random(-2), 11)}")) == {}


@pytest.mark.parametrize("n", [3, 8, 20, 200])
@pytest.mark.parametrize("prefix", [TEMPLATE, "another beginning:", ""])
def test_an_examples_own_words_are_a_match_with_and_without_its_template(n, prefix):
    texts = pool_of(n)
    own = texts["mine-1"].removeprefix(TEMPLATE)
    assert matching(texts, document_with(f"{prefix}{own}")) == {"mine-1": "8-gram share"}


def test_a_template_with_a_few_words_of_an_example_is_no_match():
    """12 words of the template and one of an example are 13 in a row."""
    texts = pool_of(200)
    first = " ".join(texts["mine-1"].split()[:16])
    assert matching(texts, document_with(first)) == {}


def test_a_template_within_a_field_is_none_of_its_words():
    texts = pool_of(50)
    fields = {name: [text] for name, text in texts.items()}
    texts = {name: f"Question: {text}" for name, text in texts.items()}
    assert matching(texts, document_with(TEMPLATE), fields) == {}


@pytest.mark.parametrize(("n", "sharing", "is_template"), [
    (200, 20, False), (200, 21, True), (60, 10, False), (60, 11, True),
    (12, 6, False), (12, 7, True), (4, 2, False), (4, 3, True),
])  # fmt: skip
def test_a_passage_of_several_questions_is_no_template(n, sharing, is_template):
    texts = pool_of(n, "") | pool_of(sharing, PASSAGE)
    found = matching(texts, document_with(PASSAGE))
    assert len(found) == (0 if is_template else sharing)
    assert set(found.values()) <= {"13-gram"}


def test_each_passage_that_is_not_compared_is_named_with_its_benchmark_and_examples(caplog):
    texts = pool_of(100, "") | {f"other-{i}": f"{TEMPLATE} {i}" for i in range(2)}
    questions = [f"mine-{i}" for i in range(11)]
    texts |= {name: f"{PASSAGE} {texts[name]} {TEMPLATE}" for name in questions}
    search = PoolSearch({name: (text,) for name, text in texts.items()}, lambda text: text)
    assert search.shared_passages == [
        SharedPassage("mine", "the ferry to the island sails at noon", 11),
        SharedPassage("mine", "read the next question with care then answer", 11),
    ]
    warn_of_shared_passages(search.shared_passages)
    assert "pool: mine: passages that many examples share count as template" in caplog.text
    assert "'the ferry to the island sails at noon' (11), 'read the next" in caplog.text


def test_each_benchmark_has_a_template_of_its_own():
    """A text that is one benchmark's template is no other's."""
    texts = pool_of(30) | {"other-1": f"{TEMPLATE} {words(random.Random(1), 3)}"}
    assert matching(texts, document_with(TEMPLATE)) == {"other-1": "13-gram"}
    many = {f"b{n}-{name}": text for n in range(30) for name, text in pool_of(30).items()}
    assert matching(many, document_with(TEMPLATE)) == {}


def test_a_whole_text_is_found_though_a_template_is_most_of_it():
    texts = {f"mine-{i}": f"{TEMPLATE} number {i}?" for i in range(200)}
    search = PoolSearch({name: (text,) for name, text in texts.items()}, lambda text: text)
    (shared,) = search([document_with(texts["mine-7"])])
    assert [(s.example_id, s.rule, s.occurrences) for s in shared] == [("mine-7", "verbatim", 1)]


def test_a_template_in_every_document_takes_no_time_an_example():
    """Of 800 examples each would be compared at every place: 0.1 s a document."""
    pool = {name: (text,) for name, text in pool_of(800).items()}
    search = PoolSearch(pool, lambda text: text)
    documents = [document_with(f"{TEMPLATE} {n}") for n in range(200)]
    start = time.process_time()
    assert search(documents) == [[]] * 200
    assert time.process_time() - start < 2


def test_what_proposes_a_text_is_its_own():
    texts = [f"{TEMPLATE} {n:05d}? {TEMPLATE}" for n in range(300)]
    starts = rarest_window_starts([_code_points(text) for text in texts], 16)
    windows = {text[start : start + 16] for text, start in zip(texts, starts, strict=True)}
    assert len(windows) == 300
    tokens = {text: _code_points(text) for text in texts}
    assert all(len(own) == 1 for own in _TokenSearch(tokens)._probes[16].values())
    alike = ["abcdefgh", "abcdefgh"]
    assert rarest_window_starts([_code_points(text) for text in alike], 4) == [2, 2]
