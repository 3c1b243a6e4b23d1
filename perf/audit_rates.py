"""Coverage of the intervals and p-values of the audit of books, with simulated books.

    python -m perf.audit_rates [draws, default 300]

A book's snippets have scores N(b, 1), and N(b + d, 1) if they were trained on, where the book's own
b ~ N(0, offset). Each draw has its validation books, as many positives as negatives, and a suspect
of each share; the threshold is d / 2, and a book has 50 snippets. For each setting and share, three
percentages are printed: how often the share is in the 95% interval of the corrected rate, in that
of the same estimate if t and f were the means over validation books (which resampled books alone
would make uncertain), and in Wilson's interval of the contamination rate itself.

Below: the percentage of p-values of at most 0.05 and 0.2 for suspects that were not trained on,
with thresholds and folds chosen on the draw's own books; by ranks and by the normal model.
"""

from __future__ import annotations

import sys

import numpy as np

from contamination.audits.books.contamination_rates import (
    DRAWS,
    Rates,
    correct_rate,
    normal_p_values,
    rank_p_values,
)
from contamination.audits.books.selection import ValidationScores, compute_held_out_rates
from contamination.core.statistics.bootstrap import Scores

SHARES = (0.0, 0.25, 0.5, 1.0)
SNIPPETS = 50
SETTINGS = [(d, o, n) for d in (1.0, 2.0, 3.0) for o in (0.0, 0.3, 0.7) for n in (5, 10, 50)]
Rng = np.random.Generator


def simulate_book_scores(
    rng: Rng, number: int, share: float, offset: float, effect: float
) -> Scores:
    """Scores (number × SNIPPETS)."""
    trained = rng.random((number, SNIPPETS)) < share
    means = rng.normal(0, offset, (number, 1)) + effect * trained
    scores: Scores = rng.normal(size=trained.shape) + means
    return scores


def rates_above(scores: Scores, threshold: float) -> Rates:
    """The shares above a threshold."""
    above = (scores >= threshold).mean(axis=1)
    return Rates(above, np.full(len(scores), float(SNIPPETS)))


def interval_of_means(rng: Rng, observed: float, sides: tuple[Rates, Rates]) -> tuple[float, float]:
    """The interval by resampled books and snippets, with t and f the means over the books."""
    t, f = (
        side.values[rng.integers(0, len(side.values), (DRAWS, len(side.values)))].mean(axis=1)
        for side in sides
    )
    drawn = rng.binomial(SNIPPETS, observed, DRAWS) / SNIPPETS
    defined = t > f
    shares = np.clip((drawn - f)[defined] / (t - f)[defined], 0, 1)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def wilson_interval(rate: float) -> tuple[float, float]:
    """Wilson's interval of a share of SNIPPETS."""
    z, n = 1.96, SNIPPETS
    half = z * np.sqrt(rate * (1 - rate) / n + (z / (2 * n)) ** 2)
    middle = rate + z**2 / (2 * n)
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


def print_coverage(draws: int) -> None:
    """Prints the coverage of the intervals."""
    for effect, offset, number in SETTINGS:
        rng, covered = np.random.default_rng(0), np.zeros((len(SHARES), 3))
        for seed in range(draws):
            sides = (
                rates_above(simulate_book_scores(rng, number, 1, offset, effect), effect / 2),
                rates_above(simulate_book_scores(rng, number, 0, offset, effect), effect / 2),
            )
            for row, share in enumerate(SHARES):
                observed = rates_above(
                    simulate_book_scores(rng, 1, share, offset, effect), effect / 2
                ).mean
                corrected = correct_rate(observed, SNIPPETS, *sides, seed=seed)
                ends = [
                    (corrected.low, corrected.high),
                    interval_of_means(rng, observed, sides),
                    wilson_interval(observed),
                ]
                covered[row] += [low - 1e-9 <= share <= high + 1e-9 for low, high in ends]
        cells = " | ".join(" ".join(f"{100 * x / draws:3.0f}" for x in row) for row in covered)
        print(
            f"d {effect:.0f}, offset {offset}, {number:2} + {number:2} books: {cells}", flush=True
        )


def print_null_rejections(draws: int) -> None:
    """Prints how often p-values of suspects that were not trained on are small."""
    for offset in (0.0, 0.3, 0.7):
        for number in (5, 10, 50):
            rng, p_values = np.random.default_rng(1), []
            for seed in range(draws):
                sides = [
                    [b[None] for b in simulate_book_scores(rng, number, s, offset, 2.0)]
                    for s in (1, 0)
                ]
                held_out = compute_held_out_rates(
                    ValidationScores([("x", "")], sides[0], sides[1], seed)
                )
                negatives = Rates(held_out.negatives, np.full(number, float(SNIPPETS)))
                suspect = held_out.rate_by_each_rule(
                    simulate_book_scores(rng, 1, 0, offset, 2.0)[None, 0]
                )[None]
                count = np.array([float(SNIPPETS)])
                ranks = rank_p_values(suspect, count, negatives, held_out.fold)
                p_values.append([*ranks, *normal_p_values(suspect.mean(axis=1), count, negatives)])
            levels = [
                [100 * (np.array(p_values)[:, i] <= a).mean() for a in (0.05, 0.2)] for i in (0, 1)
            ]
            cells = " | ".join(" ".join(f"{x:4.1f}" for x in row) for row in levels)
            print(f"offset {offset}, {number:2} + {number:2} books: {cells}", flush=True)


def main() -> None:
    """Prints both tables."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print_coverage(draws)
    print_null_rejections(draws)


if __name__ == "__main__":
    main()
