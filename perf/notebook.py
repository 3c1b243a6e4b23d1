"""docs/tutorial.ipynb: made from docs/tutorial.md, and run.

    python -m perf.notebook
    python -m perf.notebook check
    python -m perf.notebook run [out=FILE]

The first writes the notebook. The second exits with 1 unless the stored notebook is what the page
gives. The third runs every cell in an empty folder, which is removed afterwards, and writes the
notebook with its output to `out`; it takes a few minutes on two cores.

Commands (blocks without a language) and blocks of Python become code cells; everything else is
text, except what is between the two marks.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contamination.core.cli import run_tool
from contamination.core.errors import DataError

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"
LEFT_OUT = re.compile(r"<!-- notebook: leave out -->\n.*?<!-- notebook: end -->\n+", re.S)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)
CELL_SECONDS = 1800
"""The longest that a cell may take on a busy machine."""
ABOUT = """\
**About this notebook.** It is made from [tutorial.md](tutorial.md) by `python -m perf.notebook`.
Its commands are those of the installed package, with fewer tokens than on that page, so that all of
it runs in a few minutes on two cores: the figures below a command differ from those in the text. It
needs `pip install '.[embedded,notebook]'` and writes into the folder in which it runs: copy it into
an empty one.
"""
BASE = "model.pretraining.budget_tokens=300_000"
CHANGES = {
    "make quickstart": f"contamination quickstart {BASE} injection.budget_tokens=300_000",
    "embedded-study-600000": "embedded-study-300000",
    "print(model)": "%env MODEL={model}",
    "path=MODEL": 'path="$MODEL"',
    "python -m detection": "contamination detect",
    "python -m launch": "contamination launch",
    "python -m audits": "contamination audit",
    "8 injection.budget_tokens=300_000": f"8 injection.budget_tokens=200_000 \\\n    {BASE}",
}
"""What is replaced in the code."""


def make_notebook(page: str) -> dict[str, Any]:
    """The notebook of a page in Markdown, as JSON (nbformat 4.5, without needing its package).

    Raises:
        DataError: the page lacks something that is to be replaced.
    """
    if missing := [old for old in CHANGES if old not in page]:
        raise DataError(f"{PAGE.name} has no {missing[0]!r}: correct CHANGES in perf/notebook.py.")
    cells = [*_iter_cells(LEFT_OUT.sub("", page))]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": spec, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _text_cell(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code_cell(code: str) -> dict[str, Any]:
    cell = {**_text_cell(code), "cell_type": "code"}
    return {**cell, "execution_count": None, "outputs": []}


def _iter_cells(page: str) -> Iterator[dict[str, Any]]:
    title, _, page = page.partition("\n\n")
    yield _text_cell(title)
    yield _text_cell(ABOUT.rstrip())
    text, end = "", 0
    for block in BLOCK.finditer(page):
        text += page[end : block.start()]
        end = block.end()
        language, code = block.groups()
        if language not in ("", "python"):
            text += block[0]
            continue
        if text.strip():
            yield _text_cell(text.strip())
        text = ""
        yield _code_cell(_change_code(code.rstrip(), is_command=not language))
    yield _text_cell((text + page[end:]).strip())


def _change_code(code: str, *, is_command: bool) -> str:
    for old, new in CHANGES.items():
        code = code.replace(old, new)
    return f"%%bash\n{code}" if is_command else code


def format_notebook(notebook: dict[str, Any]) -> str:
    """The notebook as the text of a file, as nbformat writes it."""
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def run_notebook(text: str) -> str:
    """The text of a notebook with its output, after every cell was run in an empty folder.

    Raises:
        DataError: a cell fails; its error is part of the message.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    notebook = nbformat.reads(text, as_version=4)
    # the commands are those of this Python's environment
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(
            notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError) as error:
            raise DataError(f"{NOTEBOOK.name}: {error}") from error
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def main() -> int:
    """Writes, compare or runs the notebook."""
    notebook = make_notebook(PAGE.read_text())
    text = format_notebook(notebook)
    match sys.argv[1:]:
        case []:
            NOTEBOOK.write_text(text)
        case ["check"]:
            if NOTEBOOK.read_text() != text:
                print(f"{NOTEBOOK} is not what {PAGE.name} gives: run python -m perf.notebook.")
                return 1
        case ["run", *out] if len(out) < 2:
            output = run_notebook(text)
            for word in out:
                Path(word.removeprefix("out=")).write_text(output)
            print(f"{len(notebook['cells'])} cells, {NOTEBOOK.name}: all code ran")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
