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
        ("contaminated", "auroc", "slow", 1, "news", 45, 30, 3),  # of another method
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
        ["slow, 1 copy", 40, 30, 3, 2],
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


SPEED_NEEDED = (
    "GPU hours need training.peak_tflops=989 (an H100's), or an earlier training of such a model "
    "under runs. A dash elsewhere means that no number suffices, up to 10 million members or seeds "
    "and 100,000 copies."
)
OF_EACH = "Members and non-members are of each of plan.benchmarks benchmarks in each training."
ROUGH = (
    "With fewer than 10 members ({}) the normal approximation of the test is rough. In 24 cells of "
    "a tiny LLaMA such designs had 5 points more power than planned at 50%, and about what was "
    "planned at 80% and 90%."
)


def test_the_table_of_a_plan_is_written_out():
    """A shift of 0.3 has an AUROC of Φ(0.3 / √2), and of 218 and 109 examples 80% power."""
    table = plan_table(stage("plan.shift=0.3", "plan.nonmembers=50", "training.peak_tflops=989"))
    assert (table.name, table.title, table.note) == (
        "plan", "The fewest members for 80% power at a level of 5% (one-sided)", OF_EACH
    )  # fmt: skip
    assert table.header == [
        "method", "copies", "members", "non-members", "seeds", "δ", "AUROC", "power",
        "power at δ", "GPU hours", "outside the fit",
    ]  # fmt: skip
    (line,) = table.lines
    hours = f"{table.data['gpu_hours'].item():.3g}"
    assert line == ["δ = 0.3", "1", "218", "109", "1", "0.30", "0.58", "80%", "80%", hours, "–"]
    power = power_of_design(0.3, 0.0, Design(218, 109), 0.05)
    for column in ("power", "power_of_guess"):
        assert table.data[column].item() == pytest.approx(power)


@pytest.mark.parametrize(
    ("words", "title", "line", "note"),
    [
        (
            ["plan.find=seeds", "plan.members=20", "plan.power=0.9", "plan.level=0.01"],
            "The fewest seeds for 90% power at a level of 1% (one-sided)",
            ["1", "20", "20", "16", "0.30", "0.58", "91%", "91%"], f"{OF_EACH} {SPEED_NEEDED}",
        ),
        (
            ["plan.find=power", "plan.members=20", "plan.benchmarks=2", "plan.copies=1200"],
            "The power of the design at a level of 5% (one-sided)",
            ["1,200", "20", "20", "1", "0.30", "0.58", "36%", "36%"],
            f"{OF_EACH} The copies of δ = 0.3 have more than plan.tokens=600,000 (members × copies "
            "× benchmarks × plan.example_tokens=120): no such corpus can be made. Give more "
            f"plan.tokens, or spread the members over more plan.seeds. {SPEED_NEEDED}",
        ),
        (
            ["plan.find=power", "plan.members=2", "plan.nonmembers=9", "plan.benchmarks=4"],
            "The power of the design at a level of 5% (one-sided)",
            ["1", "2", "9", "1", "0.30", "0.58", "17%", "17%"],
            f"{OF_EACH} {ROUGH.format('δ = 0.3')} {SPEED_NEEDED}",
        ),
    ],
)  # fmt: skip
def test_each_search_has_its_title_and_its_note(words, title, line, note):
    table = plan_table(stage("plan.shift=0.3", *words))
    assert (table.title, table.note) == (title, note)
    assert table.lines == [["δ = 0.3", *line, "–", "–"]]


def test_copies_that_no_number_of_reaches_the_power_are_a_dash(folder):
    """The critical AUROC of two members and two non-members is above 1."""
    words = [f"fit={folder}", "plan.find=copies", "plan.members=2", "methods=[loss]"]
    table = plan_table(stage(*words, "training.peak_tflops=989"))
    assert table.lines == [["loss", "–", "2", "2", "1", "0.27", "0.57", "0%", "0%", "–", "–"]]
    assert table.data[["copies", "gpu_hours"]].isna().all().all()
    assert table.data["growth"].item() == 0.1


def test_the_shift_of_a_law_is_that_of_its_settings(folder):
    """δ grows with the copies to the power of 0.9, the coefficient of their logarithm."""
    shifts = [
        plan_table(stage(f"fit={folder}", "plan.find=power", f"plan.copies={copies}", *words))
        .data.set_index("method")["shift"]
        .to_dict()
        for copies, words in ((8, []), (8, ["plan.learning_rate=1e-3"]), (8, ["seed=1"]), (4, []))
    ]
    assert shifts[0] == shifts[1]
    assert shifts[0]["loss"] == pytest.approx(1.724, abs=0.001)
    assert shifts[2]["loss"] == pytest.approx(shifts[0]["loss"], rel=0.05)
    assert shifts[0]["loss"] / shifts[3]["loss"] == pytest.approx(2**0.9, rel=0.01)


