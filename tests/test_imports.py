"""Which package may import which: a package imports itself and lower ones, and no modules cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure import CodeBase


@pytest.fixture(scope="module")
def code():
    """Not at import: each process of a suite imports all tests."""
    return CodeBase(Path(__file__).resolve().parents[1])


def test_packages_import_lower_packages_only(code):
    assert code.upward() == []


def test_no_modules_import_one_another(code):
    assert code.cycles() == []


def test_product_code_has_one_import_name(code):
    others = {
        f"{module.name} imports {name}"
        for module in code.modules.values()
        for name in module.absolute_imports
        if name.partition(".")[0] in {*code.layers, "tests", "perf"}
    }
    assert others == set()


@pytest.mark.parametrize(
    "line",
    ["from contamination.launch import run", "import contamination.launch.run",
     "def f():\n    from contamination.launch import run", "from ..launch import run"],
)  # fmt: skip
def test_an_import_upward_is_seen_wherever_it_stands(tmp_path, line):
    for file in ("core/planted.py", "launch/run.py"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(f"{line}\n" if "core" in file else "")
    (use,) = CodeBase(tmp_path).upward()
    assert (use.importer, use.imported) == ("core.planted", "launch.run")
