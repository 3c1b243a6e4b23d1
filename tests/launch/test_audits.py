"""Audits of a launch's cells: refused before any work, or conducted after the report."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from contamination.analysis.config import CellPaths
from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.launch import audits, pipeline
from contamination.launch.audits import check_audits
from contamination.launch.config import SecondStage
from contamination.launch.plan import plan
from contamination.launch.second_stage import normalize_members_in


def compose_pipeline(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("pipeline", [*overrides])


def check(*overrides):
    """Checks the audits while a Hydra application runs, as a launch does."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        check_audits(compose("pipeline", ["experiment=quickstart", *overrides]))
        assert GlobalHydra.instance().hydra is running


def test_audits_that_read_cells_are_accepted():
    check()
    check("audits=[one_run_bound, reference_attack]")
    check("experiment=reference_attack")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("one_run", "Did you mean one_run_bound"), ("books", "Known: decontamination, forgetting")],
)
def test_others_are_refused(name, hint):
    with pytest.raises(ConfigError, match=f"audits: '{name}' is no audit of cells. {hint}"):
        check(f"audits=[{name}]")


def test_cells_with_the_same_artefacts_are_reported_once(monkeypatch):
    """Clean twins of two stages: `members_in` changes nothing."""
    stages = []
    monkeypatch.setattr("contamination.analysis.run.run", stages.append)
    monkeypatch.setattr(pipeline, "run_audits", lambda *_: None)
    config = compose_pipeline("experiment=quickstart")
    twin = CellPaths("corpus", "model", "clean", "contaminated", "first", "set")
    same = replace(twin, seconds=3.0)
    other = replace(twin, contaminated="other scores")
    pipeline.report(config, [twin, same, other])
    assert stages[0].cells == [twin, other]


@pytest.mark.parametrize("members_in", ["pretraining", "finetuning", "both"])
@pytest.mark.parametrize("copies", [0, 8])
def test_without_copies_it_does_not_matter_in_which_stage_members_would_be(members_in, copies):
    second = SecondStage(members_in, instructions={"siqa": {}})
    made = normalize_members_in(second, SimpleNamespace(counts={"copies": copies}))
    assert made.members_in == (members_in if copies else "pretraining")


@pytest.mark.parametrize("copies", [0, 8])
def test_a_clean_twin_reads_the_same_texts_whatever_stage_members_would_be_in(monkeypatch, copies):
    made = []

    def record(second, _stage, study, _stages, clean_corpus):
        made.append((second.members_in, study.path, clean_corpus and clean_corpus.path))
        return study

    monkeypatch.setattr(pipeline.second_stage, "make_finetuning_set", record)
    monkeypatch.setattr(pipeline.second_stage, "check_finetuning_set", lambda *_: None)
    monkeypatch.setattr(pipeline, "check_methods", lambda *_: None)
    stages = SimpleNamespace(
        inject=lambda run, *_: SimpleNamespace(path=Path(run), counts={"copies": copies})
    )
    for members_in in ("pretraining", "finetuning", "both"):
        config = compose_pipeline(
            "experiment=quickstart", f"second_stage.members_in={members_in}",
            "+instructions@second_stage.instructions=[siqa]",
        )  # fmt: skip
        pipeline._make_corpora(plan(config, read_benchmarks=False), stages)
    study, clean = Path("study"), Path("clean")
    if copies:
        assert made == [
            ("pretraining", study, None), ("finetuning", study, clean), ("both", study, None)
        ]  # fmt: skip
    else:
        assert made == [("pretraining", study, None)] * 3


def test_an_audit_of_a_reports_cells_is_conducted_and_its_conclusion_logged(monkeypatch, caplog):
    """Its own nodes are those of the pipeline; the others are those of the audit's command."""
    stages = []
    monkeypatch.setattr("contamination.audits.run.run", lambda stage: stages.append(stage) or stage)
    monkeypatch.setattr(
        "contamination.audits.run.read_conclusions", lambda run: [f"{run.name} is well.", "Yes."]
    )
    config = compose_pipeline(
        "experiment=quickstart", "name=herons", "runs=far", "wandb.project=own",
        "audits=[inflation,one_run_bound]",
    )  # fmt: skip
    with caplog.at_level("INFO"):
        audited = audits.run_audits(config, SimpleNamespace(path=Path("the report")))
    assert audited == stages
    for stage, kind in zip(stages, ("Inflation", "OneRun"), strict=True):
        assert (stage.name, stage.runs, stage.wandb.project) == ("herons", "far", "own")
        assert stage.audit["cells"] == "the report"
        assert stage.audit["_target_"].lower().endswith(f".{kind.lower()}")
    assert caplog.messages == [
        "audit inflation: herons is well.", "audit inflation: Yes.",
        "audit one_run_bound: herons is well.", "audit one_run_bound: Yes.",
    ]  # fmt: skip


def test_a_wrong_field_of_an_audit_is_refused_before_any_work(monkeypatch):
    checks = []
    monkeypatch.setattr(
        "contamination.audits.base.check_audit", lambda audit, node: checks.append((audit, node))
    )
    check("audits=[inflation]")
    ((audit, node),) = checks
    assert type(audit).__name__ == "Inflation"
    assert (audit.cells, node["cells"]) == ("REPORT", "REPORT")
    known = sorted(
        file.stem for file in (CONF / "audit").glob("*.yaml") if "\ncells:" in file.read_text()
    )
    with pytest.raises(ConfigError) as raised:
        check("audits=[zzzz]")
    assert str(raised.value) == (f"audits: 'zzzz' is no audit of cells. Known: {', '.join(known)}.")
