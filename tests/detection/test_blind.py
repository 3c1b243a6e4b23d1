"""The blind baseline finds what it should, and nothing where there is nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_info, threadpool_limits

from contamination.core.statistics.estimates import confidence_interval, mean_estimate
from contamination.core.statistics.metrics import chosen_metrics
from contamination.data.readers.embedded import EmbeddedRows
from contamination.data.readers.rows import Tally
from contamination.detection.baselines import classifiers as classifiers_module
from contamination.detection.baselines.blind import (
    REPEATS,
    SHUFFLES,
    BlindBaseline,
    _column_aurocs,
    _cross_fitted_percentiles,
    _cross_validated_aurocs,
    _percentiles_among_nonmembers,
    blind_auroc_warning,
    blind_baseline,
    blind_obstacle,
    number_equal_texts,
    shuffle_label_sources,
    shuffle_label_sources_of_groups,
)
from contamination.detection.baselines.classifiers import RareGrams, classifiers_by_name, make_ridge

WORDS = np.array([f"word{i}" for i in range(60)])
AUROC = chosen_metrics([], [])
FILES = {"TruthfulQA/combined.jsonl": "question", "CommonsenseQA/validation.jsonl": "question",
         "BoolQ/combined.jsonl": "passage", "imdb/sample.csv": "text"}  # fmt: skip


def simulated(n: int, seed: int, length: int = 25) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, length)) for _ in range(n)]


def real(file: str, number: int = 200) -> list[str]:
    """Distinct texts of an embedded benchmark, in random order."""
    rows = EmbeddedRows(file).rows(Tally("stop", ""))
    found = sorted({str(row.value[FILES[file]]) for row in rows})
    texts = [f"Question: {text}\nAnswer: {i % 7}" for i, text in enumerate(found)]
    return [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:number]]


def drawn(n: int, seed: int) -> np.ndarray:
    """Half of the texts, at random."""
    return np.random.default_rng(seed).permutation(np.arange(n) < n // 2)


def auroc(texts: list[str], member: np.ndarray, seed: int = 0) -> float:
    return float(blind_baseline(texts, member, seed).percentiles[member, 0].mean())


def estimated(found: BlindBaseline, member: np.ndarray):
    sides = np.flatnonzero(member), np.flatnonzero(~member)
    return found.estimates(*sides, AUROC, draws=200)["auroc"]


SHIFTS = {
    "upper case": str.upper,
    "double spaces": lambda text: text.replace(" ", "  "),
    "year": lambda text: text.replace("In 2023", f"In {2005 + len(text) % 12}"),
}


@pytest.mark.parametrize("shift", SHIFTS)
def test_finds_a_shift_in_half_of_the_members_of_real_texts(shift):
    """All of them told apart perfectly would be 0.75."""
    texts, member = real("TruthfulQA/combined.jsonl"), drawn(200, 1)
    texts = [f"{text}\nIn 2023" for text in texts] if shift == "year" else texts
    changed = set(np.flatnonzero(member)[::2])
    texts = [SHIFTS[shift](text) if i in changed else text for i, text in enumerate(texts)]
    found = blind_baseline(texts, member, 0)
    value = estimated(found, member)
    assert value.value >= 0.65
    assert confidence_interval(value, 0.95)[0] > 0.5


def test_finds_words_length_and_months():
    member = drawn(60, 2)
    words = [t + " indeed" * int(m) for t, m in zip(simulated(60, 2), member, strict=True)]
    assert auroc(words, member) > 0.95
    lengths = [" ".join(t.split()[: 12 + 12 * m]) for t, m in zip(words, member, strict=True)]
    assert auroc(lengths, member) > 0.95
    rng = np.random.default_rng(0)
    months = [rng.integers(1, 7) + 6 * (not m) for m in member]
    dated = [f"{t} 2023-{m:02d}-01" for t, m in zip(simulated(60, 3), months, strict=True)]
    assert auroc(dated, member) > 0.9


def test_random_labels_score_one_half_on_average_in_every_group():
    """On average over the shuffles; their spread is about that of independent scores."""
    member = drawn(100, 3)
    null = blind_baseline(real("CommonsenseQA/validation.jsonl", 100), member, 0).percentiles[:, 1:]
    members = np.flatnonzero(member)
    for group in (members, members[:20]):
        values = null[group].mean(axis=0)
        assert abs(values.mean() - 0.5) < 4 * values.std() / SHUFFLES**0.5
    independent = ((50 + 50 + 1) / (12 * 50 * 50)) ** 0.5
    assert 0.8 < null[members].mean(axis=0).std() / independent < 1.5


@pytest.mark.slow
def test_intervals_on_random_labels_hold_one_half():
    """200 labelings of real texts of each benchmark, and their mean over benchmarks."""
    texts = {file: real(file, 100) for file in FILES}
    held = np.zeros(len(FILES) + 1)
    for labeling in range(200):
        member = [drawn(100, 10 * labeling + place) for place in range(len(FILES))]
        found = [
            estimated(blind_baseline(texts[file], labels, labeling), labels)
            for file, labels in zip(FILES, member, strict=True)
        ]
        ends = [confidence_interval(value, 0.95) for value in [*found, mean_estimate(found)]]
        held += [low <= 0.5 <= high for low, high in ends]
    assert (held[:-1].sum() / 800 > 0.93) & (held[:-1].sum() / 800 < 0.97)
    assert ((held >= 181) & (held <= 198)).all()  # binomial: 0.05 % beyond either end


def test_an_interval_holds_one_half_just_where_the_null_does():
    rng = np.random.default_rng(0)
    null = rng.normal(0.5, 0.05, SHUFFLES)
    off = np.sqrt(np.mean((null - 0.5) ** 2))
    for sds, outside in ((1.9, False), (2.05, True), (-1.9, False), (-2.05, True)):
        placed = np.tile(np.r_[0.5 + sds * off, null], (200, 1))
        low, high = confidence_interval(
            estimated(BlindBaseline(placed), np.arange(200) < 100), 0.95
        )
        assert (low > 0.5 or high < 0.5) == outside


def test_a_rates_draws_are_the_nulls_scaled_to_its_own_variance():
    """A share v of n has variance v (1 - v) / n; the null's is that at its mean."""
    rng, member = np.random.default_rng(0), np.arange(200) < 100
    placed = rng.random((200, 1 + SHUFFLES))
    placed[member, 0] **= 0.3
    sides = np.flatnonzero(member), np.flatnonzero(~member)
    wanted = chosen_metrics([0.1], [])
    found = BlindBaseline(placed).estimates(*sides, wanted, SHUFFLES)
    auroc = placed[member].mean(axis=0)
    tpr = [(column[member] > np.sort(column[~member])[-11]).mean() for column in placed.T]
    for name, (value, *null) in (("auroc", auroc), ("tpr_at_fpr_0.1", tpr)):
        chance = np.mean(null)
        scale = np.sqrt(value * (1 - value) / (chance * (1 - chance)))
        expected = np.clip(value + scale * (np.array(null) - chance), 0, 1)
        assert found[name].value == pytest.approx(value)
        np.testing.assert_allclose(found[name].draws, expected)


