"""The command `contamination`: its sub-commands, lists, options and suggestions."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from contamination.core.commands import read_commands
from contamination.core.errors import ConfigError
from contamination.launch import cli
from tests.forks import run_in_fork
from tests.structure import LAYERS

ROOT = Path(__file__).resolve().parents[2]
MAIN = "import sys; from contamination.launch.cli import main; sys.exit(main())"


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["contamination", *words])
    for package in ("audits", *cli.PACKAGES.values()):  # which other tests may have imported
        monkeypatch.delitem(sys.modules, f"contamination.{package}.__main__", raising=False)
    status = cli.main()
    return status, *capsys.readouterr()


def main_anew():
    """The command in a forked process, where the packages' commands have not been imported."""
    for package in ("audits", *cli.PACKAGES.values()):
        sys.modules.pop(f"contamination.{package}.__main__", None)
    return cli.main()


def test_the_lists_have_every_choice_and_what_it_is(monkeypatch, capsys):
    status, out, _ = call(monkeypatch, capsys, "list")
    assert status == 0
    for kind, group in cli.GROUPS.items():
        for file in (ROOT / "conf" / group).rglob("*.yaml"):
            assert f"  {file.relative_to(ROOT / 'conf' / group).with_suffix('')} " in out, kind
    _, methods, _ = call(monkeypatch, capsys, "list", "methods")
    assert "min_k_plus_plus     Min-K%++ (Zhang et al. 2024" in methods
    assert "benchmarks:" not in methods


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "error: contamination trian: no such command. Did you mean train"),
        (["list", "method"], "error: list method: no such kind. Did you mean methods"),
        (["detect", "method=[min_kk]"], "unknown method. Did you mean"),
        (["status", "a", "b"], "python -m launch status"),
        (["status", "--costs"], "error: status --costs: no such option. Did you mean --cost"),
        (["launch", "statu"], "error: launch statu: no such sub-command. Did you mean status"),
        (["detect", "viw"], "error: detect viw: no such sub-command. Did you mean view?"),
        (["detect", "metod=all"], "error: metod: unknown field. Did you mean method?"),
        (["detect", "method=los"], "error: method=los: unknown method. Did you mean loss"),
        (["inject", "corpus=local_jsonl", "corpus.pths=x"], "Did you mean corpus.paths?"),
        (["analyse", "wandb", "projct=x"], "error: projct: unknown field. Did you mean project or"),
        (["train", "training.learning_rat=1"], "Did you mean training.learning_rate?"),
        (["audit", "bok", "--help"], "error: audit=bok: unknown audit. Did you mean books?"),
        (
            ["audit"],
            "error: audit is missing: choose one of benchmark, books, decontamination",
        ),
        (["launch"], "error: launch: there is nothing to run. Give an experiment, such as"),
        (["launch", "-m"], "error: launch: there is nothing to run. Give an experiment, such as"),
        (["launch", "expriment=quickstart"], "Did you mean experiment?"),
    ],
)
def test_what_is_not_known_is_named(monkeypatch, capsys, words, said):
    status, _, err = call(monkeypatch, capsys, *words)
    assert status == 2
    assert said in err
    assert "append to your config" not in err


@pytest.mark.parametrize("name", read_commands())
def test_each_command_tells_how_it_is_called(monkeypatch, capsys, name):
    status, out, _ = call(monkeypatch, capsys, *name.split(), "--help")
    assert status == 0
    assert f"Usage:    contamination {name} [" in out


def test_a_sweep_with_a_misspelt_field_does_not_begin(tmp_path):
    words = ["contamination", "launch", "-m", "metod=loss,zlib", "seed=0,1"]
    done = run_in_fork(main_anew, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: metod: unknown field. Did you mean method?")
    assert done.stderr.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("contamination", "detect"),
        ("contamination de", "detect"),
        ("contamination list me", "methods"),
        ("contamination detect method=lo", "method=loss"),
        pytest.param(
            "contamination fetch experiment=quick", "experiment=quickstart", marks=pytest.mark.slow
        ),
        ("contamination status --", "--cost"),
        ("contamination detect vi", "view"),
        ("contamination audit be", "benchmark"),
        ("contamination adopt k", "kind=corpus"),
        pytest.param("contamination audit books pos", "positives=", marks=pytest.mark.slow),
        pytest.param("contamination detect view view.ex", "view.examples=", marks=pytest.mark.slow),
    ],
)
def test_bash_is_told_what_may_follow(line, among):
    """In a process of its own: Hydra answers by ending it."""
    done = run_in_fork(main_anew, "contamination", "-sc", "query=bash", COMP_LINE=line)
    assert among in done.stdout.split(), done.stderr


