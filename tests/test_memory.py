"""What a sweep takes for each cell more, and a detection for each text more: next to nothing."""

import sys

import pytest

from perf.memory import child

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


def test_a_sweep_of_fifty_cells_would_grow_by_less_than_50_mib():
    *sizes, _ = child("sweep(16)")
    assert sizes[15] - sizes[9] <= 6  # MiB: 1 a cell, once ten have warmed it up


def test_a_detection_of_200_000_texts_would_take_less_than_200_mib_above_its_model():
    """It took 147; from 10,000 to 50,000 texts the growth per text varies by a third."""
    above = []
    for texts in (10_000, 50_000):
        model, peak, _ = child(f"detection({texts})")
        above.append(peak - model)
    growth = max(0, above[1] - above[0]) / 40_000  # MiB a text
    assert above[1] + 150_000 * growth < 200
