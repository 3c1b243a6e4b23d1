"""The saved view: its charts read the keys that the mirror writes."""

from dataclasses import fields

import pandas as pd
import pytest

from contamination.analysis.__main__ import run_named_tool
from contamination.analysis.cells import Cell
from contamination.analysis.wandb import keys
from contamination.analysis.wandb.view import WandbViewConfig, build_view, save_view
from contamination.core.errors import ConfigError
from tests.forks import run_in_fork

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the library's own


def panels(workspace):
    return {panel.title: panel for section in workspace.sections for panel in section.panels}


def test_charts_read_what_the_mirror_writes():
    pytest.importorskip("wandb_workspaces")
    config = WandbViewConfig("p", "me", "learning_rate", ["loss", "min_k"])
    found = panels(build_view(config, "me"))
    rows = [
        {"checkpoint": c, "benchmark": "all", "method": m, "variant": "", "default": True,
         "occurrences": o, "metric": "auroc", "value": 0.5, "ci_low": 0.4, "ci_high": 0.6,
         "needs": "", "p_control": float("nan"), "n_members": 9, "n_nonmembers": 9}
        for c, o in (("contaminated", "any"), ("contaminated", "2"), ("clean", "any"))
        for m in ("loss", "min_k", *(["blind"] if c == "clean" else []))
    ]  # fmt: skip
    results = pd.DataFrame(rows)
    summary, (curve,) = keys.summary_values(results), keys.occurrences_history_rows(results)
    by_occurrences = found["auroc by occurrences"]
    assert {by_occurrences.x, *by_occurrences.y} <= set(curve)
    swept = found["auroc/loss/all by mean occurrences of a member"].x.name
    assert swept.removeprefix("cell.") in {field.name for field in fields(Cell)}
    read = {panel.y.name for title, panel in found.items() if "by peak learning rate" in title}
    assert read == {
        "auroc/loss/all", "auroc/min_k/all", "clean/auroc/loss/all", "clean/auroc/min_k/all",
        "clean/auroc/blind/all",
    }  # fmt: skip
    assert read <= set(summary)
    view = build_view(config, "me")
    assert view.name == "Contamination: learning_rate"
    assert view._to_model().entity == "me"
    assert {section.name: section.is_open for section in view.sections} == {
        "Sweeps": True, "Controls: 0.5 is expected": True,
    }  # fmt: skip


def test_the_command_names_its_own_field():
    done = run_in_fork(run_named_tool, "analysis", "wandb-view", "methods=[]")
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr == "error: methods is []: name at least one.\n"


def test_nobody_logged_in_is_said(monkeypatch):
    monkeypatch.setattr("wandb.login", lambda **_: False)
    with pytest.raises(ConfigError, match="project is 'contamination-testbed': run `wandb login`"):
        save_view(WandbViewConfig())
    with pytest.raises(ConfigError, match="methods is ..: name at least one"):
        save_view(WandbViewConfig(methods=[]))
