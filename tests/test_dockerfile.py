"""The container's recipe: what goes into it, who runs in it, and that the linter agrees."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TEXT = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
STEPS = [tuple(line.split(maxsplit=1)) for line in TEXT.splitlines() if line.strip()]
ARGUMENTS = dict(value.split("=", 1) for name, value in STEPS if name == "ARG")
IGNORED, *CONTEXT = [
    line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"
]
NEEDED = [line[1:].rstrip("/") for line in CONTEXT if line.startswith("!")]


def test_it_runs_the_command_as_a_normal_user():
    last = {name: value for name, value in STEPS}
    assert json.loads(last["ENTRYPOINT"]) == ["contamination"]
    assert int(last["USER"]) > 999
    assert STEPS[-1][0] == "CMD"


def test_its_arguments_are_the_projects_and_are_documented():
    page = (ROOT / "docs" / "docker.md").read_text()
    assert all(f"`{name}={value}`" in page for name, value in ARGUMENTS.items())
    assert ARGUMENTS["EXTRAS"] in PYPROJECT["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text()
    assert f"TORCH_VERSION ?= {ARGUMENTS['TORCH_VERSION']}\n" in makefile
    assert f"TORCH_INDEX := {ARGUMENTS['TORCH_INDEX']}\n" in makefile
    assert STEPS[1] == ("FROM", "${BASE} AS python")


def test_only_what_the_wheel_is_built_from_is_sent_to_the_builder():
    assert IGNORED == "*"
    folders = set(PYPROJECT["tool"]["setuptools"]["package-dir"].values())
    assert {*NEEDED} == {*folders, "pyproject.toml", "README.md", "LICENSE"}


@pytest.mark.slow
def test_the_wheel_is_built_from_that_alone(tmp_path):
    pytest.importorskip("setuptools", "77", reason="the wheel is built by setuptools")
    (step,) = [value for name, value in STEPS if name == "RUN" and "pip wheel" in value]
    words = step.replace("/wheel ", f"{tmp_path}/wheel ").split()
    context = tmp_path / "src"
    context.mkdir()
    for name in NEEDED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, context / name)
    call = [sys.executable, "-m", *words, "--no-build-isolation"]
    subprocess.run(call, cwd=context, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheel").iterdir()
    names = {*zipfile.ZipFile(wheel).namelist()}
    assert {"contamination/launch/cli.py", "contamination/conf/pipeline.yaml"} <= names


def test_the_linter_has_no_complaint():
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(["hadolint", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