def test_an_estimate_has_the_sizes_the_trials_and_the_steps_of_its_metric():
    """A null that is wider than independent examples' lowers the trials; 0.25 is a fair coin's."""
    rng, members, nonmembers = np.random.default_rng(0), np.arange(10), np.arange(10, 110)
    wanted = [*chosen_metrics([0.1, 0.001], []), replace(AUROC[0], name="bare", trials=None)]
    for spread, trials in ((0.2, 0.25 / 0.2**2), (0.01, 8_000 / 110), (0.0, 8_000 / 110)):
        null = 0.5 + rng.choice([-spread, spread], SHUFFLES)
        placed = np.tile(np.r_[0.75, null], (110, 1))
        found = BlindBaseline(placed).estimates(members, nonmembers, wanted, SHUFFLES + 7)
        auroc, tpr, lacking, bare = found.values()
        assert [(e.n_members, e.n_nonmembers) for e in found.values()] == [(10, 100)] * 4
        assert (auroc.trials, bare.trials) == (pytest.approx(trials), None)
        assert auroc.draws[SHUFFLES:].tolist() == auroc.draws[:7].tolist()
        assert (auroc.steps, tpr.steps) == (None, (0.0, 0.0))
        assert (lacking.needs, len(lacking.draws)) == ("≥ 5,000 non-members", SHUFFLES + 7)
    for value in (0.05, 0.95):  # a draw is a share
        placed = np.tile(np.r_[value, 0.2, 0.8, np.full(SHUFFLES - 2, 0.5)], (110, 1))
        draws = BlindBaseline(placed).estimates(members, nonmembers, AUROC, SHUFFLES)["auroc"].draws
        assert (draws.min() == 0, draws.max() == 1) == (value < 0.5, value > 0.5)
    placed[:10] = 1  # beats every non-member whatever the labels
    sure = BlindBaseline(placed).estimates(members, nonmembers, wanted, SHUFFLES)["tpr_at_fpr_0.1"]
    assert (sure.value, sure.trials) == (1, pytest.approx(0.1 * 0.9 / 0.9**2))
    assert (sure.draws == 1).all()


