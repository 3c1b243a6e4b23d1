"""The planner: rows of a plan, from a shift, from a stored law and from a finished design."""

import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from contamination.analysis.law.fit import Law
from contamination.analysis.law.power import Design, power_of_design
from contamination.analysis.law.stored_law import KIND, open_law, write_law
from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.core.cli import compose_stage
from contamination.core.errors import ArtifactError, ConfigError
from contamination.launch.power_config import PowerStage
from contamination.launch.power_tables import plan_table

LAW = Law(
    factors={"occurrences": [1.0, 8.0, 2.8]},
    constant={"learning_rate": 1e-3, "parameters": 226_000.0, "recency": None},
    names=["intercept", "occurrences", "method|loss", "method|min_k", "benchmark|boolq"],
    values=[-0.3, 0.9, -0.1, 0.1, 0.0],
    covariance=(np.eye(5) * [0.004, 0.001, 0.002, 0.002, 0.001]).tolist(),
    variances={"method": 0.02, "benchmark": 0.01, "cell": 0.005},
    errors=1.0,
    freedom=6,
    growth={"loss": 0.1, "min_k": 0.2},
    within={"loss": 0.3},
    recency_tokens=1e4,
    cells=8,
    rows=128,
)


@pytest.fixture(autouse=True)
def no_earlier_trainings(monkeypatch, tmp_path):
    """The speed of an earlier training under runs/ would go into the GPU hours."""
    monkeypatch.chdir(tmp_path)


def stage(*overrides: str) -> PowerStage:
    return compose_stage("plan_power", overrides, PowerStage)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "runs" / KIND / "law-0123456789ab"
    build_or_open(path, {}, {}, lambda f: WrittenFiles([write_law(f, LAW)]))
    return path


def test_the_members_of_a_shift_have_the_wanted_power():
    row = plan_table(stage("plan.shift=0.3", "training.peak_tflops=989")).data.iloc[0]
    powers = [power_of_design(0.3, 0.0, Design(m, m), 0.05) for m in (row.members - 1, row.members)]
    assert powers[0] < 0.8 <= powers[1]
    flops = 6 * 226_000 * 600_000
    assert row.gpu_hours == pytest.approx(flops / (989e12 * 0.4) / 3600, rel=0.3)


def test_seeds_stand_in_for_members():
    row = plan_table(stage("plan.shift=0.3", "plan.find=seeds", "plan.members=20")).data.iloc[0]
    assert row.members == 20
    assert row.seeds == pytest.approx(145 / 20, abs=1.5)


def test_a_law_plans_each_method_and_fewer_copies_need_more_members(folder):
    few, many = (
        plan_table(stage(f"fit={folder}", f"plan.copies={n}")).data.set_index("method")
        for n in (1, 8)
    )
    assert list(few.index) == ["loss", "min_k"]
    assert (few["members"] > 4 * many["members"]).all()
    assert (few["power"] >= 0.8).all()
    assert few.loc["loss", "members"] > few.loc["min_k", "members"]


def test_the_fewest_copies_reach_the_power(folder):
    found = plan_table(
        stage(f"fit={folder}", "plan.find=copies", "plan.members=50", "methods=[loss]")
    ).data.iloc[0]
    powers = [
        plan_table(
            stage(
                f"fit={folder}", "plan.find=power", f"plan.copies={n}", "plan.members=50",
                "methods=[loss]",
            )
        ).data.iloc[0]["power"]
        for n in (found.copies - 1, found.copies)
    ]  # fmt: skip
    assert powers[0] < 0.8 <= powers[1]


def test_a_changed_or_foreign_law_is_refused(folder):
    assert open_law("fit", folder) == LAW
    file = folder / "fit.json"
    file.write_text(file.read_text().replace("0.9", "0.8", 1))
    with pytest.raises(ArtifactError):
        open_law("fit", folder)
    other = folder.with_name("law-ba9876543210")
    wrong = asdict(replace(LAW, values=[1.0]))
    build_or_open(other, {}, {}, lambda f: _write(f, json.dumps(wrong)))
    with pytest.raises(ArtifactError, match=r"fit.json can't be used"):
        open_law("fit", other)


def _write(folder, text):
    (folder / "fit.json").write_text(text)
    return WrittenFiles(["fit.json"])


