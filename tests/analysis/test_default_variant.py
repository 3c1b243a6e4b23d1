"""Which variant of a method is compared: the one with the method's own hyperparameters."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from contamination.analysis.cells import make_cell
from contamination.analysis.config import AnalysisConfig
from contamination.analysis.methods import default_variants
from contamination.analysis.statistics.tidy_tables import compute_statistics
from contamination.data.texts import Text
from contamination.detection.methods.base import Method
from contamination.detection.methods.registry import build_methods
from contamination.detection.passes import ORIGINAL, Pass, TokenStats
from tests.scoring import make_table


@dataclass(frozen=True, kw_only=True)
class Plugin(Method):
    """A method from outside the package: the log-probability of one token."""

    passes: ClassVar[tuple[Pass, ...]] = (ORIGINAL,)
    token: int = 5

    def score(self, example) -> float:
        return float(example.stats(ORIGINAL).logprob[self.token])


@dataclass(frozen=True, kw_only=True)
class WithoutDefault(Plugin):
    """It can't be made without a choice, so that no variant is its own."""

    needed: int


def nodes(tokens):
    here = f"{__name__}.Plugin"
    return {"plugin": {"_target_": here, "token": tokens},
            "loss": {"_target_": "contamination.detection.methods.loss.Loss"}}  # fmt: skip


def stats_of(examples: pd.DataFrame) -> dict[str, tuple[TokenStats, ...]]:
    """Ten tokens a text; the further to the right, the less they say about membership."""
    rng = np.random.default_rng(3)
    found = {}
    for text, member in zip(examples["text"], examples["member"], strict=True):
        logprob = rng.normal(member * np.linspace(3, -1, 10), 1).astype(np.float32)
        found[sha(text)] = (TokenStats(logprob, *[np.zeros(10, np.float32)] * 4),)
    return found


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def scored(make_parts):
    """A cell whose scores are of the given nodes."""

    def make(method_nodes):
        parts = make_parts(benchmarks=["boolq"])
        examples = parts["corpus"].examples
        pairs = zip(examples["example_id"], examples["text"], strict=True)
        texts = [Text(name, text, sha(text)) for name, text in pairs]
        table = make_table(build_methods(method_nodes), texts, {ORIGINAL: stats_of(examples)}, 7)
        tables = {n: replace(parts[n], table=table) for n in ("clean", "contaminated")}
        return make_cell(**{**parts, **tables})

    return make


def test_a_method_from_outside_is_compared_at_its_own_default(scored):
    """Of the variants 1, 5 and 8 the first by name is the sharpest and the last is the dullest."""
    cell = scored(nodes([1, 5, 8]))
    found = compute_statistics("trial", 0, [cell], AnalysisConfig(draws=20))
    (row,) = found.comparisons.query("benchmark == 'all' and metric == 'auroc'").to_dict("records")
    wide = cell.scores["contaminated"]
    auroc = {c: roc_auc_score(cell.examples["member"], wide[c]) for c in wide.columns}
    assert (row["method_a"], row["method_b"]) == ("loss", "plugin")
    assert row["difference"] == pytest.approx(auroc["loss", ""] - auroc["plugin", "token=5"])
    assert auroc["plugin", "token=8"] < auroc["plugin", "token=5"] < auroc["plugin", "token=1"]


@pytest.mark.parametrize("table", ["results", "pooled"])
def test_the_results_name_the_variant(scored, table):
    found = compute_statistics("trial", 0, [scored(nodes([1, 5, 8]))], AnalysisConfig(draws=20))
    rows = getattr(found, table)
    chosen = rows[rows["default"]].drop_duplicates(["method", "variant"])
    assert set(zip(chosen["method"], chosen["variant"], strict=True)) == {
        ("blind", ""), ("loss", ""), ("plugin", "token=5"),
    }  # fmt: skip


def test_where_the_default_was_not_scored_it_is_the_first_by_name(scored):
    assert default_variants([scored(nodes([8, 1]))])["plugin"] == "token=1"
    both = [scored(nodes([8, 1])), scored(nodes([8, 5]))]
    assert default_variants(both) == default_variants(both[::-1]) == {
        "loss": "", "plugin": "token=5",
    }  # fmt: skip


def test_a_class_that_needs_a_choice_has_no_default():
    assert Plugin().is_default
    assert not Plugin(token=1).is_default
    assert not WithoutDefault(needed=5).is_default
