"""A masked language model's versions, made once for all models."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from contamination.data.perturbation.masked_lm import MaskedLM
from contamination.detection.config import DetectionConfig
from contamination.detection.methods.neighbor import Neighbor
from contamination.detection.methods.pac import Pac
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import Pass
from contamination.detection.views import render_versions
from tests.detection import golden
from tests.detection.conftest import MEMORISED, UNSEEN

TEXTS = [golden.text_of(str(i), t) for i, t in enumerate([MEMORISED, UNSEEN])]
NEIGHBOR = Neighbor(augmentation="masked_lm", n=3)


@pytest.fixture
def calls(monkeypatch):
    made = []
    reword = MaskedLM.reword
    monkeypatch.setattr(MaskedLM, "reword", lambda *a: made.append(1) or reword(*a))
    return made


@pytest.fixture
def neighbors(toy_models, resources, tmp_path):
    def collect(role, method=NEIGHBOR, texts=TEXTS, seed=0):
        models = {"target": toy_models[role]}
        drawn = replace(resources, seed=seed)
        Collector(tmp_path, models, texts, DetectionConfig(), drawn).collect(method.passes)

    return collect


def test_a_second_model_reads_the_firsts_versions(neighbors, calls, resources, tmp_path):
    neighbors("reference")
    (file,) = tmp_path.glob("rewordings/*/versions.parquet")
    stored = pq.read_table(file).to_pylist()
    neighbors("target", texts=TEXTS[::-1])
    neighbors("target", Pac(augmentation="masked_lm", n=3, share=NEIGHBOR.share))
    assert len(calls) == 1
    assert len(list(tmp_path.glob("rewordings/*"))) == 1
    wanted = Pass(view="masked_lm", n=3, share=NEIGHBOR.share)
    for text, versions in zip(TEXTS, render_versions(wanted, TEXTS, resources), strict=True):
        assert [r["text"] for r in stored if r["text_sha256"] == text.sha256] == list(versions)


def test_other_texts_numbers_shares_or_seeds_are_made_anew_and_cheap_ones_never_stored(
    neighbors, calls, tmp_path
):
    neighbors("target", Neighbor(augmentation="swap", n=3))
    assert not (tmp_path / "rewordings").exists()
    neighbors("target")
    neighbors("target", Neighbor(augmentation="masked_lm", n=2))
    neighbors("target", texts=TEXTS[:1])
    neighbors("target", seed=1)
    neighbors("target", Neighbor(augmentation="masked_lm", n=3, share=0.9))
    stored = [set(pq.read_table(file).column("text").to_pylist())
              for file in tmp_path.glob("rewordings/*/versions.parquet")]  # fmt: skip
    assert len(calls) == len(stored) == len(set(map(frozenset, stored))) == 5


def test_the_versions_of_a_seed_never_change(resources):
    """Stored passes are named by the seed: other versions under it would mix two experiments."""
    texts = [golden.text_of("a", "One two three four five six seven eight.")]
    swapped = [
        "eight. two One four five six seven three",
        "One eight. three four two six seven five",
    ]
    shortened = ["two three five six seven eight.", "One three four six seven eight."]
    assert render_versions(Pass(view="swap", n=2, share=0.3), texts, resources) == [list(swapped)]
    assert render_versions(Pass(view="delete", n=2, share=0.3), texts, resources) == [
        list(shortened)
    ]
