"""A rewording that changes nothing shares its text's statistics; equal ones are read once."""

import itertools

import numpy as np
import pytest

from contamination.detection.config import DetectionConfig
from contamination.detection.forward import batches
from contamination.detection.methods.lowercase import Lowercase
from contamination.detection.methods.neighbor import Neighbor
from contamination.detection.methods.pac import Pac
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import ORIGINAL, TokenStats
from tests.detection import golden
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.rounding import FORWARD
from tests.scoring import score_text

LOWER = MEMORISED.lower()
TEXTS = [golden.text_of(str(i), t) for i, t in enumerate([LOWER, UNSEEN, "Short.", "one two"])]
SAME = [TEXTS[0], TEXTS[3]]  # those without a capital
METHODS = (
    Lowercase(), Neighbor(augmentation="lowercase"), Pac(augmentation="lowercase"), Pac(n=3),
)  # fmt: skip


@pytest.fixture
def read(monkeypatch):
    """The token rows that models read, pass by pass."""
    rows = []
    run = batches.run_sequences

    def spied(decoder, sequences, *more, **how):
        rows.append([tuple(ids) for ids in sequences])
        return run(decoder, sequences, *more, **how)

    monkeypatch.setattr(batches, "run_sequences", spied)
    return rows


@pytest.fixture
def rounded_otherwise(monkeypatch):
    """No two forwards round alike, as on some processors."""
    run, calls = batches.run_sequences, itertools.count(1)

    def noisy(*arguments, **how):
        return [
            TokenStats(
                **{**vars(stats), "logprob": stats.logprob * np.float32(1 + 1e-6 * next(calls))}
            )
            for stats in run(*arguments, **how)
        ]

    monkeypatch.setattr(batches, "run_sequences", noisy)


@pytest.mark.usefixtures("rounded_otherwise")
def test_what_changes_nothing_is_exactly_0_apart(collect):
    passes = collect(METHODS, TEXTS)
    lowercase, neighbor, pac, swaps = METHODS
    for text in SAME:
        assert score_text(lowercase, text, passes) == 1.0
        assert score_text(neighbor, text, passes) == 0.0
        assert score_text(pac, text, passes) == 0.0
    assert score_text(swaps, TEXTS[2], passes) == 0.0  # one word has nothing to swap
    assert score_text(neighbor, TEXTS[1], passes) != 0.0


@pytest.mark.parametrize("method", METHODS, ids=["lowercase", "neighbor", "pac", "swaps"])
def test_no_row_is_read_twice(collect, read, tokenizer, method):
    own = {tuple(tokenizer(t.text)["input_ids"]) for t in TEXTS}
    collect([method], TEXTS)
    originals, reworded = sorted(read, key=lambda rows: set(rows) != own)
    assert set(originals) == own
    assert reworded
    assert not own & set(reworded)
    assert len(reworded) == len(set(reworded))


def test_the_shared_statistics_are_the_versions_own(collect, toy_models, resources, tmp_path):
    """Each version's statistics, as it were read as a text of its own."""
    from contamination.detection.views import render_versions

    (swaps,) = {p for p in Pac(n=8).passes if p != ORIGINAL}
    shared = collect([Pac(n=8)], TEXTS)[swaps]
    for text, versions in zip(TEXTS, render_versions(swaps, TEXTS, resources), strict=True):
        assert len(shared[text.sha256]) == 8
        alone = [golden.text_of(v, v) for v in dict.fromkeys(versions)]
        runs = tmp_path / f"alone-{text.example_id}"
        settings = DetectionConfig(device="cpu")
        found = Collector(runs, toy_models, alone, settings).collect([ORIGINAL])[ORIGINAL]
        by_text = {v.text: found[v.sha256][0] for v in alone}
        for stats, version in zip(shared[text.sha256], versions, strict=True):
            np.testing.assert_allclose(stats.logprob, by_text[version].logprob, atol=FORWARD)
