"""The whole way on real data, small enough for the default suite."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from html import unescape

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

from contamination.analysis.config import AnalysisConfig, AnalysisStage, CellPaths
from contamination.analysis.report_folder import open_report
from contamination.analysis.run import run as analyse
from contamination.audits.base import AuditStage
from contamination.audits.cells import open_cells
from contamination.audits.reference_attack.inputs import _read_tokens
from contamination.audits.run import run as audit
from contamination.core.artifacts import open_artifact
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.core.integrity import MANIFEST
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.run import run as detect
from contamination.detection.scores import open_scores
from contamination.detection.tasks.calibration import calibrate_or_apply
from contamination.detection.tasks.config import ThresholdStage
from contamination.injection.corpus import open_corpus
from contamination.training.config import WandbConfig
from contamination.training.trained_model import open_checkpoint
from tests.detection.model.served.conftest import NODES
from tests.detection.model.served.server import Server
from tests.file_contents import anywhere
from tests.rounding import FORWARD
from tests.small import SMALL, contents, launch

COLUMNS = {
    "experiment", "cell", "checkpoint", "benchmark", "method", "variant", "occurrences",
    "n_members", "n_nonmembers", "metric", "value", "ci_low", "ci_high", "learning_rate",
    "budget_tokens", "model", "seed",
}  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return launch(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def runs(report):
    return report.path.parents[1]


def test_the_report_is_whole(report, runs):
    results = pd.read_parquet(report.path / "results.parquet")
    assert set(results.columns) >= COLUMNS
    assert set(results["checkpoint"]) == {"clean", "contaminated"}
    assert set(results["method"]) == {"loss", "zlib", "min_k", "min_k_plus_plus", "blind"}
    assert set(results["benchmark"]) == {"boolq", "truthfulqa", "all"}
    assert set(results["occurrences"].astype(str)) == {"2", "8", "any"}
    carried = results[results["needs"] == ""]
    assert "auroc" in set(carried["metric"])
    assert np.isfinite(carried[["value", "ci_low", "ci_high"]].to_numpy()).all()
    assert (carried["ci_low"] <= carried["ci_high"]).all()
    assert json.loads((runs / "report/latest.json").read_text())["folder"] == report.path.name


def test_it_leads_to_its_examples_token_by_token(report):
    (page,) = (report.path / "examples").iterdir()
    assert f"[{page.stem}](examples/{page.name})" in (report.path / "report.md").read_text()
    assert f'<a href="examples/{page.name}">' in (report.path / "report.html").read_text()
    assert "study" in page.stem
    assert '"logprob' in page.read_text() or "log p" in page.read_text()


KEY = "sk-do-not-write-me-anywhere-1234"


@pytest.mark.slow
def test_models_behind_servers_give_the_same_report(report, runs, tmp_path, monkeypatch):
    """And thresholds; the servers' key is in no file of it, nor in the records for wandb."""
    monkeypatch.setenv("THE_KEY", KEY)
    (corpus,) = (runs / "corpus").glob("*-study-*")
    models = {name: next((runs / "model").glob(f"*-{name}-*")) for name in ("base", "study")}
    made = {name: score_served(tmp_path, corpus, model) for name, model in models.items()}
    cell = CellPaths(*map(str, (corpus, models["study"], made["base"], made["study"])))
    config, record = AnalysisConfig(draws=20), WandbConfig(mode="offline", project="served")
    stage = AnalysisStage("served", 0, str(tmp_path), [cell], config, record)
    served = open_report(analyse(stage).path).results
    key = ["checkpoint", "benchmark", "method", "variant", "occurrences", "metric"]
    both = served.merge(open_report(report.path).results, on=key, suffixes=("", "_local"))
    assert {"loss", "zlib", "min_k"} <= set(both["method"])
    assert (both["value"] - both["value_local"]).abs().max() <= 1 / 16  # a rank, by rounding
    (local,) = {*(runs / "scores").glob(f"{models['study'].name}*")} - {
        *(runs / "scores").glob("*-step-*")
    }
    thresholds = [calibrated(folder, corpus, tmp_path) for folder in (made["study"], local)]
    for name, value in thresholds[0].items():
        assert value == pytest.approx(thresholds[1][name], rel=1e-4, abs=FORWARD)
    assert not anywhere(KEY, tmp_path)
    assert ".wandb" in {path.suffix for path in anywhere("auroc", tmp_path)}


