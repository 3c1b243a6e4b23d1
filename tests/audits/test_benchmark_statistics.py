"""The figures of the audit of questions on small cases, by hand or by loops."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from contamination.audits.benchmark import exchangeability, inputs
from contamination.audits.benchmark.comparison import (
    Comparison,
    by_benchmark,
    compare,
    holm,
    scores_by_method,
    too_few,
)
from contamination.audits.benchmark.effects import (
    d_prime,
    least_question_p,
    paired_auroc,
    paired_effect,
    question_p_values,
    spread_within_sides,
    without_cluster_means,
)
from contamination.audits.benchmark.exchangeability import (
    Design,
    SetTest,
    largest_statistic_test,
    set_test,
    studentised,
)
from contamination.audits.benchmark.origin import (
    check_near_copies,
    shared_clusters,
    shared_clusters_note,
    with_merged_clusters,
)
from contamination.audits.benchmark.verdict import _level_of_each, _nothing_to_compare
from contamination.core.errors import ConfigError, DataError
from contamination.core.statistics.estimates import Estimate
from contamination.data.examples import make_text
from contamination.data.texts import Texts

PAIRED = Design(np.array([1, 0, 0, 1, 1, 0, 1, 0], bool), np.array([0, 0, 0, 1, 1, 1, 2, 2]))
SCORE = np.array([3.0, 1, 3, 1, 2, 0, 0, 5])
WHOLE = Design(np.array([1, 1, 1, 0, 0, 0, 1], bool), np.array([0, 0, 1, 2, 3, 3, 4]))
VALUES = np.array([1.0, 3, 4, 0, 1, 3, 3])


def test_d_prime_has_the_ends_of_the_aurocs_interval():
    auroc = Estimate(20, 10, 0.7, np.linspace(0.7 - 0.1 / 0.95, 0.7 + 0.1 / 0.95, 401))
    expected = np.sqrt(2) * norm.ppf([0.7, 0.6, 0.8])
    assert d_prime(auroc, (20, 10)) == pytest.approx(tuple(expected), abs=1e-3)
    least = np.sqrt(2) * norm.ppf(0.5 / 200)
    for value, end in ((0.0, least), (1.0, -least)):
        extreme = replace(auroc, value=value, draws=np.full(9, value))
        assert d_prime(extreme, (20, 10)) == pytest.approx((end, end, end))


def test_the_auroc_within_clusters_is_the_mean_of_theirs():
    auroc = paired_auroc(pd.Series(SCORE), PAIRED)
    of_clusters = (0.75, 1.0, 0.0)
    assert auroc.value == pytest.approx(np.mean(of_clusters))
    assert (auroc.n_members, auroc.n_nonmembers) == (4, 4)
    assert auroc.trials == pytest.approx(1.5 + 1.5 + 1.0)
    assert (auroc.draws.min(), auroc.draws.max()) == (0, 1)
    assert auroc.draws.mean() == pytest.approx(auroc.value, abs=0.03)
    assert auroc.draws.std() == pytest.approx(np.std(of_clusters) / np.sqrt(3), abs=0.02)


def test_a_question_is_ranked_within_its_cluster_or_among_the_clusters_of_others():
    assert question_p_values(SCORE, PAIRED).tolist() == pytest.approx([2 / 3, 0.5, 0.5, 1])
    assert least_question_p(PAIRED) == pytest.approx(1 / 3)
    single = Design(np.array([1, 1, 0, 0, 0], bool), np.arange(5))
    p_values = question_p_values(np.array([5.0, 1, 0, 1, 3]), single)
    assert p_values.tolist() == pytest.approx([1 / 4, 3 / 4])
    assert least_question_p(single) == pytest.approx(1 / 4)
    assert least_question_p(WHOLE) == pytest.approx(1 / 3)


def test_scores_are_centred_where_clusters_have_both_sides():
    means = np.array([7 / 3] * 3 + [1.0] * 3 + [2.5] * 2)
    assert without_cluster_means(SCORE, PAIRED) == pytest.approx(SCORE - means)
    assert without_cluster_means(VALUES, WHOLE).tolist() == VALUES.tolist()


def test_the_spread_is_that_of_units_within_sides():
    assert spread_within_sides(VALUES, WHOLE, 7) == pytest.approx(np.sqrt((1 + 2) / 2))
    sides = SCORE[PAIRED.is_question], SCORE[~PAIRED.is_question]
    spread = np.sqrt(np.mean([side.var(ddof=1) for side in sides]))
    narrow = norm.ppf(np.arange(1, 9) / 9).std()
    assert spread_within_sides(SCORE, PAIRED, 8) == pytest.approx(spread / narrow)


def test_the_effect_within_clusters_has_a_jackknifes_interval():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(5), 3)
    is_question = np.tile([True, False, False], 5)
    score = rng.normal(size=15) + is_question

    def effect(kept):
        gaps = [score[3 * c] - score[3 * c + 1 : 3 * c + 3].mean() for c in kept]
        chosen = np.isin(cluster, kept)
        sides = score[chosen & is_question], score[chosen & ~is_question]
        spread = np.sqrt(np.mean([side.var(ddof=1) for side in sides]))
        return np.mean(gaps) * norm.ppf(np.arange(1, 16) / 16).std() / spread

    jackknife = [effect([c for c in range(5) if c != left]) for left in range(5)]
    error = np.sqrt(4 / 5 * np.sum((np.array(jackknife) - np.mean(jackknife)) ** 2))
    value, margin = effect(range(5)), student.ppf(0.975, 4) * error
    interval = paired_effect(score, Design(is_question, cluster))
    assert interval == pytest.approx((value, value - margin, value + margin))


def test_a_cluster_counts_once_on_each_side():
    mixed = Design(np.array([0, 1, 1, 0, 1], bool), np.array([1, 1, 0, 1, 0]))
    assert mixed.unit_of_text.tolist() == [0, 1, 2, 0, 2]
    assert mixed.unit_means(np.array([1.0, 2, 3, 5, 4])).tolist() == [3, 2, 3.5]
    assert mixed.first_texts.tolist() == [0, 1, 2]
    assert (mixed.sizes, mixed.units, mixed.is_paired) == ((3, 2), (2, 1), False)
    assert mixed.is_in_mixed_cluster.tolist() == [True, True, False, True, False]
    assert PAIRED.is_paired
    assert (WHOLE.sizes, WHOLE.units) == ((4, 3), (3, 2))


def test_differences_between_and_within_clusters_are_weighted_by_their_precision():
    difference = WHOLE.differences(VALUES, WHOLE.is_question[None])  # 2, 4 and 3 against 0 and 2
    error = np.sqrt(1 / 3 + 1)
    assert [float(value[0]) for value in difference] == pytest.approx([2, error])
    pairs = Design(np.array([1, 0, 1, 1, 0], bool), np.array([0, 0, 1, 1, 1]))
    values = np.array([3.0, 1, 5, 4, 2])
    difference = pairs.differences(values, pairs.is_question[None])  # gaps of 2 and 2.5
    assert [float(value[0]) for value in difference] == pytest.approx([2.25, 0.25])
    joined = Design(np.append(WHOLE.is_question, pairs.is_question),
                  np.append(WHOLE.cluster, pairs.cluster + 5))  # fmt: skip
    between, within = 3 * 2 / 5, 1 / 2 + 2 / 3
    difference = joined.differences(np.append(VALUES, values), joined.is_question[None])
    assert [float(value[0]) for value in difference] == pytest.approx([
        (between * 2 + within * 2.25) / (between + within),
        np.hypot(between * error, within * 0.25) / (between + within),
    ])  # fmt: skip
    few = Design(np.array([1, 0, 0], bool), np.arange(3))
    difference = few.differences(np.arange(3.0), few.is_question[None])
    assert [float(value[0]) for value in difference] == [0, 0]


def test_a_difference_without_an_error_is_infinite():
    statistics = studentised(np.array([1.0, -1.0, 0.0, 2.0]), np.array([0, 0, 0, 0.5]))
    assert statistics.tolist() == [np.inf, -np.inf, 0, 4]


def statistic(score, labels):
    sides = score[labels], score[~labels]
    error = np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides))
    return (sides[0].mean() - sides[1].mean()) / error


def test_the_test_counts_the_relabellings_on_either_side_and_names_what_it_would_find():
    rng = np.random.default_rng(1)
    design = Design(np.arange(12) < 5, np.arange(12))
    score = rng.normal(size=12) + 0.5 * design.is_question
    (drawn,) = design.relabellings(99, 4)
    null = np.array([statistic(score, labels) for labels in drawn])
    observed = statistic(score, design.is_question)
    result = set_test(score, design, 4, alpha=0.1, relabellings=99)
    assert result.p_value == pytest.approx((1 + (null >= observed).sum()) / 100)
    assert result.p_value_below == pytest.approx((1 + (null <= observed).sum()) / 100)
    sides = score[:5], score[5:]
    error = np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides))
    assert result.error == pytest.approx(error)
    assert result.difference == pytest.approx(sides[0].mean() - sides[1].mean())
    critical, unlucky = np.quantile(null, [0.9, 0.2], method="higher")
    assert result.smallest_difference == pytest.approx((critical - unlucky) * error)
    constant = set_test(np.zeros(12), design, 4, relabellings=9)
    assert (constant.p_value, constant.p_value_below, constant.difference) == (1, 1, 0)
    assert set_test(score, design, 5, relabellings=99).p_value != result.p_value


@pytest.mark.parametrize(
    ("p_value", "below", "two_sided"), [(0.3, 0.8, 0.6), (0.9, 0.2, 0.4), (0.6, 0.7, 1.0)]
)
def test_the_two_sided_p_value_is_twice_the_smaller(p_value, below, two_sided):
    assert SetTest(p_value, below, 0.0, 1.0, 1.0).two_sided == pytest.approx(two_sided)


@pytest.mark.parametrize("in_memory", [4_000_000, 1_800, 100])
def test_the_largest_of_several_statistics_is_compared_with_the_largest(monkeypatch, in_memory):
    monkeypatch.setattr(exchangeability, "IN_MEMORY", in_memory)
    rng = np.random.default_rng(2)
    design = Design(np.arange(12) < 5, np.arange(12))
    scores = rng.normal(size=(3, 12)) - 0.8 * design.is_question
    (drawn,) = design.relabellings(99, 4)
    largest = [
        max(abs(statistic(score, labels)) for score in scores)
        for labels in (design.is_question, *drawn)
    ]
    expected = (1 + sum(value >= largest[0] - 1e-9 for value in largest[1:])) / 100
    assert largest_statistic_test(scores, design, 4, 99) == pytest.approx(expected)


def texts_of(*rows):
    return Texts.of(
        replace(make_text(name, text, label, benchmark), cluster=cluster)
        for name, text, label, benchmark, cluster in rows
    )


def test_texts_that_are_equal_get_a_common_cluster():
    texts = texts_of(
        ("a", "What is it?", True, "", ""), ("b", "Who came?", True, "", "x"),
        ("c", "what is IT", False, "", ""), ("d", "Where?", False, "", "x"),
        ("e", "When?", False, "", "y"),
    )  # fmt: skip
    merged = [text.cluster for text in with_merged_clusters(texts)]
    assert merged[0] == merged[2] != merged[1] == merged[3]
    assert merged[4] == ""
    assert all(name.startswith("cluster ") for name in merged[:4])


def test_clusters_on_both_sides_of_a_benchmark_are_shared():
    texts = texts_of(
        ("a", "A?", True, "one", "9"), ("b", "B?", False, "one", "9"),
        ("c", "C?", True, "one", "-3"), ("d", "D?", False, "one", "-3"),
        ("e", "E?", True, "one", "other"), ("f", "F?", False, "two", "other"),
        ("g", "G?", True, "one", ""), ("h", "H?", False, "one", ""),
    )  # fmt: skip
    assert shared_clusters(texts) == ["-3", "9"]
    rest = (
        "are named on both sides, so questions are compared with the fresh questions of their own "
        "cluster (paired).{} If equal names do not mean that texts belong together, give the two "
        "files distinct ones, or leave the column `cluster` out."
    )
    assert shared_clusters_note(["-3", "9"]) == (
        f"2 clusters, such as '-3', {rest.format(' They look like row numbers.')}"
    )
    assert shared_clusters_note(["9", "x"]) == f"2 clusters, such as '9', {rest.format('')}"


def long_text(end):
    return f"{' '.join(f'word{i}' for i in range(13))}  and {end}"


def test_near_copies_are_refused_by_name_and_a_twentieth_is_let_pass():
    question = ("question/q", long_text("one"), True, "", "")
    copy = ("fresh/f", long_text("another"), False, "", "")
    unlike = [(f"fresh/{i}", f"Who is number {i}?", False, "", "") for i in range(19)]
    assert check_near_copies(texts_of(question, copy, *unlike)) == 1
    beginning = f"'{' '.join(long_text('').split())[:59]}…'"
    with pytest.raises(DataError) as error:
        check_near_copies(texts_of(question, copy, *unlike[1:]))
    assert str(error.value) == (
        f"audit.fresh: 1 of its texts are near-copies of questions, such as fresh/f ({beginning}) "
        f"and question/q ({beginning}): they share 13 words in a row, or all words but for a "
        "typing error in one, so they would leak together. Leave them out. If they belong "
        "together, name what they share in a column `cluster`."
    )
    equal_texts = [
        ("fresh/s", "WHO came", False, "", ""),
        ("question/s", "Who came?", True, "", ""),
    ]
    with pytest.raises(DataError) as error:
        check_near_copies(texts_of(*equal_texts, *unlike))
    assert str(error.value) == (
        "audit.fresh: 1 of its texts are the same as questions, such as fresh/s ('WHO came') and "
        "question/s ('Who came?'): they differ in case, punctuation or blanks at most, so they "
        "would leak together. Leave them out."
    )


def table_of(values, method="loss", variant="", default=True):
    return pd.DataFrame({
        "example_id": [*values], "method": method, "variant": variant, "score": [*values.values()],
        "ranked": True, "default": default,
    })  # fmt: skip


def test_the_scores_of_each_method_are_in_the_texts_order():
    texts = texts_of(("b", "B?", True, "", ""), ("a", "A?", False, "", ""))
    table = pd.concat([
        table_of({"a": 1.0, "b": 2.0}), table_of({"b": 4.0, "a": 3.0}, "min_k", "k=0.2"),
        table_of({"a": 9.0, "b": 9.0}, "min_k", "k=0.3", default=False),
    ])  # fmt: skip
    assert scores_by_method(texts, table).tolist() == [[2, 1], [4, 3]]
    for value, words in ((np.inf, "inf"), (np.nan, "missing")):
        changed = table.assign(score=table["score"].replace(3.0, value))
        with pytest.raises(DataError) as error:
            scores_by_method(texts, changed)
        assert str(error.value) == (
            f"min_k k=0.2: its score of the text a is {words}. Leave out the text or the method."
        )


def test_too_few_texts_or_clusters_are_named():
    sides = np.arange(20) < 10
    assert too_few(Design(sides, np.arange(20))) == ""
    unbalanced = Design(np.arange(10) < 9, np.arange(10))
    needed = "10 of each are needed"
    assert too_few(unbalanced) == f"9 questions and 1 comparison text are too few: {needed}"
    assert too_few(unbalanced, 1) == (
        "9 questions and 1 comparison text are too few (1 text too short for the model to score "
        f"not counted): {needed}"
    )
    clusters = np.where(sides, np.arange(20) // 2, np.arange(20))
    assert too_few(Design(sides, clusters)) == (
        f"10 questions and 10 comparison texts in 5 and 10 clusters are too few: {needed}"
    )


def test_a_comparison_without_text_tests_has_all_its_figures():
    rng = np.random.default_rng(0)
    labels = np.arange(24) < 12
    rows = [(f"{'question' if label else 'fresh'}/{i:02d}", f"Text {i}?", bool(label), "tq", "")
            for i, label in enumerate(labels)]  # fmt: skip
    values = {row[0]: float(v) for row, v in zip(rows, rng.permutation(24) / 7, strict=True)}
    texts = texts_of(*rows)
    comparison = compare("tq", "m", texts, table_of(values), 0, 0.05, None, table_of(values))
    assert (comparison.benchmark, comparison.model) == ("tq", "m")
    assert (comparison.questions, comparison.others) == (12, 12)
    assert (comparison.obstacle, comparison.left_out, comparison.orphans) == ("", 0, 0)
    assert comparison.blind is comparison.blind_p is comparison.units is None
    assert comparison.is_paired is False
    score = norm.ppf((np.array([*values.values()]) * 7 + 1) / 25)
    assert comparison.scores[0] == pytest.approx(score[labels])
    assert comparison.scores[1] == pytest.approx(score[~labels])
    assert comparison.test.difference == pytest.approx(score[labels].mean() - score[~labels].mean())
    assert comparison.reference_p == pytest.approx(comparison.test.p_value, abs=0.03)
    assert comparison.least_question_p == pytest.approx(1 / 13)
    spread = np.sqrt((score[labels].var(ddof=1) + score[~labels].var(ddof=1)) / 2)
    assert comparison.smallest_effect == pytest.approx(comparison.test.smallest_difference / spread)
    auroc = np.mean(score[labels][:, None] > score[~labels])
    assert comparison.estimate("auroc").value == pytest.approx(auroc)
    assert comparison.effect[0] == pytest.approx(np.sqrt(2) * norm.ppf(auroc))
    assert [*comparison.estimates] == [("combined", ""), ("loss", "")]
    order = np.argsort(-score[:12])
    assert comparison.ranking["example_id"].tolist() == [rows[i][0] for i in order]
    assert comparison.ranking["text"].tolist() == [rows[i][1] for i in order]
    assert comparison.ranking["score"].tolist() == pytest.approx(score[:12][order].tolist())
    p_values = [(1 + np.sum(score[12:] >= score[i])) / 13 for i in order]
    assert comparison.ranking["p_value"].tolist() == pytest.approx(p_values)
    assert [*comparison.ranking] == ["example_id", "text", "score", "p_value", "adjusted"]


def test_the_benchmarks_are_taken_in_alphabetical_order():
    texts = texts_of(*((n, f"{n}?", True, n[0], "") for n in ("b1", "a1", "b2")))
    benchmarks = by_benchmark(texts)
    assert {name: [t.example_id for t in texts] for name, texts in benchmarks.items()} == {
        "a": ["a1"], "b": ["b1", "b2"]
    }  # fmt: skip
    assert [*benchmarks] == ["a", "b"]


def test_p_values_are_corrected_over_all_comparisons_that_were_tested():
    tested = [
        Comparison(name, "m", 1, 1, "", test=SetTest(p, 1.0, 0.0, 1.0, 1.0))
        for name, p in (("a", 0.01), ("b", 0.04), ("c", 0.03))
    ]
    corrected = holm([*tested, Comparison("d", "m", 1, 1, "too few")])
    assert corrected == {
        ("m", "a"): pytest.approx(0.03), ("m", "b"): pytest.approx(0.06),
        ("m", "c"): pytest.approx(0.06),
    }  # fmt: skip


def test_the_level_is_divided_among_the_tests_and_must_be_reachable():
    assert _level_of_each(0.05, 4) == pytest.approx(0.0125)
    assert _level_of_each(0.05, 0) == 0.05
    assert _level_of_each(0.0002, 2) == pytest.approx(0.0001)
    with pytest.raises(ConfigError) as error:
        _level_of_each(0.0001, 2)
    assert str(error.value) == (
        "audit.alpha is 0.0001: give 0.0002 or more: 2 tests of 9,999 relabellings can reach "
        "0.0002 at least."
    )


def test_it_is_said_why_a_benchmark_has_nothing_to_be_compared_with():
    def reason(name, *benchmarks):
        fresh = [(f"f{i}", "F?", False, other, "") for i, other in enumerate(benchmarks)]
        texts = texts_of(("q", "Q?", True, name, ""), *fresh)
        return _nothing_to_compare(name, texts, inputs.FRESH)

    assert reason("TQ") == "there are no fresh questions to compare the questions with"
    assert reason("TQ", "") == (
        "the fresh questions name no benchmark (give them the column `benchmark`)"
    )
    assert reason("TQ", "", "tq") == (
        "the fresh questions write the benchmark 'TQ' in another case; write both alike"
    )
    assert reason("", "b", "a") == (
        "there are no fresh questions of the questions that name no benchmark, only of 'a', 'b'"
    )
    assert reason("TQ", "b", "b") == "there are no fresh questions of 'TQ', only of 'b'"
