import numpy as np
import pytest

from contamination.analysis.law.power import (
    Design,
    auroc_moments,
    critical_auroc,
    fewest,
    fewest_members,
    fewest_seeds,
    null_error,
    power_of_design,
    smallest_shift,
)
from contamination.core.statistics.metrics import auroc_value


def simulated_power(shift: float, growth: float, design: Design, level: float, times: int) -> float:
    rng = np.random.default_rng(0)
    spread, limit, hits = np.exp(growth * shift / 2), critical_auroc(design, level), 0
    for _ in range(times):
        aurocs = [
            auroc_value(
                rng.normal(shift, spread, design.members), rng.normal(0, 1, design.nonmembers)
            )
            for _ in range(design.seeds * design.benchmarks)
        ]
        hits += np.mean(aurocs) > limit
    return hits / times


@pytest.mark.parametrize(
    ("shift", "growth", "target"), [(0.3, 0.0, 0.8), (0.6, 0.5, 0.9), (0.5, -0.4, 0.5)]
)
def test_the_promised_power_is_reached_in_simulations(shift, growth, target):
    members = fewest_members(shift, growth, Design(2, 2), 0.05, target, 1.0)
    design = Design(members, members)
    assert power_of_design(shift, growth, design, 0.05) >= target
    reached = simulated_power(shift, growth, design, 0.05, 1500)
    assert reached == pytest.approx(target, abs=0.04)  # 3 standard errors


def test_the_level_is_kept_without_a_shift():
    design = Design(30, 60, seeds=2)
    assert power_of_design(0.0, 0.0, design, 0.05) == pytest.approx(0.05, abs=0.002)
    assert simulated_power(0.0, 0.0, design, 0.05, 1500) == pytest.approx(0.05, abs=0.018)


def test_the_moments_equal_a_naive_integral():
    area, two_members, two_nonmembers = auroc_moments(np.array(0.8), 0.3)
    z = np.linspace(-9, 9, 20_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    spread = np.exp(0.3 * 0.8 / 2)
    from scipy.stats import norm

    above = norm.cdf((0.8 - z) / spread)
    below = norm.cdf(0.8 + spread * z)
    assert float(area) == pytest.approx((above * density).sum(), abs=1e-6)
    assert float(two_members) == pytest.approx((above**2 * density).sum(), abs=1e-6)
    assert float(two_nonmembers) == pytest.approx((below**2 * density).sum(), abs=1e-6)


def test_the_null_error_is_that_of_mann_and_whitney():
    assert null_error(Design(20, 30)) == pytest.approx(np.sqrt(51 / (12 * 600)))
    assert null_error(Design(20, 30, 2, 2)) == pytest.approx(np.sqrt(51 / (12 * 600)) / 2)


def test_the_fewest_is_the_fewest():
    assert fewest(lambda n: n / 100, 0.37) == 37
    assert fewest(lambda n: 0.1, 0.5) is None
    assert fewest(lambda n: 0.5, 0.5) == 1
    assert fewest(lambda n: n / 100, 0.03, 7) == 7
    assert fewest(lambda n: n / 100, 0.37, 7) == 37
    assert fewest(lambda n: float(n == 10_000_000), 0.5) == 10_000_000
    design = Design(40, 40)
    seeds = fewest_seeds(0.2, 0.0, design, 0.05, 0.8)
    powers = [power_of_design(0.2, 0.0, Design(40, 40, s), 0.05) for s in (seeds - 1, seeds)]
    assert powers[0] < 0.8 <= powers[1]


def test_the_smallest_shift_has_the_wanted_power():
    design = Design(100, 100)
    shift = smallest_shift(0.0, design, 0.05, 0.8)
    assert power_of_design(shift, 0.0, design, 0.05) == pytest.approx(0.8, abs=1e-6)
    assert np.isnan(smallest_shift(0.0, Design(2, 2), 1e-6, 0.99))
