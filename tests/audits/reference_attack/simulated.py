"""Simulated cells: statistics of texts under models with independently drawn members."""

import numpy as np


def draw_cells(cells, examples, shift, seed=0, between=3.0, spread=0.3, doses=(1,)):
    """Returns phi and doses, (K, N): levels and noise differ between examples."""
    rng = np.random.default_rng(seed)
    member = rng.random((cells, examples)) < 0.5
    dose = np.where(member, rng.choice(doses, (cells, examples)), 0)
    noise = np.sqrt(spread**2 * 8 / rng.chisquare(8, examples))
    phi = -6 + between * rng.normal(size=examples) + noise * rng.normal(size=dose.shape)
    return phi + shift * spread * dose, dose


def draw_tokens(cells, examples, shift, seed=0):
    """Returns the log-odds of N texts of 5 to 30 tokens, (K, T) each, and who is a member."""
    rng = np.random.default_rng(seed)
    member = rng.random((cells, examples)) < 0.5
    tokens = []
    for text in range(examples):
        length = int(rng.integers(5, 31))
        level, common = rng.normal(-2, 2, length), rng.normal(size=(cells, 1))
        noise = rng.normal(size=(cells, length)) + 0.5 * common
        tokens.append(level + noise + shift * member[:, text, None] * rng.random(length))
    return tokens, member
