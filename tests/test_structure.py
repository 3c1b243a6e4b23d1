"""The measures of a code base, on a tree made up here."""

import pytest

from tests.structure import CodeBase, Import, measures, start_up

FILES = {
    "core/__init__.py": "",
    "core/errors.py": '"""Errors."""\n\nimport json\n\n\nclass Table:\n    pass\n',
    "core/upward.py": "def f():\n    from {}injection.run import run\n    return run\n",
    "injection/__init__.py": '"""Text."""\n',
    "injection/run.py": (
        "from {}core.errors import Table\nfrom {}injection import pack\n\n\n"
        "@property\ndef run():\n    found = [own for own in Table]\n    (rows, each) = 1, 2\n"
    ),
    "injection/pack.py": "import {}core.errors\nfrom . import run\n\n\nclass Table:\n    pass\n",
    "injection/late.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {}injection.later\n"
    ),
    "injection/later.py": "def f():\n    import {}injection.late\n    found: int = 1\n",
    "tests/test_it.py": "import core.errors\n",
    "perf/timing.py": "import core.errors\n",
}  # fmt: skip


@pytest.fixture(params=["", "contamination."])
def code(request, tmp_path):
    """The tree before and after its packages got one import name."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("{}", request.param))
    return CodeBase(tmp_path)


def test_tests_and_measuring_scripts_are_no_product(code):
    assert len(code.modules) == 8
    assert {module.layer for module in code.modules.values()} == {"core", "injection"}


def test_a_header_ends_at_the_first_definition_with_its_decorators(code):
    headers = {name: module.header_lines for name, module in code.modules.items()}
    assert headers["core.errors"] == 5
    assert headers["injection.run"] == 4
    assert headers["injection"] == 1  # it defines nothing
    assert headers["core.upward"] == 0


def test_imports_are_seen_however_they_are_written(code):
    assert Import("injection.pack", "injection.run", at_once=True) in code.imports
    assert Import("injection.pack", "core.errors", at_once=True) in code.imports
    assert Import("core.upward", "injection.run", at_once=False) in code.imports
    assert Import("injection.late", "injection.later", at_once=False) in code.imports


def test_modules_with_one_importer_are_named_with_it(code):
    assert code.single_importers() == {
        "injection.pack": "injection.run",
        "injection.late": "injection.later",
        "injection.later": "injection.late",
    }


def test_cycles_at_the_top_level_and_within_functions(code):
    assert code.cycles() == [["injection.pack", "injection.run"]]
    assert code.cycles(at_once=False) == [
        ["injection.late", "injection.later"],
        ["injection.pack", "injection.run"],
    ]


def test_an_import_of_a_higher_layer_is_seen_in_a_function(code):
    assert [(use.importer, use.imported) for use in code.upward()] == [
        ("core.upward", "injection.run")
    ]


def test_class_names_of_several_modules(code):
    assert code.repeated_class_names() == {"Table": ["core.errors", "injection.pack"]}


def test_local_names_are_counted_by_assignment(code):
    names = code.local_names()
    assert names == {"found": 2, "own": 1, "rows": 1, "each": 1}
    assert ("with an uninformative name", "4 (80.0%)") in measures(code)


def test_a_command_that_fails_to_start_is_said(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core/__init__.py").write_text("")
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch/__init__.py").write_text("raise ValueError\n")
    times = dict(start_up(tmp_path, repeats=1))
    assert times["import core"] < 5
    assert times["import launch"] is None