@pytest.mark.slow
def test_the_script_for_bash_is_of_this_command(monkeypatch, capfd):
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "-sc", "install=bash"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.rstrip().endswith("-F hydra_bash_completion contamination"), done.stderr
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True).returncode == 0


@pytest.mark.parametrize("words", [["--version"], ["detect", "--version"]])
def test_the_version_is_this_projects(monkeypatch, capsys, words):
    monkeypatch.setattr("contamination.core.artifacts.code_revision", lambda: "c0ffee+")
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = f"{found['name']} {found['version']} (c0ffee+)\n"
    assert call(monkeypatch, capsys, *words)[:2] == (0, said)


def test_a_served_model_is_named_by_options():
    words = ["--model-url", "http://a:1/v1", "x=1", "--reference-key-env=KEY", "--cfg", "job"]
    found = ["model.url=http://a:1/v1", "x=1", "reference.key_env=KEY", "--cfg", "job"]
    assert cli.parse_overrides(words) == found


def test_without_words_it_says_what_there_is(monkeypatch, capsys):
    status, out, _ = call(monkeypatch, capsys)
    assert status == 0
    shown = " ".join(out.split())  # a summary may take two lines
    for command in read_commands().values():
        assert f" {command.word}" in out
        assert command.summary in shown or not command.group
    first_words = {name.split()[0] for name in read_commands()}
    assert {*cli.PACKAGES, *cli.TOOLS, *cli.OTHERS} <= first_words


