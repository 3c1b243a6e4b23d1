"""Each attack: a naive loop of its equation, its null, and that no target is its own reference."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma, polygamma
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.covariance import oas

from contamination.audits.reference_attack.attacks import ATTACKS as NAMED
from contamination.audits.reference_attack.attacks import (
    ReferenceCells,
    attack_scores,
    usable_attacks,
)
from contamination.audits.reference_attack.bavaria import bavaria
from contamination.audits.reference_attack.hierarchy import expectations
from contamination.audits.reference_attack.lira import lira_offline, lira_online
from contamination.audits.reference_attack.moments import side_moments
from contamination.audits.reference_attack.multivariate_lira import multivariate_lira
from contamination.audits.reference_attack.rmia import rmia
from contamination.audits.reference_attack.single_reference import single_reference
from contamination.audits.reference_attack.variances import (
    PER_EXAMPLE,
    POOLED,
    SHRUNK,
    _freedom_of_spread,
    estimate_variances,
)
from contamination.core.statistics.metrics import auroc_value
from tests.audits.reference_attack.simulated import draw_cells, draw_tokens

KINDS = (PER_EXAMPLE, POOLED, SHRUNK)


def scalar_attacks():
    for kind in KINDS:
        yield f"online {kind}", lambda p, i, o, kind=kind: lira_online(p, i, o, kind)
        yield f"offline {kind}", lambda p, i, o, kind=kind: lira_offline(p, o, kind)
    yield "bavaria", bavaria
    yield "rmia", lambda p, i, o: rmia(p, i, o, 1.0)
    yield "rmia 1.2", lambda p, i, o: rmia(p, i, o, 1.2)


ATTACKS = dict(scalar_attacks())


def mean_auroc(scores, member):
    pairs = [(s[m], s[~m]) for s, m in zip(scores, member, strict=True)]
    return np.mean([auroc_value(*pair) for pair in pairs if all(map(len, pair))])


# equations


def references(phi, member, target, text):
    others = np.arange(len(phi)) != target
    return phi[others & member[:, text], text], phi[others & ~member[:, text], text]


def variances_by_loops(phi, member, target, inside, kind):
    """The variance of each text on one side, from the references of one target."""
    return variances_and_freedom_by_loops(phi, member, target, inside, kind)[0]


def variances_and_freedom_by_loops(phi, member, target, inside, kind):
    sides = [references(phi, member, target, i)[0 if inside else 1] for i in range(phi.shape[1])]
    own = [side.var(ddof=1) if len(side) > 1 else np.nan for side in sides]
    freedom = np.array([max(len(side) - 1, 0) for side in sides])
    squares = np.nan_to_num(np.array(own)) * freedom
    pooled = squares.sum() / freedom.sum()
    if kind == POOLED:
        return np.full(len(sides), pooled), np.full(len(sides), freedom.sum())
    if kind == PER_EXAMPLE:
        return np.where(freedom > 0, np.maximum(own, 1e-12), pooled), freedom
    usable = squares > 0
    half = freedom[usable] / 2
    logs = np.log(np.array(own)[usable]) - digamma(half) + np.log(half)
    wanted = logs.var(ddof=1) - polygamma(1, half).mean()
    if wanted <= 0:  # as good as a pooled variance
        return (1e6 * pooled + squares) / (1e6 + freedom), 1e6 + freedom
    low, high = 1e-3, 1e6
    for _ in range(200):  # bisection of trigamma(d0 / 2) = wanted
        middle = np.sqrt(low * high)
        low, high = (middle, high) if polygamma(1, middle / 2) > wanted else (low, middle)
    prior = np.exp(logs.mean() + digamma(low / 2) - np.log(low / 2))
    return (low * prior + squares) / (low + freedom), low + freedom


@pytest.fixture(scope="module")
def cells():
    phi, dose = draw_cells(10, 24, 1.0, seed=5)
    return phi, dose > 0


@pytest.fixture(scope="module")
def rare_cells(cells):
    """The cells with texts that all, none or two saw, and with one that never changes."""
    phi, member = cells[0].copy(), cells[1].copy()
    phi[:, 4] = -6.0
    member[:, 0], member[:, 1], member[:, 2], member[:2, 2] = True, False, False, True
    member[9, :2] = ~member[9, :2]
    shifts = np.linspace(-1, 3, phi.shape[1])
    return phi + np.where(np.arange(phi.shape[1]) == 4, 0, shifts) * member, member


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_rare", [False, True])
def test_variances_are_those_of_loops(cells, rare_cells, kind, is_rare):
    phi, member = rare_cells if is_rare else cells
    for inside in (True, False):
        variances = estimate_variances(side_moments(phi, member == inside), kind)
        for target in range(len(phi)):
            expected_value, expected_freedom = variances_and_freedom_by_loops(
                phi, member, target, inside, kind
            )
            np.testing.assert_allclose(variances.value[target], expected_value, rtol=2e-5)
            np.testing.assert_allclose(variances.freedom[target], expected_freedom, rtol=1e-4)


def test_variances_that_differ_less_than_by_chance_are_shrunk_to_one():
    values = np.array([0.0, 1.0, 3.0, 4.0, 9.0])
    phi = values[:, None] + np.arange(6)
    variances = estimate_variances(side_moments(phi, np.ones(phi.shape, bool)), SHRUNK)
    pooled = [np.delete(values, target).var(ddof=1) for target in range(5)]
    np.testing.assert_allclose(variances.value, np.tile(pooled, (6, 1)).T)
    np.testing.assert_allclose(variances.freedom, 1e6 + 3)


def test_moments_leave_out_the_target_and_keep_the_digits_of_far_levels():
    phi = np.array([[1.0, -2.0], [2.0, -4.0], [4.0, -5.0], [9.0, -6.0]])
    side = np.array([[1, 0], [1, 0], [1, 1], [0, 0]], bool)
    moments = side_moments(phi, side)
    assert moments.count.tolist() == [[2, 1], [2, 1], [2, 0], [3, 1]]
    assert moments.mean == pytest.approx(np.array([[3, -5], [2.5, -5], [1.5, 0], [7 / 3, -5]]))
    assert moments.squares == pytest.approx(np.array([[2, 0], [4.5, 0], [0.5, 0], [14 / 3, 0]]))
    assert moments.freedom.tolist() == [[1, 0], [1, 0], [1, 0], [2, 0]]
    far_moments = side_moments(phi + np.array([2.0**24, -(2.0**24)]), side)
    np.testing.assert_allclose(far_moments.squares, moments.squares, rtol=1e-6, atol=1e-6)


def shift_prior_by_loops(phi, member, target, kind):
    """The mean shift and its variance over texts of DerSimonian and Laird (1986)."""
    sides = [references(phi, member, target, text) for text in range(phi.shape[1])]
    var_in, var_out = (variances_by_loops(phi, member, target, i, kind) for i in (True, False))
    known = [text for text, (seen, unseen) in enumerate(sides) if len(seen) and len(unseen)]
    shifts = np.array([sides[text][0].mean() - sides[text][1].mean() for text in known])
    noise = [var_in[t] / len(sides[t][0]) + var_out[t] / len(sides[t][1]) for t in known]
    weights = 1 / np.array(noise)
    mean = np.average(shifts, weights=weights)
    excess = (weights * (shifts - mean) ** 2).sum() - (len(known) - 1)
    variance = excess / (weights.sum() - (weights**2).sum() / weights.sum())
    return mean, max(variance, 0)


@pytest.mark.parametrize("kind", [POOLED, SHRUNK])
@pytest.mark.parametrize("is_rare", [False, True])
def test_the_prior_of_shifts_is_that_of_a_meta_analysis(cells, rare_cells, kind, is_rare):
    phi, member = rare_cells if is_rare else cells
    prior = expectations(phi, member, ~member, kind, shrinks_shifts=is_rare)
    assert prior.mean_shift.shape == prior.shift_variance.shape == (10, 1)
    for target in (0, 4, 9):
        mean, variance = shift_prior_by_loops(phi, member, target, kind)
        assert prior.mean_shift[target, 0] == pytest.approx(mean, rel=1e-4)
        assert prior.shift_variance[target, 0] == pytest.approx(variance, rel=1e-4, abs=1e-9)


def test_without_shrinkage_an_example_has_its_own_shift_or_the_mean_shift(rare_cells):
    phi, member = rare_cells
    levels = expectations(phi, member, ~member, POOLED, shrinks_shifts=False)
    for target in range(len(phi)):
        shift = levels.mean_shift[target, 0]
        variances = [variances_by_loops(phi, member, target, i, POOLED)[0] for i in (True, False)]
        for text in range(phi.shape[1]):
            seen, unseen = references(phi, member, target, text)
            mean_in = seen.mean() if len(seen) else unseen.mean() + shift
            mean_out = unseen.mean() if len(unseen) else seen.mean() - shift
            assert levels.inside.mean[target, text] == pytest.approx(mean_in, rel=1e-6)
            assert levels.outside.mean[target, text] == pytest.approx(mean_out, rel=1e-6)
            if len(seen) and len(unseen):
                errors = [v / len(s) for v, s in zip(variances, (seen, unseen), strict=True)]
                assert levels.inside.mean_variance[target, text] == pytest.approx(errors[0])
                assert levels.outside.mean_variance[target, text] == pytest.approx(errors[1])


def test_levels_and_shifts_are_the_posterior_of_a_linear_model(rare_cells):
    """In matrices: one row for each reference, and one for the prior on the shift."""
    phi, member = rare_cells
    posterior = expectations(phi, member, ~member, SHRUNK, shrinks_shifts=True)
    for target in (0, 4, 9):
        mean, spread = shift_prior_by_loops(phi, member, target, SHRUNK)
        var_in, var_out = (
            variances_by_loops(phi, member, target, side, SHRUNK) for side in (True, False)
        )
        for text in range(phi.shape[1]):
            seen, unseen = references(phi, member, target, text)
            design = np.array([[1, 1]] * len(seen) + [[1, 0]] * len(unseen) + [[0, 1]], float)
            weights = [1 / var_in[text]] * len(seen) + [1 / var_out[text]] * len(unseen)
            weights = np.array([*weights, 1 / spread])
            covariance = np.linalg.inv(design.T @ (design * weights[:, None]))
            level, shift = covariance @ (design.T @ (weights * np.array([*seen, *unseen, mean])))
            ones = np.ones(2)
            values = (level + shift, var_in[text], ones @ covariance @ ones), (
                level, var_out[text], covariance[0, 0],
            )  # fmt: skip
            for side, expected in zip((posterior.inside, posterior.outside), values, strict=True):
                fields = (side.mean, side.variance, side.mean_variance)
                assert [v[target, text] for v in fields] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_lira_is_algorithm_1_of_carlini_et_al(cells, kind):
    phi, member = cells
    online = lira_online(phi, member, ~member, kind)
    offline = lira_offline(phi, ~member, kind)
    for target in range(len(phi)):
        sigma_in, sigma_out = (
            np.sqrt(variances_by_loops(phi, member, target, side, kind)) for side in (True, False)
        )
        for text in range(phi.shape[1]):
            seen, unseen = references(phi, member, target, text)
            if len(seen) and len(unseen):
                ratio = norm.logpdf(phi[target, text], seen.mean(), sigma_in[text])
                ratio -= norm.logpdf(phi[target, text], unseen.mean(), sigma_out[text])
                assert online[target, text] == pytest.approx(ratio, rel=1e-4, abs=1e-4)
            if len(unseen):
                z = (phi[target, text] - unseen.mean()) / sigma_out[text]
                assert offline[target, text] == pytest.approx(z, rel=1e-4, abs=1e-4)


def test_offline_lira_has_the_mean_of_all_references_where_a_text_has_none(cells):
    phi, member = cells[0], cells[1].copy()
    member[:, 0] = True
    found = lira_offline(phi, ~member, POOLED)
    for target in range(len(phi)):
        unseen = [references(phi, member, target, text)[1] for text in range(phi.shape[1])]
        (sigma,) = {*variances_by_loops(phi, member, target, False, POOLED) ** 0.5}
        z = (phi[target, 0] - np.concatenate(unseen).mean()) / sigma
        assert found[target, 0] == pytest.approx(z, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_lira_is_0_for_an_example_without_a_reference(cells, kind):
    phi, member = cells
    inside, outside = member.copy(), ~member
    inside[:, 0] = outside[:, 0] = False  # the other cells have it at another dose
    inside[2, 0] = True  # the target itself is no reference
    assert (lira_online(phi, inside, outside, kind)[:3, 0] != 0).tolist() == [True, True, False]


def test_offline_lira_with_a_single_reference_has_the_least_variance():
    phi = np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 0.0]])
    outside = np.array([[1, 0], [0, 0], [0, 0]], bool)
    for kind in KINDS:
        scores = lira_offline(phi, outside, kind)
        assert scores[1] == pytest.approx([2e6, 4e6]), kind


def test_bavaria_is_the_ratio_of_posterior_predictive_densities(cells):
    """For one target: the posterior of level and shift as a linear model, in matrices."""
    phi, member = cells
    found = bavaria(phi, member, ~member)
    expected = expectations(phi, member, ~member, SHRUNK, shrinks_shifts=True)
    for target, text in ((0, 0), (3, 7), (9, 23)):
        seen, unseen = references(phi, member, target, text)
        var_in, var_out = (
            expected.inside.variance[target, text],
            expected.outside.variance[target, text],
        )
        design = np.array([[1, 1]] * len(seen) + [[1, 0]] * len(unseen) + [[0, 1]], float)
        values = np.array([*seen, *unseen, expected.mean_shift[target, 0]])
        spread = max(expected.shift_variance[target, 0], 1e-12)
        weights = 1 / np.array([var_in] * len(seen) + [var_out] * len(unseen) + [spread])
        covariance = np.linalg.inv(design.T @ (design * weights[:, None]))
        level, shift = covariance @ (design.T @ (weights * values))
        log_densities = [
            student.logpdf(
                phi[target, text], side.freedom[target, text], level + is_in * shift,
                np.sqrt(side.variance[target, text] + [1, is_in] @ covariance @ [1, is_in]),
            )
            for side, is_in in ((expected.inside, 1), (expected.outside, 0))
        ]  # fmt: skip
        assert found[target, text] == pytest.approx(log_densities[0] - log_densities[1], rel=1e-5)


@pytest.mark.parametrize("gamma", [1.0, 1.3])
def test_rmia_is_equation_4_of_zarifzadeh_et_al(cells, gamma):
    phi, member = cells
    member = member.copy()
    member[:, 0], member[:, 1] = True, False
    found = rmia(phi, member, ~member, gamma)
    for target in range(len(phi)):
        ratios = []
        for text in range(phi.shape[1]):
            sides = [
                np.exp(side).mean() for side in references(phi, member, target, text) if len(side)
            ]
            ratios.append(np.exp(phi[target, text]) / np.mean(sides))
        for text, ratio in enumerate(ratios):
            others = [r for z, r in enumerate(ratios) if z != text]
            assert found[target, text] == pytest.approx(
                np.mean([ratio / r >= gamma for r in others])
            )


def test_rmia_compares_a_text_with_the_others_alone():
    member = np.array([[True, False], [False, True], [True, True]])
    phi = np.log([[0.5, 0.25], [0.25, 0.25], [0.25, 0.125]])
    # the ratios to the means over references: 0.5 / 0.25 and 0.25 / 0.1875 in the first cell
    scores = rmia(phi, member, ~member, 1.0)
    assert scores[0].tolist() == [1, 0]
    assert rmia(phi[:, :1], member[:, :1], ~member[:, :1], 1.0).tolist() == [[0], [0], [0]]
    unseen = np.zeros_like(member)
    assert rmia(phi, unseen, unseen, 1.0).tolist() == [[1, 1]] * 3  # nothing to compare with


def test_multivariate_lira_is_the_linear_discriminant_with_oas_covariance():
    """Recomputed for each target from its references alone, with scikit-learn's shrinkage."""
    tokens, member = draw_tokens(12, 8, 0.8, seed=3)
    tokens = [*tokens, tokens[0][:, :1]]  # and a text of one token
    member = np.hstack([member, member[:, :1]])
    found = multivariate_lira(tokens, member, ~member)
    for target in range(12):
        others = np.arange(12) != target
        parts = [(x[others & m], x[others & ~m]) for x, m in zip(tokens, member.T, strict=True)]
        residuals = [np.concatenate([s - s.mean(axis=0) for s in pair]) for pair in parts]
        shifts = [a.mean(axis=0) - b.mean(axis=0) for a, b in parts]
        noise = [
            (r**2).mean() * (1 / len(a) + 1 / len(b))
            for r, (a, b) in zip(residuals, parts, strict=True)
        ]
        every = np.concatenate(shifts)
        sampled = np.mean(np.repeat(noise, [len(s) for s in shifts]))
        spread = max(every.var() - sampled, 0)
        for text, x in enumerate(tokens):
            weight = spread / (spread + noise[text])
            shift = weight * shifts[text] + (1 - weight) * every.mean()
            a, b = parts[text]
            level = np.concatenate([a - shift, b]).mean(axis=0)
            sigma = oas(residuals[text], assume_centered=True)[0]
            ratio = (x[target] - level - shift / 2) @ np.linalg.solve(sigma, shift)
            assert found[target, text] == pytest.approx(ratio, rel=1e-6, abs=1e-9)


