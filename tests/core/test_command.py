"""The command line: errors of one paragraph, exit statuses, sweeps that can't run."""

import logging
import os
import signal
import subprocess
import sys
import warnings

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf

from contamination.core.cli import (
    check_runs_folder,
    compose_stage,
    discard_output,
    print_error,
    quiet_libraries,
    quote_templates,
    run_hydra_command,
    run_tool,
)
from contamination.core.errors import ConfigError, ServerError, StoppedError
from contamination.core.hydra_errors import hydra_error_message
from tests.forks import run_in_fork


@pytest.mark.slow  # tests/bad_inputs checks the same in forks of one process
def test_the_command_prints_one_paragraph(tmp_path):
    overrides = ["model=llama_7b", "model.path=./nowhere", f"runs={tmp_path}/runs"]
    run = subprocess.run(
        [sys.executable, "-m", "launch", *overrides], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert_one_paragraph(run.stderr, ["model.path", "./nowhere", "no such folder"])
    assert not (tmp_path / "runs").exists()


def assert_one_paragraph(stderr, parts):
    paragraph = stderr.strip()
    assert paragraph.startswith("error: ")
    assert "\n" not in paragraph
    for part in parts:
        assert part in paragraph


@pytest.mark.parametrize(("words", "message"), [
    ("name=größe_模型", """If it is a text, put it in quotes: 'name="größe_模型"'."""),
    ("name", "missing EQUAL"),
    ("name='a", "name='a"),
])  # fmt: skip
def test_a_value_that_hydra_cannot_read_is_shown_in_quotes(words, message):
    with pytest.raises(OverrideParseException) as caught:
        OverridesParser.create().parse_overrides([words])
    assert message in hydra_error_message(caught.value, "pipeline", [words])


def test_the_message_has_the_lines_of_hydras_error_and_of_its_cause_once():
    error = HydraException("Could not load it\nfull_key: seed")
    assert hydra_error_message(error, "pipeline", []).startswith("Could not load it (see the")
    error.__cause__ = ValueError("Could not load it\nno such file")
    assert hydra_error_message(error, "pipeline", []).startswith("Could not load it no such file (")


@pytest.mark.parametrize("text", [
    r"Question: {question}\nAnswer: {answer}",
    "{question} {answer}",
    r'"{question}"\n{answer} says "{name}\"',
    "Question: {question}\nAnswer: {answer}",
    "Q, {question}: [{answer}] = 1",
    "{question}\\",
])  # fmt: skip
@pytest.mark.parametrize("name", ["template", "audit.template", "benchmark.user.template"])
def test_a_template_needs_no_quotes_of_hydra(name, text):
    (quoted,) = quote_templates([f"{name}={text}"])
    override = OverridesParser.create().parse_override(quoted)
    assert (override.key_or_group, override.value()) == (name, text)


@pytest.mark.parametrize(
    "override", ['template="{question}"', "template='{q}'", "template=boolq", "columns={a: b}"]
)
def test_what_hydra_can_read_is_left_alone(override):
    assert quote_templates([override]) == [override]


def test_each_end_has_its_documented_exit_status():
    """docs/launch.md, "Exit status"; one process runs all, since its start takes the time."""
    code = """
import os, signal, sys
from contamination.core import cli as command
from contamination.core.errors import ConfigError, ServerError

def raising(error):
    def run(config):
        raise error
    return run

def kill(number):
    return lambda config: os.kill(os.getpid(), number)

runs = [lambda config: None, *map(raising, [ConfigError(""), ServerError("")]),
    kill(signal.SIGINT), kill(signal.SIGTERM)]
for run in runs:
    sys.argv = ["thresholds"]
    print(command.run_hydra_command("thresholds", run))
sys.argv = ["thresholds", "-m", "seed=range(0,0)"]
try:
    command.run_hydra_command("thresholds", runs[0])
except SystemExit as end:
    print("sweep", end.code)
sys.argv = ["thresholds"]
command.run_hydra_command("thresholds", raising(KeyError()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["0", "2", "2", "130", "143", "sweep", "2"], run.stderr
    assert run.returncode == 1
    assert "error: seed is range(0,0): --multirun has nothing to run" in run.stderr


def thresholds():
    return run_hydra_command("thresholds", lambda config: print("it ran"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("seed=range(0,0),range(0,2)", "seed is range(0,0),range(0,2): --multirun takes one range"),
        ("seed=range(0,0)", "seed is range(0,0): --multirun has nothing to run. Give at least one"),
        ("hydra.sweeper.max_batch_size=0", "hydra.sweeper.max_batch_size is 0: give 1 or more"),
        ("hydra.sweeper.params={seed:'range(0,0)'}", "hydra.sweeper.params is {seed:'range(0,0)'}"),
        ("hydra.sweeper.params.seed='0,1'", "hydra.sweeper.params.seed is '0,1': on the command"),
        ("+hydra.sweeper.params.seed=3", "hydra.sweeper.params.seed is 3: on the command line"),
    ],
)
def test_a_sweep_that_would_run_something_else_is_refused(words, message):
    run = run_in_fork(thresholds, "thresholds", "-m", "seed=0,1", words)
    assert (run.stdout, run.returncode) == ("", 2)
    assert f"error: {message}" in run.stderr


def test_a_configuration_that_could_not_be_read_again_is_refused_before_the_run():
    run = run_in_fork(thresholds, "thresholds", "+x=" + "a" * 100_001)
    assert (run.stdout, run.returncode) == ("", 2)
    assert "error: x is 'aaa" in run.stderr
    assert "of 100,001 characters, but at most 100,000 can be read" in run.stderr


@pytest.mark.slow
def test_every_stage_shows_its_config():
    """One process after another costs seconds: here one shows them all."""
    code = """
import runpy, sys
for module in ("injection", "training", "detection", "analysis", "launch"):
    sys.argv = [module, "--cfg", "job"]
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        print("status", end.code)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.count("\nruns: runs\n") == run.stdout.count("\nstatus 0\n") == 5, run.stderr


def raising(error):
    def run(config=None):
        raise error

    return run


def killing(number):
    return lambda config=None: os.kill(os.getpid(), number)


STOPPED = "was received. Finished work is kept: run the same command again to resume."


@pytest.mark.parametrize(
    ("run", "status", "message"),
    [
        (lambda config=None: None, 0, ""),
        (raising(ConfigError("seed is 1\x1b: give 2.")), 2, "error: seed is 1\\x1b: give 2.\n"),
        (raising(ServerError("it is busy.")), 2, "error: it is busy.\n"),
        (killing(signal.SIGINT), 130, f"stopped: SIGINT {STOPPED}\n"),
        (killing(signal.SIGTERM), 143, f"stopped: SIGTERM {STOPPED}\n"),
    ],
)
def test_in_a_fork_each_end_has_its_status_and_its_message(run, status, message):
    for command in (lambda: run_hydra_command("thresholds", run), lambda: run_tool(run)):
        process = run_in_fork(command, "thresholds")
        assert (process.returncode, process.stdout, process.stderr) == (status, "", message)


def test_the_status_of_a_tool_is_its_own():
    assert run_tool(lambda: 7) == 7
    run = raising(KeyError())
    process = run_in_fork(lambda: run_hydra_command("thresholds", run), "thresholds")
    assert process.returncode == 1
    assert process.stderr.endswith("KeyError\n")


def test_an_error_is_labelled_as_an_error_or_a_stop(capsys):
    assert print_error(ConfigError("give 2.")) == 2
    assert print_error(StoppedError("SIGINT was received.", 130)) == 130
    assert capsys.readouterr() == ("", "error: give 2.\nstopped: SIGINT was received.\n")


def test_an_empty_folder_of_runs_is_refused():
    assert check_runs_folder(OmegaConf.create({"runs": "here"})) == "here"
    assert check_runs_folder(OmegaConf.create({})) == "runs"
    with pytest.raises(ConfigError, match=r"^runs is '': give a folder\.$"):
        check_runs_folder(OmegaConf.create({"runs": ""}))
    with pytest.raises(ConfigError, match=r"^runs is '/proc/a': no folder can be created in /pr"):
        check_runs_folder(OmegaConf.create({"runs": "/proc/a"}))


def test_overrides_from_python_are_strings():
    message = r'^overrides is 7: give strings, such as "seed=1"\.$'
    with pytest.raises(ConfigError, match=message):
        compose_stage("thresholds", ["seed=1", 7], object)


QUIET_VARIABLES = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "true",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
}


