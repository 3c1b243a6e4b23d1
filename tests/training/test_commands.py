"""`python -m training` with its tools, and `train()`: what their words become."""

import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from contamination.training import train, trained_model, which_step
from contamination.training.config import TrainingStage, WhichStepStage
from tests.forks import run_in_fork


@pytest.fixture
def command():
    return import_module("contamination.training.__main__")


@pytest.mark.parametrize(
    ("words", "config", "function"),
    [
        (["memory", "seed=1"], "memory", "print_memory_plan"),
        (["which-step", "text=x", "batch=2"], "which_step", "print_step_table"),
        (["seed=1"], "training", "train_model"),
        ([], "training", "train_model"),
    ],
)
def test_the_first_word_names_the_tool(command, monkeypatch, words, config, function):
    calls = []
    monkeypatch.setattr(command, "run_hydra_command", lambda *args: calls.append(args) or 5)
    monkeypatch.setattr(sys, "argv", ["training", *words])
    assert command.main() == 5
    assert calls == [(config, getattr(command, function))]
    assert sys.argv[1:] == (words if config == "training" else words[1:])


@pytest.mark.parametrize(("count", "ends"), [(1, False), (2, True), (8, True)])
@pytest.mark.parametrize(
    ("result", "status"), [(0, 0), (143, 143), (SystemExit(2), 2), (SystemExit(), 0)]
)
def test_a_launched_process_ends_at_once_with_the_commands_status(
    command, monkeypatch, count, ends, result, status
):
    def run(*_):
        if isinstance(result, SystemExit):
            raise result
        return result

    statuses = []
    monkeypatch.setattr(command, "run_hydra_command", run)
    monkeypatch.setattr(command, "launched_process_count", lambda: count)
    monkeypatch.setattr(command, "exit_process", statuses.append)
    monkeypatch.setattr(sys, "argv", ["training", "seed=1"])
    assert command.main() == status
    assert statuses == [status] * ends


def test_the_commands_settings_are_those_of_their_words(command, monkeypatch):
    monkeypatch.setattr(which_step, "format_step_table", repr)
    words = ["corpus_folder=c", "batch=2", "text=x"]
    process = run_in_fork(command.main, "training", "which-step", *words)
    stage = WhichStepStage(text="x", corpus_folder="c", batch=2)
    assert (process.returncode, process.stdout) == (0, f"{stage}\n"), process.stderr
    monkeypatch.setattr(
        "contamination.training.run.run",
        lambda stage: print(type(stage), stage.corpus_folder, stage.seed),
    )
    process = run_in_fork(command.main, "training", "corpus_folder=c", "seed=3")
    assert (process.returncode, process.stdout) == (0, f"{TrainingStage} c 3\n"), process.stderr


def test_train_opens_the_folder_of_the_words_training(monkeypatch):
    stages = []

    def run(stage):
        stages.append(stage)
        return SimpleNamespace(path="runs/model/one")

    monkeypatch.setattr("contamination.training.run.run", run)
    monkeypatch.setattr(trained_model, "open_checkpoint", lambda path: f"opened {path}")
    assert train("corpus_folder=c", "seed=3", "training.epochs=2") == "opened runs/model/one"
    (stage,) = stages
    assert isinstance(stage, TrainingStage)
    assert (stage.corpus_folder, stage.seed, stage.training.epochs) == ("c", 3, 2)
    assert stage.training.schedule == "constant_with_warmup"
