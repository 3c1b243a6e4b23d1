"""The command `contamination`: its sub-commands, lists, options and suggestions."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from contamination.core.commands import read_commands
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