def test_perfect_places_have_an_interval_with_a_width():
    null = np.random.default_rng(0).normal(0.5, 0.05, SHUFFLES)
    placed = np.tile(np.r_[1.0, null], (200, 1))
    low, high = confidence_interval(estimated(BlindBaseline(placed), np.arange(200) < 100), 0.95)
    assert 0.9 < low < 0.99
    assert high == pytest.approx(1)


def loop(tried, fold, learners, member):
    """Nested cross-validation of one labeling, one fit at a time."""
    placed, folds = np.empty(len(fold)), range(fold.max() + 1)
    known = member[learners].astype(float)[:, None]

    def fit(left_out, scored, kind):
        train = [place for place, text in enumerate(learners) if fold[text] not in left_out]
        return kind.scores(np.array(train), np.flatnonzero(fold == scored), known)[:, 0]

    for outer in folds:
        means = []
        for kind in tried:
            inner = [k for k in folds if k != outer]
            scores = [fit((outer, k), k, kind) for k in inner]
            pairs = zip(inner, scores, strict=True)
            means.append(np.mean([roc_auc_score(member[fold == k], s) for k, s in pairs]))
        scores = fit((outer,), outer, tried[int(np.argmax(means))])
        labels = member[fold == outer]
        placed[fold == outer] = [
            np.mean([(s > o) + (s == o) / 2 for o in scores[~labels]]) for s in scores
        ]
    return placed


def test_places_are_those_of_a_plain_nested_loop():
    rng, learners = np.random.default_rng(0), np.arange(60)[np.arange(60) % 5 > 0]
    member = np.stack([drawn(60, seed) for seed in range(4)], axis=1)
    fold = rng.permutation(60) % 4
    tried = [make_ridge(rng.normal(size=(60, columns)), learners) for columns in (1, 2, 6)]
    found = _cross_fitted_percentiles(tried, fold, learners, member)
    for column in range(4):
        expected = loop(tried, fold, learners, member[:, column])
        np.testing.assert_allclose(found[:, column], expected, atol=1e-9)


@pytest.fixture
def spied(monkeypatch):
    """Runs a baseline of 30 texts whose places are random; of each step, what it was given."""
    roles, calls = [], []

    def spied_shuffled(*arguments):
        roles.append(shuffle_label_sources(*arguments))
        return roles[-1]

    def spied_places(tried, fold, learners, labels):
        found = np.random.default_rng(len(calls)).random(labels.shape)
        calls.append((fold, learners, labels, found))
        return found

    def run(member, seed):
        roles[:], calls[:] = [np.arange(30)], []
        placed = blind_baseline(simulated(30, 12), member, seed, folds=3).percentiles
        return placed, [*roles], [*calls]

    replacements = {
        "shuffle_label_sources": spied_shuffled, "_cross_fitted_percentiles": spied_places,
        "SHUFFLES": 6, "MAX_TRAINING_TEXTS": 20, "classifiers_by_name": lambda *_: {},
    }  # fmt: skip
    for name, value in replacements.items():
        monkeypatch.setattr(f"contamination.detection.baselines.blind.{name}", value)
    return run


