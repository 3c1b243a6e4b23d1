"""A kind of model that gives log-probabilities only: what it can serve, and what is said."""

import logging
from dataclasses import dataclass, replace

import numpy as np
import pytest
import yaml

from contamination.core.errors import ConfigError
from contamination.data.config import ExamplesConfig
from contamination.detection import models
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.flags import find_token_count_stats
from contamination.detection.methods.base import Method
from contamination.detection.models.base import LanguageModel
from contamination.detection.models.hf_model import HFModel
from contamination.detection.passes import Pass, TokenStats
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.tasks.config import OnlineConfig, OnlineStage
from contamination.detection.tasks.online import run as score_windows
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.rounding import FORWARD

NODES = {p.stem: yaml.safe_load(p.read_text())[p.stem] for p in METHODS_FOLDER.glob("*.yaml")}


class Probabilities(LanguageModel):
    def __init__(self, inner):
        self.inner = inner

    def score(self, sequences, on_progress=None):
        return [TokenStats(logprob=one.logprob) for one in self.inner.score(sequences)]


class Sparse(HFModel):
    provides = frozenset({"logprob"})

    @classmethod
    def opens(cls, config):
        return config.path.startswith("sparse:")

    @classmethod
    def open(cls, name, config, runs):
        handle = HFModel.from_path(f"{name}.path", config.path.removeprefix("sparse:"))
        return cls(**{**vars(handle), "digest": f"{handle.digest}+sparse"})

    def load(self, settings):
        return Probabilities(super().load(settings))


@pytest.fixture
def stage(tmp_path, toy_folders, monkeypatch):
    monkeypatch.setattr(models, "KINDS", (f"{__name__}:Sparse", *models.KINDS))
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


@pytest.mark.parametrize(
    ("name", "missing"),
    [("ez_mia", "top_logprob"), ("grad_norm", "gradients"), ("info_rmia", "states")],
)
def test_a_newer_method_says_what_is_missing(stage, toy_folders, name, missing):
    own = stage(method={name: NODES[name]})
    reference = ReferenceConfig(str(toy_folders["reference"]))
    with pytest.raises(ConfigError, match=f"method.{name} needs {missing} of the target model"):
        run(replace(own, reference=reference))


def test_a_reference_of_another_kind_is_known_by_its_digest(stage, toy_folders, caplog):
    """Neither kind of model has to be in files for `method=reference`."""
    method = {"reference": NODES["reference"]}
    for path, name in (("reference", "reference"), ("target", "reference_upper_bound")):
        other = ReferenceConfig(f"sparse:{toy_folders[path]}")
        table = open_scores(run(replace(stage(method=method), reference=other)).path).table
        assert set(table["method"]) == {name}


def test_windows_need_numbers_too(stage):
    own = stage(method={"min_k_plus_plus": NODES["min_k_plus_plus"]})
    online = OnlineStage(
        own.runs, 0, own.examples, own.model, own.method, own.detection, OnlineConfig()
    )
    with pytest.raises(ConfigError, match="method.min_k_plus_plus needs mean, std of the target"):
        score_windows(online)


@dataclass(frozen=True, kw_only=True)
class Judged(Method):
    passes = (Pass("judge"),)

    def score(self, example):
        return 0.0


def test_a_model_that_no_path_names_is_named(stage):
    with pytest.raises(
        ConfigError, match="judge/original: no path was given for the model 'judge'"
    ):
        run(stage("", {"judged": {"_target_": f"{__name__}.Judged"}}))


def test_which_pass_counts_the_tokens_does_not_depend_on_the_order_of_passes():
    counting = [
        Pass("target", "infill", future=1),
        Pass("target"),
        Pass("target", "prefix", shots=1),
    ]
    passes = {
        wanted: {"x": wanted} for wanted in (Pass("target", "swap", n=1, share=0.1), *counting)
    }
    orders = [dict(sorted(passes.items(), key=lambda one: one[0].key, reverse=r)) for r in (0, 1)]
    assert (
        find_token_count_stats(orders[0])
        == find_token_count_stats(orders[1])
        == {"x": Pass("target", "infill", future=1)}
    )


@pytest.mark.parametrize(
    ("field", "title"),
    [
        ("model.path", "original"),
        ("reference.path", "reference original"),
        ("audit.models.0", "audit original"),
    ],
)
def test_the_progress_of_another_model_than_the_one_under_test_names_it(toy_folders, field, title):
    assert HFModel.from_path(field, str(toy_folders["target"])).bar_title("original") == title