def test_multivariate_lira_leaves_out_texts_with_fewer_than_two_references_on_a_side():
    tokens, member = draw_tokens(12, 6, 0.8, seed=3)
    member[:, 0], member[:, 1] = np.arange(12) < 1, np.arange(12) > 1
    scores = multivariate_lira(tokens, member, ~member)
    assert (scores[:, 0] == 0).all()  # one member alone
    assert (scores[:2, 1] == 0).all()  # one non-member is left without the target
    assert (scores[2:, 1] != 0).all()
    without_first = multivariate_lira(tokens[1:], member[:, 1:], ~member[:, 1:])
    np.testing.assert_allclose(without_first, scores[:, 1:])


def test_single_reference_is_the_difference_times_the_root_of_the_length():
    phi, reference = np.array([[-1.0, -3.0], [-2.0, -1.0]]), np.array([-2.0, -2.0])
    found = single_reference(phi, reference, np.array([4, 9]))
    assert found.tolist() == [[2, -3], [0, 3]]


# leave one out


@pytest.mark.parametrize("name", ATTACKS)
def test_a_target_is_not_among_its_own_references(name, cells):
    """Its members may be anyone: its own scores stay what they are."""
    phi, member = cells
    scores = ATTACKS[name](phi, member, ~member)
    for target in (0, 6):
        flipped = member.copy()
        flipped[target] = ~flipped[target]
        again = ATTACKS[name](phi, flipped, ~flipped)
        np.testing.assert_allclose(again[target], scores[target], rtol=1e-7, atol=1e-9)