def test_libraries_are_quiet_unless_the_environment_says_otherwise(monkeypatch):
    loggers = ("DeepSpeed", "httpx", "matplotlib", "numexpr", "transformers")
    for name in QUIET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in loggers:
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    with warnings.catch_warnings(record=True) as shown_warnings:
        warnings.simplefilter("always")
        quiet_libraries()
        for module in ("torch.nn", "transformers.models", "deepspeed.ops", "own"):
            warnings.warn_explicit("loud", UserWarning, "a.py", 1, module=module)
        warnings.warn("Glyph 1 missing from font(s) A.", stacklevel=1)
    assert len(shown_warnings) == 1
    assert {name: os.environ[name] for name in QUIET_VARIABLES} == QUIET_VARIABLES
    assert {logging.getLogger(name).level for name in loggers} == {logging.ERROR}
    for name in QUIET_VARIABLES:
        monkeypatch.setenv(name, "own")
    quiet_libraries()
    assert {os.environ[name] for name in QUIET_VARIABLES} == {"own"}


def print_around_discarded():
    print("before")
    with discard_output():
        print("lost")
        print("lost", file=sys.stderr)
        os.write(1, b"lost")
    print("after")
    print("said", file=sys.stderr)


def test_discarded_output_is_also_that_of_subprocesses():
    process = run_in_fork(print_around_discarded)
    assert (process.stdout, process.stderr) == ("before\nafter\n", "said\n")