def score_served(runs, corpus, model):
    """The corpus's scores by the model, behind a server."""
    with Server(folder=model / "hf", key=KEY) as server:
        node = ScoredModelConfig(url=server.url, tokenizer=str(model / "hf"), key_env="THE_KEY")
        methods = {name: NODES[name] for name in ("loss", "zlib", "min_k")}
        examples = ExamplesConfig(str(corpus))
        settings = DetectionConfig(device="cpu")
        given = {"runs": str(runs), "examples": examples, "model": node, "detection": settings}
        return detect(DetectionStage(**given, method=methods)).path


def calibrated(scores, corpus, folder):
    """Each method's threshold."""
    out = folder / f"{scores.name}.json"
    calibrate_or_apply(ThresholdStage(str(scores), examples=str(corpus), out=str(out)))
    return {one["method"]: one["value"] for one in json.loads(out.read_text())["thresholds"]}


def test_its_numbers_are_those_of_the_scores(report, runs):
    results = pd.read_parquet(report.path / "results.parquet")
    examples = open_corpus(next((runs / "corpus").glob("*-study-*"))).examples
    model = open_checkpoint(next((runs / "model").glob("*-study-*"))).artifact.path.name
    (folder,) = {*(runs / "scores").glob(f"{model}*")} - {*(runs / "scores").glob("*-step-*")}
    scores = open_scores(folder).table
    table = scores[scores["method"] == "min_k"].merge(examples, on="example_id")
    for benchmark, rows in table.groupby("benchmark"):
        for occurrences in (2, 8):
            kept = rows[(rows["occurrences"] == occurrences) | ~rows["member"].astype(bool)]
            expected = roc_auc_score(kept["member"].astype(bool), kept["score"])
            ours = results[
                (results["checkpoint"] == "contaminated") & (results["method"] == "min_k")
                & (results["benchmark"] == benchmark) & (results["metric"] == "auroc")
                & (results["occurrences"].astype(str) == str(occurrences))
            ]  # fmt: skip
            assert ours["value"].item() == pytest.approx(expected, abs=1e-12)


def test_the_model_is_followed_during_its_training(runs):
    trained = open_checkpoint(next((runs / "model").glob("*-study-*")))
    losses = trained.evaluations.set_index("step")
    assert losses.index[0] == 0
    assert {10, trained.artifact.counts["steps"]} <= {*losses.index}
    gap = losses["loss_nonmembers"] - losses["loss_members"]
    assert gap.iloc[-1] > gap.iloc[0]
    assert np.isfinite(losses["loss_validation"]).all()
    steps = {
        int(step)
        for folder in (runs / "scores").glob("*-study-*")
        for step in open_scores(folder).table["checkpoint_step"].unique()
    }
    assert steps == {10, trained.artifact.counts["steps"]}


def test_a_second_run_reuses_everything(report, runs):
    before = {p: p.stat().st_mtime_ns for p in runs.glob(f"*/*/{MANIFEST}")}
    again = launch(runs)
    assert again.path == report.path
    assert {p: p.stat().st_mtime_ns for p in runs.glob(f"*/*/{MANIFEST}")} == before


def test_another_seed_shares_the_base_model_and_its_scores(runs, report):
    before = set(contents(runs))
    launch(runs, "seed=1")
    kinds = [name.split("/")[0] for name in set(contents(runs)) - before]
    assert sorted(kinds) == ["corpus", "model", *["passes"] * 2, "report", *["scores"] * 2]