def test_nor_in_the_multivariate_attack():
    tokens, member = draw_tokens(10, 6, 0.5, seed=2)
    scores = multivariate_lira(tokens, member, ~member)
    flipped = member.copy()
    flipped[4] = ~flipped[4]
    again = multivariate_lira(tokens, flipped, ~flipped)
    np.testing.assert_allclose(again[4], scores[4], rtol=1e-6, atol=1e-9)
    assert not np.allclose(again[5], scores[5])


# nulls and power


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("cells", [8, 32])
def test_without_an_effect_the_mean_auroc_is_one_half(name, cells):
    aurocs = []
    for seed in range(6):
        phi, dose = draw_cells(cells, 400, 0.0, seed=seed, between=1.0)
        aurocs.append(mean_auroc(ATTACKS[name](phi, dose > 0, dose == 0), dose > 0))
    error = np.std(aurocs, ddof=1) / np.sqrt(len(aurocs))
    assert abs(np.mean(aurocs) - 0.5) < max(4 * error, 0.01)


def test_nor_has_the_multivariate_attack_any():
    aurocs = []
    for seed in range(5):
        tokens, member = draw_tokens(10, 150, 0.0, seed=seed)
        aurocs.append(mean_auroc(multivariate_lira(tokens, member, ~member), member))
    assert abs(np.mean(aurocs) - 0.5) < 0.03