def test_each_place_stands_where_its_label_is_from(spied):
    """Of three draws of the folds the mean; each of 20 texts drawn to learn from."""
    member = drawn(30, 1)
    found, roles, calls = spied(member, 0)
    assert (found.shape, len(roles), len(calls)) == ((30, 7), 7, REPEATS)
    for fold, learners, labels, _ in calls:
        assert np.bincount(fold).tolist() == [10] * 3
        assert learners.tolist() == sorted(set(learners)) != list(range(20))
        assert len(learners) == 20
        np.testing.assert_array_equal(labels.T, [member[role] for role in roles])
    for column, role in enumerate(roles):
        for text in range(30):
            mean = np.mean([places[text, column] for *_, places in calls])
            assert found[role[text], column] == pytest.approx(mean)


def test_the_seed_draws_the_shuffles_the_learners_and_the_folds(spied):
    def draws(seed):
        _, roles, calls = spied(drawn(30, 1), seed)
        return [
            each.tolist() for each in (*roles[1:], *(part for call in calls for part in call[:2]))
        ]

    one, again, other = map(draws, (1, 1, 2))
    assert one == again
    assert all(mine != its for mine, its in zip(one, other, strict=True))


def test_aurocs_and_places_are_those_of_plain_loops():
    rng = np.random.default_rng(0)
    scores, member = rng.integers(0, 6, (12, 5)).astype(float), rng.random((12, 5)) < 0.4
    member[:, 3], member[:, 4] = True, False
    aurocs = [roc_auc_score(member[:, k], scores[:, k]) for k in range(3)]
    np.testing.assert_allclose(_column_aurocs(scores, member), [*aurocs, 0.5, 0.5])
    placed = _percentiles_among_nonmembers(scores, member)
    for text, column in np.ndindex(12, 5):
        score, others = scores[text, column], scores[~member[:, column], column]
        beaten = [(score > other) + (score == other) / 2 for other in others]
        assert placed[text, column] == pytest.approx(np.mean(beaten) if beaten else 0.5)


def test_a_texts_label_neither_scores_it_nor_chooses_for_it():
    texts, member = simulated(50, 5), drawn(50, 5)[:, None]
    everyone = np.arange(50)
    fold = everyone % 5
    tried = list(classifiers_by_name(texts, everyone).values())
    other = np.where((fold == 2)[:, None], ~member, member)
    one, two = (
        _cross_validated_aurocs(tried, fold, everyone, labels) for labels in (member, other)
    )
    assert one.shape == (5, len(tried), 1)
    np.testing.assert_array_equal(one[2], two[2])
    assert (one[1] != two[1]).any()
    train, test = everyone[fold != 2], everyone[fold == 2]
    for kind in tried:
        one, two = (kind.scores(train, test, labels.astype(float)) for labels in (member, other))
        np.testing.assert_array_equal(one, two)


def test_ridge_is_scikit_learns():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(30, 4)), (rng.random((30, 2)) < 0.5).astype(float)
    train, test = np.arange(20), np.arange(20, 30)
    centred = features - features.mean(axis=0)
    centred /= np.sqrt((centred**2).sum(axis=1).mean())
    model = KernelRidge(alpha=1.0, kernel="linear").fit(
        centred[train], labels[train] - labels[train].mean(axis=0)
    )
    found = make_ridge(features, np.arange(30)).scores(train, test, labels)
    np.testing.assert_allclose(found, model.predict(centred[test]), atol=1e-9)