def test_modules_of_the_current_folder_are_not_taken_for_ours(tmp_path):
    """As the installed script runs it: with the script's folder on Python's path, not this one."""
    for name in ("core", "analysis", "conf", "launch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a user module was imported')")
    script = tmp_path / "bin" / "contamination"
    script.parent.mkdir()
    script.write_text("import sys\nfrom contamination.launch.cli import main\nsys.exit(main())\n")
    done = subprocess.run(
        [sys.executable, script, "quickstart", "--cfg", "job"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "name: quickstart" in done.stdout


def test_the_wheel_holds_every_package_and_conf():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {
        f"contamination.{file.parent.relative_to(ROOT)}".replace("/", ".")
        for top in LAYERS
        for file in (ROOT / top).rglob("*.py")
    }
    assert packages | {"contamination", "contamination.conf"} == set(built["packages"])
    assert {"contamination", *(f"contamination.{top}" for top in (*LAYERS, "conf"))} == {
        *built["package-dir"]
    }
    assert built["package-data"]["contamination.conf"] == ["**/*.yaml"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list", ["methods", "audits", "benchmarks", "models", "corpora", "experiments"]),
        ("adopt", ["kind=model", "kind=corpus", "path=", "runs="]),
        ("check", ["runs=", "--prune", "--yes"]),
        ("status", ["runs=", "--cost"]),
        ("report", []),
        ("fetch", []),
        ("push", ["repo=", "private=", "dry_run=", "texts=", "license="]),
        ("audit inflation", ["cells=", "confidence=", "choose_seed="]),
        ("inject verify", ["cluster=", "format._target_="]),
        ("detect", []),
    ],
)
def test_the_words_of_a_command_that_hydra_does_not_know(name, words):
    assert cli.completions(read_commands()[name]) == words


@pytest.mark.parametrize(
    ("line", "following"),
    [
        ("contamination ", [*cli.PACKAGES, *cli.TOOLS, *cli.OTHERS]),
        ("contamination", [*cli.PACKAGES, *cli.TOOLS, *cli.OTHERS]),
        ("contamination list m", ["methods", "models"]),
        ("contamination list methods a", ["audits"]),
        ("contamination adopt kind=", ["kind=model", "kind=corpus"]),
        ("contamination check runs=x --", ["--prune", "--yes"]),
        ("contamination status --x", []),
        ("contamination nothing a", []),
        ("contamination plan po", ["power"]),
        ("contamination plan x", []),
    ],
)
def test_the_completions_of_a_command_line_are_printed(monkeypatch, capsys, line, following):
    monkeypatch.setenv("COMP_LINE", line)
    status, output, _ = call(monkeypatch, capsys, "-sc", "query=bash")
    assert (status, output.split()) == (0, following)


@pytest.mark.parametrize(
    ("line", "package", "arguments", "completed_line"),
    [
        ("contamination detect method=lo", "detection", [], "contamination method=lo"),
        ("contamination detect view x=1 vi", "detection", ["view"], "contamination x=1 vi"),
        (
            "contamination quickstart se", "launch", [],
            "contamination experiment=quickstart se",
        ),
        (
            "contamination audit inflation ce", "audits", [],
            "contamination audit=inflation ce",
        ),
        ("contamination fetch experiment=q", "launch", [], "contamination experiment=q"),
        ("contamination plan power pl", "launch", [], "contamination pl"),
        ("contamination launch -m se", "launch", [], "contamination -m se"),
    ],
)  # fmt: skip
def test_hydra_completes_the_overrides_of_a_stage(
    monkeypatch, capsys, line, package, arguments, completed_line
):
    calls = []
    monkeypatch.setattr(
        cli, "_run_package", lambda *args: calls.append((*args, os.environ["COMP_LINE"])) or 3
    )
    monkeypatch.setenv("COMP_LINE", line)
    assert call(monkeypatch, capsys, "-sc", "query=bash")[0] == 3
    assert calls == [(package, [*arguments, "-sc", "query=bash"], completed_line)]


@pytest.mark.parametrize(
    ("words", "package", "arguments"),
    [
        (["inject", "--model-url", "x"], "injection", ["model.url=x"]),
        (["train", "seed=1"], "training", ["seed=1"]),
        (["detect", "view", "--reference-key-env=K"], "detection", ["view", "reference.key_env=K"]),
        (["analyse", "law"], "analysis", ["law"]),
        (["launch", "-m", "seed=0,1"], "launch", ["-m", "seed=0,1"]),
        (["audit", "books", "--model-url=x"], "audits", ["books", "model.url=x"]),
        (["decontaminate", "a=b"], "injection", ["decontaminate", "a=b"]),
        (["quickstart", "seed=1"], "launch", ["experiment=quickstart", "seed=1"]),
        (["plan", "power", "plan.shift=1"], "launch", ["plan-power", "plan.shift=1"]),
        *(([tool, "x"], "launch", [tool, "x"]) for tool in cli.TOOLS),
    ],
)
def test_each_command_is_a_package_with_arguments(monkeypatch, capsys, words, package, arguments):
    calls = []
    monkeypatch.setattr(cli, "_run_package", lambda *args: calls.append(args) or 3)
    assert call(monkeypatch, capsys, *words)[0] == 3
    assert calls == [(package, arguments)]


@pytest.mark.parametrize(
    ("code", "status"), [("", 0), ("raise SystemExit(5)", 5), ("raise SystemExit('no')", 1)]
)
def test_a_packages_exit_status_is_the_commands(monkeypatch, code, status):
    calls = []

    def run_module(name, *, run_name, alter_sys):
        calls.append((name, run_name, alter_sys, sys.argv[1:]))
        exec(code)

    monkeypatch.setattr(cli.runpy, "run_module", run_module)
    monkeypatch.setattr(sys, "argv", ["contamination", "old"])
    assert cli._run_package("analysis", ["a", "b"]) == status
    assert calls == [("contamination.analysis", "__main__", True, ["a", "b"])]


def test_options_become_overrides():
    words = ["--model-key-env", "K", "--reference-url=", "--model-url", "--other-url", "--modelurl"]
    assert cli.parse_overrides(words) == [
        "model.key_env=K", "reference.url=", "model.url=--other-url", "--modelurl"
    ]  # fmt: skip
    assert cli.parse_overrides(["--model-url"]) == ["model.url="]
    assert cli.parse_overrides(["--model-url=a=b"]) == ["model.url=a=b"]


def test_a_list_has_a_title_and_a_line_for_each_choice(tmp_path, monkeypatch, capsys):
    files = {
        "audit/b.yaml": "# @package x\n# One (Shi et al. 2024)\n# of two. More.\na: 1\n# x\n",
        "audit/a.yaml": "# Short: more\n",
        "model/sub/c.yaml": "a: 1\n",
        "method/loss.yaml": "loss:\n  _target_: contamination.detection.methods.loss.Loss\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cli, "CONF", tmp_path)
    assert cli.format_choices(["audits"]).splitlines() == [
        "audits:", "  a  Short", "  b  One (Shi et al. 2024) of two"
    ]  # fmt: skip
    lines = [line.rstrip() for line in cli.format_choices(["models", "audits"]).splitlines()]
    assert lines[:4] == ["models:", "  sub/c", "", "audits:"]
    with pytest.raises(ConfigError) as raised:
        cli.format_choices(["audits", "x"])
    assert str(raised.value) == (
        "list x: no such kind. Known: audits, benchmarks, corpora, experiments, methods, models."
    )


def test_the_whole_help_of_the_lists_and_what_plan_needs(monkeypatch, capsys):
    assert "Usage:    contamination list [" in call(monkeypatch, capsys, "list", "--help")[1]
    for words in (["plan"], ["plan", "x"]):
        status, _, err = call(monkeypatch, capsys, *words)
        message = "error: contamination plan: say what to plan: contamination plan power …\n"
        assert (status, err) == (2, message)
    overview = call(monkeypatch, capsys)[1]
    for word in ("-h", "--help", "help"):
        assert call(monkeypatch, capsys, word)[:2] == (0, overview)


def launch(monkeypatch, capsys, *words):
    from contamination.launch.__main__ import main

    monkeypatch.setattr(sys, "argv", ["launch", *words])
    return main(), *capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adopt", "kin=model"], "kin: unknown field. Did you mean kind? Known: kind, path, runs."),
        (["adopt", "kind=x"], "kind is 'x': give one of model, corpus."),
        (
            ["adopt", "kind=model", "path=.", "runs=../runs"],
            "path is '.': it has neither manifest.json nor config.json. Give a Hugging Face folder "
            "(config.json, model.safetensors, tokenizer.json), or a finished model folder.",
        ),
        (
            ["adopt", "kind=model", "path=gone"],
            "path is 'gone': there is no such folder. A hub id needs none: give it as model.path.",
        ),
        (["adopt", "kind=model", "path=.", "runs="], "runs is '': give a folder that is not in"),
        (["report", "."], ". is not a launch's folder: give one of runs/launches/."),
        (
            ["status"],
            "runs is 'runs': no launch is there. Give the folder of a launch's artefacts "
            "(runs=DIR), or one of its runs/launches/.",
        ),
        (["status", "runs=gone", "--cost"], "runs is 'gone': no launch is there."),
        (
            [], "launch: there is nothing to run. Give an experiment, such as "
            "experiment=quickstart, or the fields that differ from conf/pipeline.yaml, such as "
            "corpus=news. `contamination list experiments` shows all experiments, and --help the "
            "main fields.",
        ),
    ],
)  # fmt: skip
def test_a_launch_command_that_can_not_run_says_why(monkeypatch, capsys, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    status, output, errors = launch(monkeypatch, capsys, *words)
    assert (status, output) == (2, "")
    assert errors.startswith(f"error: {message}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "config", "arguments"),
    [
        (["fetch", "seed=1"], "pipeline", ["seed=1", "~hydra.callbacks.sweep"]),
        (["plan-power", "plan.shift=1"], "plan_power", ["plan.shift=1"]),
        (["experiment=quickstart"], "pipeline", ["experiment=quickstart"]),
    ],
)
def test_hydra_runs_every_other_command(monkeypatch, capsys, words, config, arguments):
    from contamination.launch import __main__, downloads

    calls = []
    monkeypatch.setattr(__main__, "print_help_or_error", lambda name: calls.append(name))
    monkeypatch.setattr(
        __main__, "run_hydra_command", lambda *args: calls.append((*args, sys.argv[1:])) or 7
    )
    monkeypatch.setattr(__main__, "run_tool", lambda tool: 0)
    assert launch(monkeypatch, capsys, *words)[0] == 7
    name, (config_name, function, hydra_words) = calls
    assert (name, config_name, hydra_words) == ("launch", config, arguments)
    expected = {
        "fetch": downloads.fetch, "plan-power": __main__._print_power_plan,
        "experiment=quickstart": __main__._run_configured_cell,
    }  # fmt: skip
    assert function is expected[words[0]]


def test_a_report_hashes_as_its_launch_said(monkeypatch, tmp_path):
    from contamination.core import integrity
    from contamination.launch import __main__
    from contamination.launch import run as running
    from contamination.launch.cells import Launch
    from contamination.launch.saved_config import save_config

    policies, launches = [], []
    monkeypatch.setattr(integrity, "set_hash_policy", policies.append)
    monkeypatch.setattr(running, "report_on_launch", lambda launch: launches.append(launch) or 4)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "launches" / "one"
    (folder / "cells").mkdir(parents=True)
    for settings, policy in (({"verify": "all"}, "all"), ({}, "changed")):
        save_config(folder, {"name": "x", **settings}, tmp_path)
        assert __main__._report_on_folder(Path("launches/one")) == 4
        assert policies.pop() == policy
        assert launches.pop() == Launch(folder)


def test_the_worst_status_is_that_of_a_sweep(monkeypatch):
    from contamination.launch import __main__
    from contamination.launch import run as running

    monkeypatch.setattr(running, "conclude_sweep", lambda: 1)
    for code, status in ((0, 1), (1, 1), (2, 2), (130, 130), (143, 143)):
        monkeypatch.setattr(__main__, "run_hydra_command", lambda *_, own_status=code: own_status)
        assert __main__._run_launch() == status