def test_a_fair_reference_is_made_and_the_base_model_is_an_upper_bound(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "runs", ignore=shutil.ignore_patterns(".locks"))
    before = set(contents(tmp_path / "runs"))
    fair = launch(tmp_path / "runs", "method=[loss,reference]")
    ours = {k: open_artifact(tmp_path / "runs" / k, k.split("/")[0])
            for k in set(contents(tmp_path / "runs")) - before}  # fmt: skip
    (reference,) = (a for a in ours.values() if a.kind == "model")
    base, study = (next((runs / "model").glob(f"*-{name}-*")) for name in ("base", "study"))
    assert reference.inputs == open_checkpoint(base).artifact.inputs  # the base part alone
    assert reference.digest not in open_checkpoint(study).artifact.inputs.values()
    weights = [load_file(folder / "hf" / "model.safetensors") for folder in (reference.path, base)]
    assert not torch.allclose(*(w["lm_head.weight"] for w in weights), atol=0.01)
    assert {a.inputs["reference"] for a in ours.values() if a.kind == "scores"} == {
        reference.digest
    }
    assert set(pd.read_parquet(fair.path / "results.parquet")["method"]) == {
        "loss", "reference", "blind"
    }  # fmt: skip
    upper = launch(tmp_path / "runs", "method=[loss,reference]", "reference.path=base")
    shown = pd.read_parquet(upper.path / "results.parquet")["method"]
    assert set(shown) == {"loss", "reference_upper_bound", "blind"}
    for page in ("report.md", "report.html"):
        upper_text, fair_text = (unescape((r.path / page).read_text()) for r in (upper, fair))
        assert "reference_upper_bound: compares with the target's own past" in upper_text
        assert "reference_upper_bound" not in fair_text