def test_rare_n_grams_are_those_of_a_plain_loop(monkeypatch):
    monkeypatch.setattr(classifiers_module, "CHOSEN_GRAMS", 3)
    rng = np.random.default_rng(1)
    held, member = rng.random((40, 30)) < 0.15, drawn(40, 6)
    train, test = np.arange(30), np.arange(30, 40)
    ratio = {}
    for gram in range(30):
        holders = [i for i in train if held[i, gram]]
        if len(holders) >= 2:
            members, hits = member[train].sum(), sum(member[holders])
            share = (hits + 0.5) / (members + 1)
            others = (len(holders) - hits + 0.5) / (len(train) - members + 1)
            ratio[gram] = round(1000 * np.log(share / others))
    ordered = sorted(ratio.values())
    lowest, highest = ordered[2], ordered[-3]
    expected = [
        sum(r for g, r in ratio.items() if held[i, g] and not lowest < r < highest) for i in test
    ]
    from scipy.sparse import csr_matrix

    kind = RareGrams.from_counts(csr_matrix(held.astype(float)), np.arange(40))
    found = kind.scores(train, test, member.astype(float)[:, None])[:, 0]
    np.testing.assert_array_equal(found, expected)
    assert (np.ptp(expected) > 0, found.dtype) == (True, np.float64)


def test_texts_alike_stay_in_one_fold():
    found = number_equal_texts(["A b.", "a  B", "c", "C!", "d"])
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert len(set(found)) == 3


def test_a_text_at_two_lengths_does_not_give_its_label_away():
    rng = np.random.default_rng(0)
    words = np.array([f"w{n}" for n in range(3_000)])
    long = [" ".join(rng.choice(words, 64)) for _ in range(40)]
    texts = [*long, *(text[:200] for text in long)]
    assert number_equal_texts(texts).tolist() == number_equal_texts(long).tolist() * 2
    assert number_equal_texts(["A cat", "A cat sat on the mat."]).tolist() == [
        0,
        1,
    ]  # too short to say
    own = long[0][:100]
    assert number_equal_texts([f"{own}y", own, "else", f"{own}x", f"{own}yz"]).tolist() == [
        1,
        1,
        0,
        1,
        1,
    ]
    member = np.tile(rng.permutation(40) < 20, 2)
    sides = np.flatnonzero(member), np.flatnonzero(~member)
    found = blind_baseline(texts, member, 0).estimates(*sides, AUROC, 200)["auroc"]
    low, high = confidence_interval(found, 0.95)
    assert low < 0.5 < high


def test_labels_are_shuffled_between_groups_of_one_size_and_within_each():
    group = np.array([0, 1, 1, 2, 3, 3, 4])
    rng = np.random.default_rng(0)
    roles = np.stack([shuffle_label_sources(group, rng) for _ in range(200)])
    assert (np.sort(roles) == np.arange(7)).all()
    single, paired = [0, 3, 6], [1, 2, 4, 5]
    for row in single:
        assert set(roles[:, row]) == set(single)
    for row in paired:
        assert set(roles[:, row]) == set(paired)
    assert (group[roles[:, 1]] == group[roles[:, 2]]).all()


def test_copies_of_a_text_add_no_certainty():
    """Each text three times, with one label: the interval is that of the texts once."""
    texts, member = simulated(60, 7), drawn(60, 7)
    once = estimated(blind_baseline(texts, member, 0), member)
    threefold = np.tile(member, 3)
    thrice = estimated(blind_baseline(texts * 3, threefold, 0), threefold)
    widths = [np.subtract(*confidence_interval(each, 0.95)[::-1]) for each in (once, thrice)]
    assert widths[1] > 0.8 * widths[0]
    assert 0.25 < thrice.value < 0.75  # no copy gives its label away


def test_pairs_that_differ_in_case_alone_are_told_apart():
    """Each text is a member in upper case and a non-member as it is."""
    texts = simulated(30, 8)
    both = [text.upper() for text in texts] + texts
    member = np.arange(60) < 30
    found = estimated(blind_baseline(both, member, 0), member)
    assert found.value > 0.95
    assert confidence_interval(found, 0.95)[0] > 0.5


