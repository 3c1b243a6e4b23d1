"""The files that tools around the project read: CI, pre-commit, templates, citation."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name):
    return yaml.safe_load((ROOT / name).read_text())


def test_the_workflow_runs_what_a_user_runs():
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    least = PROJECT["requires-python"].removeprefix(">=")
    assert least in job["strategy"]["matrix"]["python-version"]


def test_the_hooks_run_what_make_check_runs():
    target = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    commands = [line.strip().replace("$(RUN) ", "") for line in target[1].splitlines()]
    hooks = "\n".join(
        hook["entry"] for hook in read(".pre-commit-config.yaml")["repos"][0]["hooks"]
    )
    hooks = hooks.replace(".venv/bin/python -m ", "")
    assert commands
    for command in commands:
        assert command.removesuffix(" .") in hooks


def test_the_citation_is_of_this_version():
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["title"] == PROJECT["name"]


@pytest.mark.parametrize("name", ["bug", "feature", "method"])
def test_each_template_asks_with_labels(name):
    template = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= {*template}
    asked = [part for part in template["body"] if part["type"] != "markdown"]
    assert all(part["id"] and part["attributes"]["label"] for part in asked)


def test_the_changelog_has_the_sections_of_keep_a_changelog():
    sections = re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert {*sections} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
