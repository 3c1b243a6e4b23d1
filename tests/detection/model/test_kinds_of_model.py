"""A kind of model that gives log-probabilities only: what it can serve, and what is said."""

import logging

import numpy as np
import pytest
import yaml

from core.errors import ConfigError
from detection import model, open_scores
from detection.config import (
    METHODS,
    DetectionConfig,
    DetectionStage,
    ExamplesConfig,
    ScoredModelConfig,
)
from detection.model.language_model import LanguageModel
from detection.model.local_model import LocalModel
from detection.passes import TokenStats
from detection.run import run
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.rounding import FORWARD

NODES = {p.stem: yaml.safe_load(p.read_text())[p.stem] for p in METHODS.glob("*.yaml")}


class Probabilities(LanguageModel):
    def __init__(self, inner):
        self.inner = inner

    def stats(self, sequences):
        return [TokenStats(logprob=one.logprob) for one in self.inner.stats(sequences)]


class Sparse(LocalModel):
    gives = frozenset({"logprob"})

    @classmethod
    def opens(cls, path):
        return path.startswith("sparse:")

    @classmethod
    def open(cls, field, path, *, trust_remote_code=False):
        found = LocalModel.open(field, path.removeprefix("sparse:"))
        return cls(**{**vars(found), "digest": f"{found.digest}+sparse"})

    def load(self, settings):
        return Probabilities(super().load(settings))


@pytest.fixture
def stage(tmp_path, toy_folders, monkeypatch):
    monkeypatch.setattr(model, "KINDS", (Sparse, *model.KINDS))
    (tmp_path / "texts.jsonl").write_text(f'{{"text": "{MEMORISED}"}}\n{{"text": "{UNSEEN}"}}\n')

    def make(kind="sparse:", method=NODES):
        return DetectionStage(
            runs=str(tmp_path / "runs"), method=method, detection=DetectionConfig(device="cpu"),
            examples=ExamplesConfig(str(tmp_path / "texts.jsonl")),
            model=ScoredModelConfig(f"{kind}{toy_folders['target']}"),
        )  # fmt: skip

    return make


def test_all_methods_are_those_that_it_can_serve(stage, caplog):
    with caplog.at_level(logging.INFO):
        sparse = open_scores(run(stage()).path).table
    assert set(sparse["method"]) == {
        "loss", "lowercase", "max_k", "min_k", "pac", "polarized_distance", "zlib"
    }  # fmt: skip
    assert "leaves out gap_k: it needs std, top_logprob of the target model, which" in caplog.text
    assert "leaves out infilling: it needs mean, states, std, top_logprob of" in caplog.text
    whole = open_scores(run(stage("", {name: NODES[name] for name in set(sparse["method"])})).path)
    np.testing.assert_allclose(sparse["score"], whole.table["score"], rtol=1e-5, atol=FORWARD)


def test_a_method_chosen_by_name_says_what_is_missing(stage, tmp_path):
    chosen = {"min_k_plus_plus": NODES["min_k_plus_plus"]}
    with pytest.raises(
        ConfigError, match=r"method.min_k_plus_plus needs mean, std of the target model, which "
        r"gives logprob \(model.path is "
    ):  # fmt: skip
        run(stage(method=chosen))
    assert not (tmp_path / "runs" / "passes").exists()
