"""The figures of the audit of books on small cases: rates, p-values, the blind row and snippets."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import t as student

from contamination.audits.books import evaluation
from contamination.audits.books.contamination_rates import (
    NORMAL,
    Rates,
    correct_rate,
    is_significantly_higher,
    normal_p_values,
)
from contamination.audits.books.reading import Book, books_digest, describe_boilerplate
from contamination.audits.books.results import BookScores, audit_books
from contamination.audits.books.shared_text import BoilerplateRun, strip_boilerplate
from contamination.audits.books.snippets import (
    BookSnippets,
    SnippetPlan,
    check_snippet_count,
    draw_snippets,
    list_word_spans,
    make_token_splitter,
)
from contamination.core.errors import DataError
from contamination.core.statistics.estimates import Estimate
from contamination.data.examples import make_text

RATES = Rates(np.array([0.5, 1.0, 0.25]), np.array([4.0, 8.0, 4.0]))
ANGLES = np.arcsin(np.sqrt(np.array([2.375 / 4.75, 8.375 / 8.75, 1.375 / 4.75])))
SAMPLING = (2 / 18 + 1 / 34) / 3


def test_rates_are_compared_on_the_scale_of_angles():
    assert RATES.angles == pytest.approx(ANGLES)
    assert RATES.sampling_variance == pytest.approx(SAMPLING)
    assert RATES.angle_variance == pytest.approx(ANGLES.var(ddof=1))
    alike = Rates(np.full(3, 0.5), RATES.snippets)
    assert alike.angle_variance == alike.sampling_variance
    variance = ANGLES.var(ddof=1)
    spread = np.sqrt(variance - SAMPLING + variance / 3)
    levels = np.array([0.2, 0.5, 0.6])
    angles = ANGLES.mean() + spread * student.ppf(levels, 2)
    assert RATES.predictive_quantiles(levels) == pytest.approx(np.sin(angles) ** 2)
    assert RATES.predictive_quantiles(np.array([0.001, 0.999])).tolist() == [0, 1]


def test_the_p_value_by_angles_is_students():
    rates, snippets = np.array([0.9, 0.2]), np.array([10.0, 5.0])
    variance = ANGLES.var(ddof=1)
    angles = np.arcsin(np.sqrt((rates * snippets + 0.375) / (snippets + 0.75)))
    error = np.sqrt(variance / 3 + variance - SAMPLING + 1 / (4 * snippets + 2))
    expected = student.sf((angles - ANGLES.mean()) / error, 2)
    assert normal_p_values(rates, snippets, RATES) == pytest.approx(expected)


def of_nine(values):
    """Rates of nine snippets each."""
    return Rates(values, np.full(len(values), 9.0))


@pytest.mark.parametrize(("factor", "is_higher"), [(0.99, False), (1.01, True)])
def test_rates_are_higher_beyond_students_quantile_of_the_smaller_group(factor, is_higher):
    error = np.sqrt(0.04 / 3 / 4 + 0.0025 / 3)
    difference = factor * student.ppf(0.975, 2) * error
    positives = 0.3 + difference + np.array([-0.1, 0.1, -0.1, 0.1])
    negatives = 0.3 + np.array([-0.05, 0, 0.05])
    assert is_significantly_higher(of_nine(positives), of_nine(negatives)) == is_higher


def test_books_of_equal_rates_have_a_least_variance():
    half, barely_more, more = (of_nine(np.full(5, rate)) for rate in (0.5, 0.5 + 4e-5, 0.5 + 1e-4))
    assert is_significantly_higher(more, half)
    assert not is_significantly_higher(barely_more, half)


def test_the_interval_of_a_share_has_the_uncertainty_of_all_three_rates():
    sides = [Rates(np.array(v), np.full(6, 50.0)) for v in
             ([0.8, 0.85, 0.9, 0.75, 0.8, 0.7], [0.1, 0.15, 0.05, 0.1, 0.2, 0.12])]  # fmt: skip
    rate = correct_rate(0.45, 40, *sides, seed=1)
    tpr, fpr = (side.values.mean() for side in sides)
    assert rate.value == pytest.approx((0.45 - fpr) / (tpr - fpr))
    rng = np.random.default_rng(9)
    levels = rng.random(100_000)
    high, low = (side.predictive_quantiles(levels) for side in sides)
    gaps = np.maximum(high - low, 1e-3)
    shares = np.clip((rng.beta(18.5, 22.5, 100_000) - low) / gaps, 0, 1)
    ends = np.quantile(shares, [0.025, 0.975])
    assert (rate.low, rate.high) == pytest.approx(ends, abs=0.03)
    assert correct_rate(0.45, 40, *sides, seed=1) == rate
    assert correct_rate(0.45, 40, *sides, seed=2) != rate


def test_a_share_that_some_draws_cannot_tell_may_be_all_or_nothing():
    sides = [Rates(np.array(v), np.full(2, 50.0)) for v in ([0.5, 0.6], [0.3, 0.4])]
    rate = correct_rate(0.45, 40, *sides, seed=0)
    assert rate.value == pytest.approx(0.5)
    assert (rate.low, rate.high) == (0, 1)


def audited(null_model="ranks", seed=0):
    def book(name, levels, effective=4):
        return BookScores(name, np.array([levels], float), effective)

    positives = [book(f"p{i}", [2, 2, 2, 2], 3) for i in range(5)]
    negatives = [book(f"n{i}", [0, 0, 0, 0]) for i in range(5)]
    suspects = [book("d", [0, 0, 0, 0, 0]), book("b", [2, 2, 2, 2]), book("c", [2, 0, 2, 0]),
                book("a", [2, 2, 2, 2])]  # fmt: skip
    return audit_books([("loss", "")], positives, negatives, suspects, null_model, seed)


def test_suspects_are_ordered_by_their_rates_and_have_ranks_among_the_negatives():
    result = audited()
    assert [(s.title, s.snippets, s.rate) for s in result.suspects] == [
        ("a", 4, 1.0), ("b", 4, 1.0), ("c", 4, 0.5), ("d", 5, 0.0)
    ]  # fmt: skip
    assert [s.p for s in result.suspects] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1])
    assert [s.q for s in result.suspects] == pytest.approx([2 / 9, 2 / 9, 2 / 9, 1])
    assert result.lowest_p == pytest.approx(np.full(4, 1 / 6))
    assert [s.corrected.value for s in result.suspects] == pytest.approx([1, 1, 0.5, 0])
    assert all(s.corrected.low <= s.corrected.value <= s.corrected.high for s in result.suspects)
    assert result.separated
    assert result.candidates == [("loss", "")]
    assert (result.rule.candidate, result.rule.threshold) == (0, 1.0)
    assert (result.positives.values.tolist(), result.negatives.values.tolist()) == (
        [1.0] * 5, [0.0] * 5
    )  # fmt: skip
    assert result.positives.snippets.tolist() == [3.0] * 5
    assert result.negatives.snippets.tolist() == [4.0] * 5
    (accuracy,) = result.accuracies
    assert accuracy is result.chosen_accuracy
    assert (accuracy.candidate, accuracy.threshold, accuracy.auroc) == (("loss", ""), 1.0, 1.0)
    assert (accuracy.accuracy, accuracy.tpr, accuracy.fpr) == (1.0, 1.0, 0.0)


def test_intervals_of_two_books_are_drawn_apart_and_by_the_seed():
    first, second, *_ = audited().suspects
    assert first.corrected != second.corrected
    assert audited().suspects == audited().suspects
    assert audited(seed=1).suspects[0].corrected != first.corrected
    by_angles = audited(NORMAL)
    assert [s.p for s in by_angles.suspects] != [s.p for s in audited().suspects]
    assert by_angles.suspects[0].p < 0.01
    assert (by_angles.lowest_p < 0.01).all()


def snippets_of(name, number):
    return BookSnippets([make_text(f"{name}{i}", f"{name}{i}", None, "") for i in range(number)], 9)


@pytest.mark.parametrize(
    ("sizes", "per_book", "folds"),
    [((6, 4, 5), 4, 3), ((1,) * 20, 1, 5), ((1,) * 19, 1, 3), ((900, 600), 500, 3)],
)
def test_the_blind_row_has_as_many_snippets_of_each_book(monkeypatch, sizes, per_book, folds):
    calls = []

    def baseline(*arguments):
        calls.append(arguments)
        return SimpleNamespace(estimates=estimates)

    def estimates(members, others, metrics, draws):
        calls.append((members.tolist(), others.tolist(), [m.name for m in metrics], draws))
        value = np.linspace(0.5, 0.7, 401)
        return {"auroc": Estimate(1, 1, 0.6, value)}

    monkeypatch.setattr(evaluation, "blind_baseline", baseline)
    books = [snippets_of(chr(97 + i), size) for i, size in enumerate(sizes)]
    auroc, low, high = evaluation.blind_auroc_and_interval(books[:1], books[1:], 3)
    (texts, is_member, seed, used_folds, book), (members, others, metrics, _) = calls
    assert (auroc, low, high) == pytest.approx((0.6, 0.505, 0.695))
    assert texts == [
        f"{chr(97 + i)}{(2 * place + 1) * size // (2 * per_book)}"
        for i, size in enumerate(sizes) for place in range(per_book)
    ]  # fmt: skip
    assert book.tolist() == [i for i in range(len(sizes)) for _ in range(per_book)]
    assert is_member.tolist() == [i == 0 for i in book]
    assert members == [*range(per_book)]
    assert others == [*range(per_book, len(texts))]
    assert (used_folds, metrics) == (folds, ["auroc"])
    calls.clear()
    evaluation.blind_auroc_and_interval(books[:1], books[1:], 4)
    assert calls[0][2] != seed


def test_snippets_are_named_and_labelled_by_their_book():
    text = " ".join(f"w{i}" for i in range(40))
    plan = SnippetPlan(3, 5, "words", list_word_spans, 0)
    for role, label in (("positives", True), ("negatives", False), ("suspects", None)):
        snippets = draw_snippets(Book(role, "Emma", text, ""), plan).texts
        assert [(each.example_id, each.label, each.benchmark) for each in snippets] == [
            (f"{role}/Emma#{i}", label, "") for i in range(3)
        ]
        assert [len(each.text.split()) for each in snippets] == [5] * 3
    draws = [draw_snippets(Book("suspects", title, text, ""), plan).texts for title in "abcdef"]
    # each book has draws of its own
    assert len({tuple(snippet.text for snippet in snippets) for snippets in draws}) > 3
    with pytest.raises(DataError) as error:
        draw_snippets(Book("suspects", "Emma", "a b", "e.txt"), plan)
    assert str(error.value) == (
        "audit.suspects: 'Emma' (e.txt) has 2 words, fewer than a snippet's 5. Remove it, or give "
        "a smaller audit.length."
    )


def test_three_snippets_are_too_few_and_four_are_enough():
    book = Book("suspects", "Emma", "", "e.txt")
    check_snippet_count(book, 4)
    with pytest.raises(DataError) as error:
        check_snippet_count(book, 3)
    assert str(error.value) == (
        "audit.suspects: 'Emma' (e.txt) gives 3 different snippets that can be ranked, fewer than "
        "4. Remove it, or change audit.length."
    )


def test_tokens_are_split_without_special_tokens_and_without_those_of_no_text():
    def tokenizer(text, **options):
        assert options == {
            "add_special_tokens": False, "return_offsets_mapping": True, "verbose": False
        }  # fmt: skip
        return {"offset_mapping": [(0, 0), (0, 3), (3, 3), (3, len(text))]}

    assert make_token_splitter(tokenizer)("abcde") == [(0, 3), (3, 5)]


HEAD, TAIL = (" ".join(f"{name}{i}" for i in range(number)) for name, number in
              (("Head", 20), ("tail", 15)))  # fmt: skip
OWN = [" ".join(f"own{book}x{i}" for i in range(60)) for book in range(3)]


def test_what_three_books_begin_and_end_with_is_set_aside():
    texts = [f"{HEAD.upper() if book else HEAD}, {own}.\n{TAIL}" for book, own in enumerate(OWN)]
    beginnings = [" ".join(text.split()[:8]) for text in texts]
    end = BoilerplateRun("end", 15, " ".join(TAIL.split()[:8]))
    assert strip_boilerplate(texts) == [
        (own, (BoilerplateRun("beginning", 20, beginning), end))
        for own, beginning in zip(OWN, beginnings, strict=True)
    ]
    assert strip_boilerplate(texts[:2]) == [(text, ()) for text in texts[:2]]
    alone = [*texts, f"{HEAD} {TAIL}"]  # the fourth has no other text
    assert strip_boilerplate(alone) == [(text, ()) for text in alone]


@pytest.mark.parametrize(("gap", "length"), [(49, 20 + 49 + 20), (50, 20)])
def test_a_gap_of_fewer_than_fifty_words_belongs_to_the_run(gap, length):
    more = " ".join(f"more{i}" for i in range(20))
    texts = [f"{HEAD} {' '.join(f'g{b}x{i}' for i in range(gap))} {more} {own}"
             for b, own in enumerate(OWN)]  # fmt: skip
    assert [runs[0].words for _, runs in strip_boilerplate(texts)] == [length] * 3


@pytest.mark.parametrize(("words_before", "lengths"), [(49, [69]), (50, [])])
def test_a_run_may_begin_after_fewer_than_fifty_words_of_the_books_own(words_before, lengths):
    texts = [f"{' '.join(f'g{b}x{i}' for i in range(words_before))} {HEAD} {own} {own.upper()}x"
             for b, own in enumerate(OWN)]  # fmt: skip
    assert [[run.words for run in runs] for _, runs in strip_boilerplate(texts)] == [lengths] * 3


def test_what_was_set_aside_is_described_by_its_longest_run():
    runs = [BoilerplateRun("beginning", words, f"words {words}") for words in (20, 1_200)]
    end = BoilerplateRun("end", 15, "the end")
    books = [Book("suspects", f"T{i}", "", "", (run,)) for i, run in enumerate(runs)]
    books.append(Book("suspects", "T2", "", "", (end,)))
    because = "because other books have them too; for example those of"
    assert describe_boilerplate(books) == [
        f"up to 1,200 words at the beginning of 2 books, {because} 'T1', which begin with "
        "'words 1200'",
        f"up to 15 words at the end of 1 books, {because} 'T2', which begin with 'the end'",
    ]
    assert describe_boilerplate([Book("suspects", "T", "", "")]) == []


def test_the_digest_of_books_is_that_of_their_roles_titles_and_texts():
    books = [Book("positives", "a", "x", "f"), Book("suspects", "b", "y", "g")]
    digest = books_digest(books)
    assert books_digest(books[::-1]) == digest
    assert books_digest([Book("positives", "a", "x", "another"), books[1]]) == digest
    for changed in (("negatives", "a", "x"), ("positives", "c", "x"), ("positives", "a", "z")):
        assert books_digest([Book(*changed, "f"), books[1]]) != digest