def test_with_an_effect_shrinkage_beats_the_paper_and_calibration_beats_the_statistic():
    phi, dose = draw_cells(16, 400, 0.5, seed=1)
    member = dose > 0
    aurocs = {name: mean_auroc(a(phi, member, ~member), member) for name, a in ATTACKS.items()}
    plain = mean_auroc(phi, member)
    assert plain < 0.55
    assert aurocs["bavaria"] > aurocs["online per_example"] + 0.02
    assert aurocs["bavaria"] > 0.6
    assert min(aurocs.values()) > plain


def test_tokens_tell_more_than_their_mean_where_shifts_differ_between_tokens():
    """Half of the tokens rise and half fall, so that the mean tells nothing."""
    rng = np.random.default_rng(0)
    member = rng.random((40, 100)) < 0.5
    signs = np.repeat([1.0, -1.0], 8)
    tokens = [rng.normal(size=(40, 16)) + 0.8 * m[:, None] * signs for m in member.T]
    means = np.array([x.mean(axis=1) for x in tokens]).T
    assert mean_auroc(bavaria(means, member, ~member), member) < 0.55
    assert mean_auroc(multivariate_lira(tokens, member, ~member), member) > 0.85


def test_an_example_that_all_or_no_references_saw_has_a_finite_score():
    phi, dose = draw_cells(6, 30, 1.0, seed=4)
    member = dose > 0
    member[:, 0], member[:, 1] = True, False
    member[0, :2] = ~member[0, :2]
    for name, attack in ATTACKS.items():
        assert np.isfinite(attack(phi, member, ~member)).all(), name