def test_a_sweep_with_a_bad_cell_reports_the_others(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "runs", ignore=shutil.ignore_patterns(".locks"))
    call = [sys.executable, "-m", "launch", "-m", *SMALL, "wandb.mode=disabled"]
    more = [f"runs={tmp_path / 'runs'}", "training.learning_rate=4e-3,-1"]
    done = subprocess.run([*call, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr[-3000:]
    said = done.stdout + done.stderr
    assert "failed: training.learning_rate=-1: training.learning_rate is -1.0" in said
    assert said.index("this cell failed: training.learning_rate is -1.0") < said.index("report:")
    assert "sweep: 1 of 2 cells done." in said
    latest = json.loads((tmp_path / "runs/report/latest.json").read_text())["folder"]
    results = pd.read_parquet(tmp_path / "runs/report" / latest / "results.parquet")
    assert results["cell"].nunique() == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["corpus", "model", "passes", "scores", "report"])
def test_a_stage_killed_in_the_middle_ends_with_the_same_result(kind, tmp_path):
    arguments = [sys.executable, "-m", "launch", *SMALL, "wandb.mode=disabled"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*arguments, f"runs={whole}"], check=True, capture_output=True)
    process = subprocess.Popen(
        [*arguments, f"runs={killed}"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    while not (unfinished := _unfinished(killed / kind)) and process.poll() is None:
        time.sleep(0.001)
    if kind == "model":
        while not list((killed / kind).glob("*/checkpoints/*")):
            time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert unfinished, "the stage had ended before it could be killed"
    subprocess.run([*arguments, f"runs={killed}"], check=True, capture_output=True)
    assert contents(killed) == contents(whole)


def _unfinished(folder):
    return [p for p in folder.glob("*") if p.is_dir() and not (p / MANIFEST).exists()]


SECOND = [
    "+instructions@second_stage.instructions=[nq_open]",
    "second_stage.instructions.nq_open.examples=40", "second_stage.training.schedule=constant",
    "second_stage.training.learning_rate=1e-3", "method=[loss]", "detection.scope=output",
    "detection.min_scored_tokens=1", "training.evaluate_every_steps=null", "analysis.examples=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def copied(runs, tmp_path_factory):
    """What one stage made, for others to add to."""
    return shutil.copytree(runs, tmp_path_factory.mktemp("copied") / "runs")


def test_a_second_stage_fine_tunes_what_the_first_trained(copied):
    before = {str(path) for path in (copied / "model").glob("*-study-*")}
    made = launch(
        copied, *SECOND, "second_stage.members_in=both", "training.evaluate_every_steps=10"
    )
    (cell,) = made.config()["cells"]
    last, texts = open_checkpoint(cell["model"]), open_corpus(cell["finetuning"])
    assert cell["first"] in before  # it is not trained again
    assert last.artifact.inputs["model"] == open_checkpoint(cell["first"]).digest
    assert last.artifact.inputs["corpus"] == texts.artifact.digest
    copies = texts.examples.set_index("example_id")["occurrences"]
    assert (copies == texts.examples.set_index("example_id")["member"].astype(int)).all()
    assert set(last.exposures["example_id"]) == set(copies.index[copies > 0])
    own = [open_scores(cell[name]) for name in ("clean", "contaminated")]
    assert {one.artifact.config()["detection"]["scope"] for one in own} == {"output"}
    pooled = pd.read_parquet(made.path / "pooled.parquet")
    assert set(pooled[["stage", "scope", "epochs"]].itertuples(index=False, name=None)) == {
        ("both", "output", 1)
    }


def test_a_second_stage_that_is_too_short_is_refused_before_the_first(copied):
    before = {*(copied / "model").iterdir()}
    own = ("second_stage.training.schedule=linear", "second_stage.training.warmup_steps=1000")
    with pytest.raises(ConfigError, match=r"^second_stage\.training\.warmup_steps is 1000"):
        launch(copied, *SECOND, *own, "second_stage.members_in=both")
    assert {*(copied / "model").iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize("members_in", ["pretraining", "finetuning"])
def test_members_are_inserted_in_one_stage_alone(copied, members_in):
    made = launch(copied, *SECOND, f"second_stage.members_in={members_in}")
    (cell,) = made.config()["cells"]
    first, last = (open_checkpoint(cell[name]) for name in ("first", "model"))
    seen = bool(len(first.exposures)), bool(len(last.exposures))
    assert seen == (members_in == "pretraining", members_in == "finetuning")
    assert set(pd.read_parquet(made.path / "pooled.parquet")["stage"]) == {members_in}


def test_audits_of_cells_read_a_report_and_refuse_what_gives_no_evidence(report, runs):
    (cell,) = open_cells("audit.cells", str(report.path))
    assert cell.scores("audit.attacks", "loss").shape == (64,)
    assert cell.doses.sum() == len(cell.corpus.ledger)
    node = {
        "_target_": "contamination.audits.one_run_bound.audit.OneRun",
        "cells": str(report.path),
    }
    with pytest.raises(ArtifactError, match="membership is 'exact'.*no one-run bound holds"):
        audit(AuditStage(audit=node, runs=str(runs)))
    node["_target_"] = "contamination.audits.reference_attack.audit.ReferenceAttack"
    with pytest.raises(ConfigError, match="has 1 cells, .* at least 4"):
        audit(AuditStage(audit=node, runs=str(runs)))
    node["_target_"] = "contamination.audits.set_tests.audit.SetTests"
    node |= {"draws": 2, "sizes": [10], "blind": False}
    with pytest.raises(DataError, match="no test can be applied to any set.*10 or more members"):
        audit(AuditStage(audit=node, runs=str(runs)))
    tokens = _read_tokens([cell, cell])
    assert [t.shape[0] for t in tokens] == [2] * 64
    means = [t[0].mean() for t in tokens]
    np.testing.assert_allclose(means, cell.scores("x", "loss"), rtol=1e-5)
    paths = {**vars(cell.paths), "corpus": str(next(runs.glob("corpus/*-base-*")))}
    with pytest.raises(ArtifactError, match="audit.cells.0.corpus is .*was not trained on it"):
        open_cells("audit.cells", [paths])
