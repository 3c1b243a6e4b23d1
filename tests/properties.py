"""The settings of property tests, and values that several of them draw.

The default suite draws the same examples each time. `PROPERTIES=thorough pytest …` draws many more,
anew each time, to search for a fault.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "hypothesis")  # not the checkout
settings.register_profile(
    "suite",
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "thorough", settings.get_profile("suite"), max_examples=2_000, derandomize=False
)
settings.load_profile(os.environ.get("PROPERTIES", "suite"))

SEEDS = st.integers(0, 2**32 - 1)

RISING = {
    "shifted": lambda x: x + 7,
    "doubled": lambda x: 2 * x,
    "cubed": lambda x: x**3 + x,
    "exponential": np.exp,
}
"""Strictly increasing functions that keep small numbers apart and their ties tied."""


def scores(least: int = 1, most: int = 9, highest: int = 4) -> st.SearchStrategy[np.ndarray]:
    """Few whole numbers, so that many are tied."""
    numbers = st.lists(st.integers(-highest, highest), min_size=least, max_size=most)
    return numbers.map(lambda values: np.array(values, np.float64))


def distinct_scores(least: int = 1, most: int = 9) -> st.SearchStrategy[np.ndarray]:
    """Whole numbers without ties."""
    numbers = st.lists(st.integers(-50, 50), min_size=least, max_size=most, unique=True)
    return numbers.map(lambda values: np.array(values, np.float64))


def orders(size: int) -> st.SearchStrategy[np.ndarray]:
    """Permutations of 0, 1, …."""
    return st.permutations(range(size)).map(lambda order: np.array(order, np.intp))


def flags(size: int) -> st.SearchStrategy[np.ndarray]:
    """Labels, both of which occur."""
    labels = st.lists(st.booleans(), min_size=size, max_size=size)
    return labels.filter(lambda own: 0 < sum(own) < size).map(lambda own: np.array(own, bool))