def test_an_unknown_method_and_an_unvaried_factor_are_refused(folder):
    with pytest.raises(ConfigError, match="Did you mean loss"):
        plan_table(stage(f"fit={folder}", "methods=[los]"))
    varied = replace(LAW, factors={**LAW.factors, "learning_rate": [1e-3, 4e-3, 2e-3]},
                     names=[*LAW.names[:2], "learning_rate", *LAW.names[2:]],
                     values=[-0.3, 0.9, 0.4, -0.1, 0.1, 0.0],
                     covariance=(np.eye(6) * 0.001).tolist())  # fmt: skip
    other = folder.with_name("law-ba9876543210")
    build_or_open(other, {}, {}, lambda f: WrittenFiles([write_law(f, varied)]))
    with pytest.raises(ConfigError, match="plan.learning_rate is null"):
        plan_table(stage(f"fit={other}"))


def test_the_smallest_effect_of_a_design():
    row = plan_table(stage("plan.find=effect", "plan.seeds=4")).data.iloc[0]
    assert power_of_design(row["shift"], 0.0, Design(100, 100, 4), 0.05) == pytest.approx(0.8)


def test_the_smallest_effect_of_each_condition_of_a_report(tmp_path):
    """Its design has the fewest members, non-members and seeds of the condition's benchmarks."""
    columns = ["checkpoint", "metric", "condition", "occurrences", "benchmark", "n_members",
               "n_nonmembers", "n_seeds"]  # fmt: skip
    rows = [
        ("contaminated", "auroc", "slow", 1, "boolq", 40, 60, 4),
        ("contaminated", "auroc", "slow", 1, "news", 50, 30, 3),
        ("contaminated", "auroc", "slow", 1, "all", 5, 5, 1),
        ("clean", "auroc", "slow", 1, "news", 6, 6, 1),
        ("contaminated", "tpr", "slow", 1, "news", 7, 7, 1),
        ("contaminated", "auroc", "fast", 8, "news", 20, 25, 2),
    ]

    def make(folder):
        pd.DataFrame(rows, columns=columns).to_parquet(folder / "pooled.parquet")
        return WrittenFiles(["pooled.parquet"])

    report = build_or_open(tmp_path / "runs" / "report" / "r-0123456789ab", {}, {}, make).path
    table = plan_table(stage(f"report={report}")).data
    columns_of_design = ["design", "members", "nonmembers", "seeds", "benchmarks"]
    assert table[columns_of_design].to_numpy().tolist() == [
        ["slow, 1 copies", 40, 30, 3, 2],
        ["fast, 8 copies", 20, 25, 2, 1],
    ]
    powers = [
        power_of_design(shift, 0.0, Design(*design), 0.05)
        for shift, design in zip(table["shift"], [(40, 30, 3, 2), (20, 25, 2, 1)], strict=True)
    ]
    assert powers == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("plan.learning_rate=4e-3", "learning_rate is 0.004: it was 0.001 in all cells"),
        ("plan.parameters=1e9", "parameters is 1e.09: it was 226000 in all cells"),
        ("plan.tokens_since=1000", "recency is 1.1: it is not in the law"),
        ("model=tiny_llama_4m", "all cells of the fit had 226,000"),
    ],
)
def test_a_value_that_the_law_does_not_know_is_refused(folder, given, words):
    with pytest.raises(ConfigError, match=words):
        plan_table(stage(f"fit={folder}", "plan.find=power", given))


def test_a_design_that_can_not_reject_has_no_power_and_no_smallest_effect():
    """Of two members and two non-members the critical AUROC is above 1."""
    assert power_of_design(np.array([2.0, 4.0]), 0.0, Design(2, 2), 0.05).tolist() == [0, 0]
    table = plan_table(stage("plan.find=effect", "plan.members=2"))
    assert "nan" not in table.terminal_text()
    assert "no δ up to 9" in table.note


def test_a_design_of_few_members_says_that_its_power_is_rough():
    assert "fewer than 10 members" in plan_table(stage("plan.shift=2.5")).note
    assert "fewer than 10 members" not in plan_table(stage("plan.shift=0.3")).note
    few = ("plan.shift=0.3", "plan.find=seeds", "plan.members=2")
    assert "fewer than 10 members" not in plan_table(stage(*few)).note  # many seeds


def test_copies_that_do_not_fit_into_the_corpus_are_named():
    small, large = (
        plan_table(stage("plan.shift=0.3", "plan.copies=64", f"plan.tokens={tokens}")).note
        for tokens in (600_000, 6_000_000)
    )
    assert "no such corpus can be made" in small
    assert "no such corpus" not in large


def test_a_law_whose_growth_is_at_its_bound_is_named(folder):
    assert "not identified" not in plan_table(stage(f"fit={folder}")).note
    other = folder.with_name("law-ba9876543210")
    unclear = replace(LAW, growth={"loss": 1.49999, "min_k": 0.2})
    build_or_open(other, {}, {}, lambda f: WrittenFiles([write_law(f, unclear)]))
    assert "κ of loss is at the bound" in plan_table(stage(f"fit={other}")).note
