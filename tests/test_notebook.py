"""The tutorial's notebook is what its page gives, and each cell of it runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contamination.core.errors import DataError
from perf.notebook import NOTEBOOK, PAGE, format_notebook, make_notebook

ROOT = Path(__file__).resolve().parents[1]


def code_of(notebook):
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def test_it_is_made_from_the_page():
    """`python -m perf.notebook` writes it again. This needs no package of the extra notebook."""
    assert NOTEBOOK.read_text() == format_notebook(make_notebook(PAGE.read_text()))
    with pytest.raises(DataError, match="has no 'print.model.'"):
        make_notebook(PAGE.read_text().replace("print(model)", ""))


def test_it_is_written_as_nbformat_writes_it():
    nbformat = pytest.importorskip("nbformat", reason="the extra notebook is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert nbformat.writes(notebook).rstrip("\n") + "\n" == NOTEBOOK.read_text()


def test_every_block_of_code_of_the_page_is_a_cell():
    page, notebook = PAGE.read_text(), json.loads(NOTEBOOK.read_text())
    cells = code_of(notebook)
    assert len(cells) == len(re.findall(r"^```(?:python)?\n\w", page, re.M))
    assert not [cell for cell in cells if re.search("python -m|make |=MODEL", cell)]
    texts = "".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] != "code")
    assert "Put the path that the script printed" not in texts
    assert 'Never "not contaminated"' in texts


@pytest.mark.slow
def test_every_cell_runs(tmp_path):
    pytest.importorskip("nbclient", reason="the extra notebook is not installed")
    pytest.importorskip("ipykernel", reason="the extra notebook is not installed")
    out = tmp_path / "out.ipynb"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-m", "perf.notebook", "run", f"out={out}"]
    done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = [cell for cell in json.loads(out.read_text())["cells"] if cell["cell_type"] == "code"]
    printed = ["".join("".join(o.get("text", "")) for o in c["outputs"]) for c in cells]
    assert sum("env: MODEL=runs/model/" in text for text in printed) == 1
    assert any("texts: 100 members, 100 non-members" in text for text in printed)
    assert re.search(r"8\.0 +0\.\d+", printed[-1])