def test_texts_without_words_have_places():
    member = np.arange(24) < 12
    texts = [mark * n for mark in "?!…- x" for n in range(4)]
    assert np.isfinite(blind_baseline(texts, member, 0).percentiles).all()


def test_more_texts_than_are_learnt_from(monkeypatch):
    monkeypatch.setattr("contamination.detection.baselines.blind.MAX_TRAINING_TEXTS", 40)
    member = drawn(120, 9)
    texts = [t + "!" * int(m) for t, m in zip(simulated(120, 9), member, strict=True)]
    assert auroc(texts, member) > 0.9


def test_it_takes_one_thread_and_gives_the_others_back(monkeypatch):
    """On two cores, of which one was taken, two threads took 16 times as long."""
    seen, folds = [], []

    def spied(tried, fold, *arguments):
        seen.append(threads())
        folds.append(tuple(fold))
        return _cross_fitted_percentiles(tried, fold, *arguments)

    def threads():
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    monkeypatch.setattr("contamination.detection.baselines.blind._cross_fitted_percentiles", spied)
    with threadpool_limits(limits=2, user_api="blas"):
        before = threads()
        blind_baseline(simulated(24, 12), drawn(24, 12), 0)
        assert threads() == before
    assert len(seen) == len(set(folds)) == REPEATS  # each time other folds
    assert {number for numbers in seen for number in numbers} == {1}


def test_too_few_are_said():
    texts = simulated(39, 11)
    assert blind_obstacle(texts[:20], np.arange(20) < 10) is None
    assert blind_obstacle(texts, np.arange(39) < 9) == (
        "9 members and 30 non-members (39 distinct texts) are too few for the blind baseline, "
        "which takes 10 of each"
    )
    assert blind_obstacle(texts, np.arange(39) < 30).startswith("30 members and 9 non-members")
    assert "(2 distinct texts)" in blind_obstacle(texts[:2] * 20, np.arange(40) < 20)


def test_the_warning_stands_where_the_interval_leaves_one_half_out():
    assert blind_auroc_warning(0.55, 0.5, 0.61) is blind_auroc_warning(0.45, 0.4, 0.5) is None
    assert blind_auroc_warning(0.731, 0.652, 0.804) == (
        "The texts alone tell members from non-members (blind AUROC 0.73 [0.65, 0.80]): "
        "these figures may measure the texts, not the model."
    )
    assert blind_auroc_warning(0.4, 0.32, 0.49) is not None


def test_whole_clusters_change_labels_whatever_their_sizes():
    """All but one have one label, in any combination; sides stay as large; one of both is two."""
    group, rng = np.repeat(np.arange(12), np.arange(1, 13)), np.random.default_rng(0)
    member = group % 2 == 0
    roles = np.stack([shuffle_label_sources_of_groups(group, member, rng) for _ in range(200)])
    np.testing.assert_array_equal(np.sort(roles), np.tile(np.arange(78), (200, 1)))
    labels = member[roles]
    both = [sum(len(set(own[group == k])) > 1 for k in range(12)) for own in labels]
    assert max(both) == 1
    shares = np.stack([labels[:, group == k].mean(axis=1) for k in range(12)], axis=1)
    assert abs(shares.mean(axis=0) - member.mean()).max() < 0.15
    assert len({tuple(own > 0.5) for own in shares}) > 100
    mixed = np.array([0, 0, 1, 2])
    halves = np.stack(
        [shuffle_label_sources_of_groups(mixed, np.arange(4) % 2 == 0, rng) for _ in range(50)]
    )
    assert (halves[:, 0] % 2 != halves[:, 1] % 2).any()
    assert (halves[:, 0] % 2 == halves[:, 1] % 2).any()


def test_clusters_are_whole_in_folds_and_too_few_are_said():
    texts, member = simulated(40, 12), np.arange(40) < 20
    group = np.arange(40) // 2
    assert blind_obstacle(texts, member, group) is None
    assert blind_obstacle(texts, member, np.arange(40) // 4) == (
        "5 clusters of members and 5 of non-members are too few for the blind baseline, which "
        "takes 10 of each"
    )