def test_gpu_hours_are_of_all_trainings_and_of_their_scored_examples():
    def hours(*words):
        words = ["plan.shift=0.3", "plan.find=power", "training.peak_tflops=989", *words]
        return plan_table(stage(*words)).data["gpu_hours"].item()

    few_tokens = ["plan.members=2", "plan.nonmembers=2", "plan.example_tokens=1"]
    hours_of_one, many_examples = hours(*few_tokens), ["plan.members=1000", "plan.nonmembers=500"]
    assert hours(*few_tokens, "plan.seeds=3") == pytest.approx(3 * hours_of_one)
    # scoring costs a third of training: of 1500 × 2 × 100 tokens, of 600,000 that are trained
    assert hours(*many_examples, "plan.benchmarks=2", "plan.example_tokens=100") == pytest.approx(
        hours_of_one * (1 + 300_000 / 3 / 600_000), rel=0.01
    )
    one_sequence = hours_of_one * 256 / 600_000
    assert hours(*few_tokens, "plan.tokens=1") == pytest.approx(one_sequence, rel=0.2)


def test_the_table_of_the_smallest_effect_is_written_out():
    """Φ⁻¹(0.99) √(1501 / (12 × 1000 × 500 × 4 × 2)) = 0.0130 above ½."""
    words = ["plan.members=1000", "plan.nonmembers=500", "plan.seeds=4", "plan.benchmarks=2"]
    table = plan_table(stage("plan.find=effect", *words, "plan.power=0.9", "plan.level=0.01"))
    assert (table.name, table.title, table.note) == (
        "effects",
        "The smallest effect with 90% power at a level of 1% (one-sided)",
        "For normal scores with equal variances of members and non-members.",
    )
    assert table.header == [
        "design", "members", "non-members", "benchmarks", "seeds", "smallest δ", "its AUROC",
        "rejects from",
    ]  # fmt: skip
    assert table.lines == [["this design", "1,000", "500", "2", "4", "0.07", "0.520", "0.513"]]
    data = table.data.to_dict("records")[0]
    shift = data.pop("shift")
    assert power_of_design(shift, 0.0, Design(1000, 500, 4, 2), 0.01) == pytest.approx(0.9)
    assert data == {
        "design": "this design", "members": 1000, "nonmembers": 500, "benchmarks": 2, "seeds": 4,
        "auroc": pytest.approx(0.5202, abs=1e-4), "critical": pytest.approx(0.5130, abs=1e-4),
    }  # fmt: skip


def test_no_effect_is_detected_by_a_design_that_is_too_small():
    table = plan_table(stage("plan.find=effect", "plan.members=2"))
    assert table.lines == [["this design", "2", "2", "1", "1", "–", "–", "–"]]
    assert table.note == (
        "For normal scores with equal variances of members and non-members. A dash: no δ up to 9 "
        "is detected with this power; give more members or seeds."
    )


@pytest.mark.parametrize(
    ("words", "sources"),
    [
        ([], "fit is None, report None and plan.shift None"),
        (["plan.find=power"], "fit is None, report None and plan.shift None"),
        (["fit=x", "report=y"], "fit is 'x', report 'y' and plan.shift None"),
        (["fit=x", "plan.shift=1"], "fit is 'x', report None and plan.shift 1.0"),
        (["report=y", "plan.shift=1"], "fit is None, report 'y' and plan.shift 1.0"),
        (
            ["plan.find=effect", "fit=x", "report=y"],
            "fit is 'x', report 'y' and plan.shift None",
        ),
    ],
)
def test_a_plan_has_one_source(words, sources):
    with pytest.raises(ConfigError) as raised:
        stage(*words)
    remedy = "give one of them, such as fit=runs/law/DIR, or none with plan.find=effect."
    assert str(raised.value) == f"{sources}: {remedy}"


def test_only_a_law_says_what_copies_change():
    for source in ("plan.shift=1", "report=y"):
        with pytest.raises(ConfigError, match="plan.find is 'copies': only a law says what"):
            stage("plan.find=copies", source)
    assert stage("plan.find=effect").plan.find == "effect"
    assert stage("plan.find=copies", "fit=x").fit == "x"


def test_a_report_without_a_contaminated_model_has_no_design(tmp_path):
    columns = ["checkpoint", "metric", "condition", "occurrences", "benchmark", "n_members",
               "n_nonmembers", "n_seeds"]  # fmt: skip

    def make(folder):
        rows = [("clean", "auroc", "slow", 1, "news", 6, 6, 1)]
        pd.DataFrame(rows, columns=columns).to_parquet(folder / "pooled.parquet")
        return WrittenFiles(["pooled.parquet"])

    report = build_or_open(tmp_path / "runs" / "report" / "r-0123456789ab", {}, {}, make).path
    with pytest.raises(ConfigError) as raised:
        plan_table(stage(f"report={report}"))
    assert str(raised.value) == f"report is {report}: it has no AUROC of a contaminated model."