@pytest.mark.parametrize("freedom", [0.01, 0.5, 3.0, 40.0, 2e4])
def test_the_prior_s_freedom_is_where_trigamma_is_the_spread(freedom):
    spread = np.array([[float(polygamma(1, freedom / 2))]])
    assert _freedom_of_spread(spread)[0, 0] == pytest.approx(freedom, rel=1e-6)
    assert _freedom_of_spread(np.array([[-1.0], [0.0]])).tolist() == [[1e6], [1e6]]
    assert _freedom_of_spread(np.array([[1e9]]))[0, 0] == pytest.approx(1e-3)


# by name


@pytest.fixture(scope="module")
def two_benchmarks():
    """Cells of two benchmarks in turn, whose members have 1 or 2 copies."""
    phi, dose = draw_cells(9, 16, 0.5, seed=8, doses=(1, 2))
    tokens, _ = draw_tokens(9, 16, 0.0, seed=8)
    benchmarks = np.array(["b", "a"] * 8)
    clean, lengths = phi[0] - 1, np.arange(4, 20)
    return ReferenceCells(phi, dose, benchmarks, clean, lengths, tokens)


def expected_by_name(cells, inside, outside):
    phi, lengths = cells.phi, cells.lengths
    kinds = {"": PER_EXAMPLE, "_pooled": POOLED, "_shrunk": SHRUNK}
    return {
        "bavaria": bavaria(phi, inside, outside),
        "multivariate_lira": multivariate_lira(cells.tokens, inside, outside),
        **{f"lira_online{k}": lira_online(phi, inside, outside, v) for k, v in kinds.items()},
        **{f"lira_offline{k}": lira_offline(phi, outside, v) for k, v in kinds.items()},
        "rmia": rmia(phi, inside, outside, 1.0),
        "single_reference": single_reference(phi, cells.clean, lengths),
    }


