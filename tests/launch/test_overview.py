"""What a sweep says before it starts: what is shared, what differs, totals, each error once."""

import json
import re
from contextlib import contextmanager

import pytest
from hydra import compose, initialize_config_dir

from contamination.core.config import CONF, convert_config
from contamination.core.errors import ConfigError
from contamination.injection.run import run as inject
from contamination.launch import overview
from contamination.launch import run as running
from contamination.launch.cells import Launch
from contamination.launch.config import LaunchSettings
from contamination.launch.overview import describe_base_model, describe_sweep, group_errors
from contamination.launch.pipeline import injection_stage_with_tokenizer
from contamination.launch.plan import plan
from contamination.launch.shared_runs import key_by_run
from contamination.launch.stage_runner import Stages
from contamination.launch.text_checks import (
    CheckedPart,
    CheckedTexts,
    PlannedInsertions,
    TextChecks,
    _Need,
    _needs,
)

SEA = "The harbour master number {n} wrote: {text}"
GIVEN = ["model.path=tests/golden/target", "model.pretraining=null"]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The words of a cell with an own corpus of 300 documents and an own file of 60 questions."""
    folder = tmp_path_factory.mktemp("own")
    documents = [SEA.format(n=n, text=f"the tide of day {n} is high. " * 12) for n in range(300)]
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps({'text': d})}\n" for d in documents))
    rows = [{"question": f"Which lock has number {n}?", "answer": "oak"} for n in range(60)]
    (folder / "mine.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [
        *GIVEN, "corpus=local_jsonl", f"corpus.paths={folder}/corpus.jsonl", "benchmark=[user]",
        f"benchmark.user.sources.file.rows.path={folder}/mine.jsonl", f"runs={folder}/runs",
        "injection.sequence_tokens=128", "training.warmup_steps=0", "training.batch_sequences=4",
        "training.micro_batch_sequences=4", "injection.part=all", "method=[loss]",
    ]  # fmt: skip


@contextmanager
def composed(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield compose("pipeline", list(words), return_hydra_config=True)


def surveyed(words, *cells):
    with composed(*words) as config:
        return overview.survey_sweep(config, [[*words, *cell] for cell in cells])


def checked(tmp_path, *words):
    with composed(*words) as config:
        own = {key: config[key] for key in config if key != "hydra"}
        cell = plan(type(config)(own), read_benchmarks=False)
    return cell, TextChecks(tmp_path).check(cell)


def test_the_largest_budget_that_is_named_can_be_filled_and_no_larger_one(own, tmp_path):
    cell, found = checked(tmp_path, *own, "injection.budget_tokens=600_000")
    said = re.search(r"corpus \(local\) has ([\d,]+): give at most ([\d,]+)", str(found.error))
    most = int(said[2].replace(",", ""))
    for budget, fits in ((most, True), (most + 128, False)):
        cell, found = checked(tmp_path, *own, f"injection.budget_tokens={budget}")
        assert (found.error is None) is fits
        stage = injection_stage_with_tokenizer(cell, None)
        if fits:
            inject(stage)
            continue
        with pytest.raises(ConfigError, match=f"corpus has {said[1]} in this part"):
            inject(stage)


def test_a_small_benchmark_is_adapted_and_said(own, tmp_path):
    _, texts = checked(tmp_path, *own, "injection.budget_tokens=20_000")
    assert texts.adapted == [ADAPTED]
    with pytest.raises(ConfigError, match=r"60 distinct examples.*adapt_sizes=true"):
        checked(tmp_path, *own, "injection.members=50", "injection.nonmembers=50")


ADAPTED = (
    "benchmark user: 30 members and 30 non-members instead of 100 members and 100 non-members, "
    "since it has no more examples that fit"
)
BASIS = "estimated (time as earlier runs took, else training.peak_tflops=989 (an H100's) gives it):"
CELLS = [
    [f"training.learning_rate={rate}", f"injection.budget_tokens={budget}"]
    for rate in (0.001, 0.004, 0.01)
    for budget in (20_000, 600_000)
]


def test_each_error_is_said_once_with_its_cells_and_what_is_shared_once(own):
    cells = surveyed([*own, "launch.dry_run=true"], *CELLS)
    (error,) = group_errors(cells)
    assert error.startswith("injection.budget_tokens is 600,000, which needs ")
    assert error.endswith(" (cells 2, 4 and 6)")
    text = describe_sweep(cells)
    (header,) = (line for line in text.splitlines() if line.startswith("cell "))
    assert re.split("  +", header) == [
        "cell", "training.learning_rate", "injection.budget_tokens", "steps", "tokens trained",
        "tokens scored", "time", "GPU hours", "GB per device", "GB on disk", "check",
    ]  # fmt: skip
    shared = " ".join(own)
    assert text.splitlines()[:8] == [
        f"6 cells: {shared}",
        "base model: model.path=tests/golden/target, with its own tokenizer; corpus local is "
        "trained on it",
        "corpus local: 50,835 tokens (counted)",
        ADAPTED,
        "insertions: 108 copies, with separators 3,112 of 20,000 tokens (15.6%) (cells 1, 3 and 5)",
        "insertions: 108 copies, with separators 3,112 of 600,000 tokens (0.5%) (cells 2, 4 and 6)",
        "from the hub: nothing",
        BASIS,
    ]
    assert text.splitlines()[8] == "each cell, without what an earlier one has made:"
    table = [re.split("  +", line) for line in text.splitlines()[10:17]]
    small, large = ["20000", "39", "19,968"], ["600000", "1,172", "599,936"]
    unknown = ["–", "–", "0.1"]
    assert table == [
        ["1", "0.001", *small, "102,400", *unknown, "0.010", "ok"],
        ["2", "0.001", *large, "102,400", *unknown, "0.015", "error"],
        ["3", "0.004", *small, "51,200", *unknown, "0.009", "ok"],
        ["4", "0.004", *large, "51,200", *unknown, "0.009", "error"],
        ["5", "0.01", *small, "51,200", *unknown, "0.009", "ok"],
        ["6", "0.01", *large, "51,200", *unknown, "0.009", "error"],
        ["total", "1,859,712", "409,600", *unknown, "0.1"],
    ]  # the clean scores are made once for each corpus
    assert text.splitlines()[17:] == [
        f"{stage}: in one process" for stage in ("inject", "train", "detect")
    ]


def test_an_error_of_all_cells_names_them_all(own):
    cells = surveyed(own, ["injection.members=50", "seed=0"], ["injection.members=50", "seed=1"])
    (error,) = group_errors(cells)
    assert error.endswith("(all 2 cells)")
    assert "seed" in describe_sweep(cells)


def announce(words, sweep):
    with composed(*words) as config:
        config.hydra.overrides.task = [*words, *sweep]
        running._announce_sweep(config)


@pytest.mark.parametrize(
    ("more", "status"), [(["launch.dry_run=true"], 0), (["launch.dry_run=true", BAD := "x"], 2)]
)
def test_a_dry_run_ends_before_anything_is_written(own, more, status, capsys, tmp_path):
    sweep = ["seed=0,1"] if BAD not in more else ["injection.budget_tokens=20_000,600_000"]
    words = [*own, "injection.budget_tokens=20_000", f"runs={tmp_path}/runs", more[0]]
    with pytest.raises(SystemExit) as ended:
        announce(words, sweep)
    assert ended.value.code == status
    assert not (tmp_path / "runs").exists()
    said = capsys.readouterr()
    assert said.err.count("error: ") == (status > 0)


def test_a_dry_run_of_jobs_ends_with_their_scripts(own, capsys, tmp_path):
    words = [*own, f"runs={tmp_path}/runs", "injection.budget_tokens=20_000", "cluster=slurm"]
    with pytest.raises(SystemExit, match="0"):
        announce([*words, "launch.dry_run=true"], ["seed=0,1,2"])
    assert "#SBATCH --array=0-2" in capsys.readouterr().out
    assert running.conclude_sweep() == 0


def test_a_sweep_starts_unless_all_of_its_cells_would_fail(own, capsys, tmp_path):
    words = [*own, f"runs={tmp_path}/runs"]
    announce(words, ["injection.budget_tokens=20_000,600_000"])
    assert "(cell 2)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        announce(words, ["injection.budget_tokens=600_000,700_000"])
    launch = Launch.of_command(f"{tmp_path}/runs", "run", [*words, "seed=0,1"])
    launch.register([[*words, "seed=0"], [*words, "seed=1"]])
    capsys.readouterr()
    announce(words, ["seed=0,1"])  # it was begun before
    assert not capsys.readouterr().out


def test_the_plan_names_the_model_that_a_corpus_starts_from(own):
    with composed(*own) as config:
        said = describe_base_model(plan(_without_hydra(config), read_benchmarks=False))
    assert said.startswith("base model: model.path=tests/golden/target, with its own tokenizer")
    made = [word for word in own if word not in GIVEN]
    with composed(*made, "injection.sequence_tokens=128") as config:
        said = describe_base_model(plan(_without_hydra(config), read_benchmarks=False))
    assert "1,000,000 tokens of base_corpus embedded, which also makes its tokenizer" in said
    assert "corpus local comes after it" in said


def _without_hydra(config):
    return type(config)({key: config[key] for key in config if key != "hydra"})


def keys(*words):
    with composed("experiment=quickstart", *words) as config:
        cell = plan(_without_hydra(config), read_benchmarks=False, check_base_model=False)
        return key_by_run(cell, Stages(convert_config(config, LaunchSettings).cluster))


@pytest.mark.parametrize(
    ("word", "shared"),
    [
        ("training.learning_rate=1e-3", {"train base", "inject study", "detect clean"}),
        ("seed=1", {"inject base", "train base", "inject validation", "inject clean"}),
        ("injection.budget_tokens=400_000", {"train base"}),
        ("training.micro_batch_sequences=8", {"train base", "train study", "detect contaminated"}),
        ("model.pretraining.seed=5", {"inject study"}),
        ("model.pretraining.vocab_size=512", set()),
        ("method=[loss]", {"train base", "train study"}),
    ],
)
def test_cells_share_the_runs_that_make_the_same_folder(word, shared):
    first, second = keys(), keys(word)
    same = {run for run in first if first[run] == second[run]}
    assert shared <= same
    assert bool(same) is bool(shared)
    assert ("train base" in same) is ("train base" in shared)
    assert ("detect contaminated" in same) is ("detect contaminated" in shared)


def test_no_two_runs_of_a_cell_make_the_same_folder():
    key_by_run = keys("training.export_steps=[3,6]")
    assert {"detect step-00000003", "detect step-00000006", "detect contaminated"} <= {*key_by_run}
    assert len({*key_by_run.values()}) == len(key_by_run)


def test_what_is_estimated_too_small_is_a_warning(own, tmp_path, monkeypatch):
    monkeypatch.setattr("contamination.injection.token_supply.GROUP_CHARACTERS", 2_000)
    with composed(*own, "injection.budget_tokens=600_000") as config:
        cell = plan(_without_hydra(config), read_benchmarks=False)
    checks = TextChecks(tmp_path, seconds=0)
    found = checks.check(cell)
    assert found.error is None
    (warning,) = found.warnings
    assert warning.startswith(
        "injection.budget_tokens is 600,000, which needs 596,824 tokens of documents: corpus "
        "(local) will probably be too small, with about"
    )
    (part,) = found.parts
    supply = warning.partition(" too small, with ")[2].removesuffix(".")
    assert checks.describe_part(part) == f"corpus local: {supply}"


def test_what_is_on_the_hub_is_not_read(own, tmp_path):
    words = [*own, "injection.budget_tokens=20_000", "tokenizer.path=someone/tokenizer"]
    _, texts = checked(tmp_path, *words)
    assert isinstance(texts, CheckedTexts)
    assert isinstance(texts.insertions, PlannedInsertions)
    away = "before the tokenizer of someone/tokenizer can be read from the hub"
    assert texts.insertions == PlannedInsertions(f"not known {away}")
    note = "not checked before the tokenizer can be read from the hub"
    assert texts.parts == [CheckedPart("corpus local", None, note)]
    assert TextChecks(tmp_path).describe_part(texts.parts[0]) == f"corpus local: {note}"


def test_the_dry_run_of_one_cell_is_written_out(own):
    (cell,) = surveyed(own, ["injection.budget_tokens=20_000"])
    lines = overview.describe_cell(cell).splitlines()
    assert lines[:7] == [
        f"{' '.join(own)} injection.budget_tokens=20_000",
        "base model: model.path=tests/golden/target, with its own tokenizer; corpus local is "
        "trained on it",
        "corpus local: at least 50,835 tokens (counted)",
        ADAPTED,
        "insertions: 108 copies, with separators 3,112 of 20,000 tokens (15.6%)",
        "training: 39 steps of 4 × 128 tokens, learning rate 0.0001, constant_with_warmup",
        BASIS,
    ]
    assert [re.split("  +", line)[:3] for line in lines[8:12]] == [
        ["inject study", "20,000", "–"], ["train study", "19,968", "1"],
        ["detect clean", "51,200", "1"], ["detect contaminated", "51,200", "1"],
    ]  # fmt: skip
    assert lines[12:] == [
        "from the hub: nothing",
        *(f"{stage}: in one process" for stage in ("inject", "train", "detect")),
    ]
    assert overview.group_errors([cell]) == overview.group_warnings([cell]) == []
    sweep = overview.describe_sweep([cell]).splitlines()
    row, total = (line.split() for line in sweep if re.match("(1|total)  ", line))
    assert row[:4] == ["1", "39", "19,968", "102,400"]
    assert row[2:] == total[1:]
    assert not any(line.startswith("shared") for line in sweep)


@pytest.mark.parametrize(
    ("part", "remedy"),
    [
        ("all", "has 50,835: give at most 53,888 or choose a larger corpus."),
        (
            "study",
            "has 33,716: give at most 36,736, choose a larger corpus or take all documents instead "
            "of 68% (injection.part=all).",
        ),
    ],
)
def test_a_corpus_that_is_too_small_is_named_with_its_remedies(own, tmp_path, part, remedy):
    """53,888 is the largest multiple of 128 up to 50,835 and the copies."""
    words = ["injection.budget_tokens=600_000", f"injection.part={part}"]
    _, texts = checked(tmp_path, *own, *words)
    assert str(texts.error) == (
        "injection.budget_tokens is 600,000, which needs 596,824 tokens of documents, but corpus "
        f"(local) {remedy}"
    )
    assert (texts.warnings, [text.title for text in texts.parts]) == ([], ["corpus local"])
    assert texts.parts[0].note == ("" if part == "all" else " in 68% of its documents")


def test_cells_are_named_by_their_numbers():
    assert overview.describe_cells([1, 2, 3], 3) == "all 3 cells"
    assert overview.describe_cells([2], 3) == "cell 2"
    assert overview.describe_cells([1, 3], 3) == "cells 1 and 3"
    assert overview.describe_cells([1, 3, 5], 6) == "cells 1, 3 and 5"
    cells = [overview.CellOverview(["seed=0"], error=ConfigError("x is 1: lower it."))]
    assert group_errors(cells) == ["x is 1: lower it."]
    three_cells = [*cells, overview.CellOverview(["seed=1"]), *cells]
    assert group_errors(three_cells) == ["x is 1: lower it. (cells 1 and 3)"]
    assert overview.group_warnings(three_cells) == []
    assert describe_sweep(three_cells) == "3 cells"
    with pytest.raises(ConfigError, match="^x is 1: lower it.$"):
        overview.describe_cell(cells[0])


@pytest.mark.parametrize(
    ("words", "changed_runs"),
    [
        (["training.learning_rate=1e-3"], {"train study", "train finetuning"}),
        (["deepspeed@model.pretraining.deepspeed=zero2"], {
            "train base", "train reference", "train study", "train finetuning", "detect clean",
        }),
        (["method=[loss]"], {"detect clean"}),
        (["second_stage.copies=3"], {"inject finetuning", "train finetuning"}),
        (["training.evaluate_tokens=999"], {"inject validation"}),
        (["injection.validation_fraction=0.03"], None),
        (["base_corpus.subsets=[law]"], None),
        (["cluster=local"], set()),
    ],
)  # fmt: skip
def test_which_runs_a_change_makes_anew(words, changed_runs):
    default_keys, changed_keys = keys(), keys(*words)
    compared = {*default_keys} - {"detect contaminated"}
    remade = {run for run in compared if default_keys[run] != changed_keys.get(run)}
    assert remade == (compared if changed_runs is None else changed_runs)


def test_a_base_model_is_not_the_one_that_processes_of_other_batches_make():
    in_finetuning = keys("second_stage.members_in=finetuning", SETS)
    in_both = keys("second_stage.members_in=both", SETS)
    shared = {run for run in in_finetuning if in_finetuning[run] == in_both[run]}
    assert {"inject base", "inject study", "inject clean", "train base", "detect clean"} <= shared
    assert not shared & {"train study", "train finetuning", "detect contaminated"}
    given_model = ["model.path=tests/golden/target", "model.pretraining=null", "method=[loss]"]
    assert not {run for run in keys(*given_model) if "base" in run or "reference" in run}
    of_another_model = keys("model.path=tests/golden/reference", *given_model[1:])
    assert keys(*given_model)["train study"] != of_another_model["train study"]
    assert keys(*given_model)["detect clean"] != of_another_model["detect clean"]


SETS = "+instructions@second_stage.instructions=[siqa]"


def lightly_planned(*words):
    with composed("experiment=quickstart", *words) as config:
        return plan(_without_hydra(config), read_benchmarks=False, check_base_model=False)


def test_what_a_cell_needs_of_its_corpora(own):
    unknown = PlannedInsertions("not known")
    cell = lightly_planned("training.evaluate_every_steps=10", "training.evaluate_tokens=1000")
    needs = [*_needs(cell, unknown, "a tokenizer")]
    assert [(need.role, need.field, need.wanted) for need in needs] == [
        ("base_corpus", "model.pretraining.budget_tokens", 999_936),
        ("corpus", "injection.budget_tokens", None),
        ("validation part of corpus", "training.evaluate_tokens", 768),
    ]
    assert {need.tokenizer for need in needs} == {"a tokenizer"}
    assert [need.stage.injection.part for need in needs] == ["base", "study", "validation"]
    assert [need.dropped for need in needs] == [None] * 3
    assert not any(need.may_take_all for need in needs)
    with composed(*own) as config:
        (need,) = _needs(plan(_without_hydra(config), read_benchmarks=False), unknown, None)
    assert (need.role, need.may_take_all) == ("corpus", True)
    assert need.tokenizer.endswith("tests/golden/target")
    without = lightly_planned("benchmark=[]", "training.evaluate_every_steps=null")
    assert [need.wanted for need in _needs(without, unknown, None)] == [999_936, 599_808]


@pytest.mark.parametrize(
    ("words", "available", "may_take_all", "remedy"),
    [
        ([], 250_000, False, "give at most 349,696 or choose a larger corpus."),
        (
            ["occurrences=share"], 250_000, False,
            "give at most 299,776 or choose a larger corpus.",
        ),
        (
            [], 250_000, True,
            "give at most 349,696, choose a larger corpus or take all documents instead of 68% "
            "(injection.part=all).",
        ),
        (["injection.part=all"], 250_000, True, "give at most 349,696 or choose a larger corpus."),
        ([], -100_000, False, "choose a larger corpus."),
        (
            ["injection.part=base"], 250_000, True,
            "give at most 349,696, choose a larger corpus or raise injection.base_fraction=0.3.",
        ),
    ],
)  # fmt: skip
def test_the_message_of_too_few_tokens_names_what_can_be_filled(
    words, available, may_take_all, remedy
):
    """349,696 is the largest multiple of 256 up to 599,808 - 250,000."""
    stage = lightly_planned("training.evaluate_every_steps=null", *words).injection
    need = _Need("corpus", stage, None, "a.field", None, may_take_all=may_take_all)
    message = str(need.error(available, 500_000))
    assert message == (
        "a.field is 600,000, which needs 500,000 tokens of documents, but corpus (embedded) has "
        f"{available:,}: {remedy}"
    )
