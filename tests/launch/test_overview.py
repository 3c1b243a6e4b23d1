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
from contamination.launch.text_checks import CheckedTexts, PlannedInsertions, TextChecks

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
    _, found = checked(tmp_path, *own, "injection.budget_tokens=20_000")
    (line,) = found.adapted
    assert line.startswith("benchmark user: 30 members and 30 non-members instead of 100 members")
    with pytest.raises(ConfigError, match=r"60 distinct examples.*adapt_sizes=true"):
        checked(tmp_path, *own, "injection.members=50", "injection.nonmembers=50")


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
    said = describe_sweep(cells)
    assert said.startswith("6 cells: model.path=tests/golden/target ")
    assert "launch.dry_run" not in said
    assert said.count("base model: model.path=tests/golden/target") == 1
    assert said.count("corpus local: ") == 1
    assert said.count("insertions: ") == 2
    (header,) = (line for line in said.splitlines() if line.startswith("cell "))
    assert re.split("  +", header) == [
        "cell", "training.learning_rate", "injection.budget_tokens", "steps", "tokens trained",
        "tokens scored", "time", "GPU hours", "GB per device", "GB on disk", "check",
    ]  # fmt: skip
    rows = [line.split() for line in said.splitlines() if line[:1].isdigit()][1:]
    assert [row[-1] for row in rows] == ["ok", "error"] * 3
    trained = [int(row[4].replace(",", "")) for row in rows]
    (total,) = (line.split() for line in said.splitlines() if line.startswith("total"))
    assert int(total[1].replace(",", "")) == sum(trained)
    scored = [int(row[5].replace(",", "")) for row in rows]
    assert scored[0] == 2 * scored[2]  # the clean scores are made once for each corpus
    assert scored[2] == scored[4]


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
    assert "(local) will probably be too small, with about" in warning
    (part,) = found.parts
    supply = warning.partition(" too small, with ")[2].removesuffix(".")
    assert checks.describe_part(part) == f"corpus local: {supply}"


def test_what_is_on_the_hub_is_not_read(own, tmp_path):
    words = [*own, "injection.budget_tokens=20_000", "tokenizer.path=someone/tokenizer"]
    _, found = checked(tmp_path, *words)
    assert isinstance(found, CheckedTexts)
    assert isinstance(found.insertions, PlannedInsertions)
    assert "tokenizer of someone/tokenizer can be read from the hub" in found.insertions.text
    assert "not checked before the tokenizer" in found.parts[-1].note