def test_an_attack_by_name_looks_for_a_dose_within_each_benchmark(two_benchmarks):
    cells = two_benchmarks
    assert cells.dose_levels == [1, 2]
    expected = [
        expected_by_name(part, part.doses == 2, part.doses == 0)
        for part in (
            ReferenceCells(
                cells.phi[:, offset::2], cells.doses[:, offset::2], cells.benchmarks[offset::2],
                cells.clean[offset::2], cells.lengths[offset::2], cells.tokens[offset::2],
            )
            for offset in (0, 1)
        )
    ]  # fmt: skip
    assert {*NAMED} == {*expected[0]}
    for name in NAMED:
        scores = attack_scores(name, cells, 2)
        np.testing.assert_allclose(scores[:, ::2], expected[0][name], err_msg=name)
        np.testing.assert_allclose(scores[:, 1::2], expected[1][name], err_msg=name)


def test_a_part_of_the_cells_or_examples_has_all_that_is_theirs(two_benchmarks):
    cells, chosen = two_benchmarks, np.array([5, 2])
    some_cells, some_examples = cells.of_cells(chosen), cells.of_examples(chosen)
    for name in ("phi", "doses"):
        assert (getattr(some_cells, name) == getattr(cells, name)[[5, 2]]).all()
        assert (getattr(some_examples, name) == getattr(cells, name)[:, [5, 2]]).all()
    for name in ("benchmarks", "clean", "lengths"):
        assert (getattr(some_cells, name) == getattr(cells, name)).all()
        assert getattr(some_examples, name).tolist() == getattr(cells, name)[[5, 2]].tolist()
    assert all((a == b[[5, 2]]).all() for a, b in zip(some_cells.tokens, cells.tokens, strict=True))
    for part_tokens, text in zip(some_examples.tokens, chosen, strict=True):
        assert part_tokens is cells.tokens[text]
    assert not replace(cells, tokens=()).of_examples(chosen).tokens


def test_the_multivariate_attack_alone_needs_stored_tokens(two_benchmarks):
    assert usable_attacks(two_benchmarks) == [*NAMED]
    names = usable_attacks(replace(two_benchmarks, tokens=()))
    assert names == [name for name in NAMED if name != "multivariate_lira"]
