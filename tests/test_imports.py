"""Who may import whom: a room imports itself and the floors below it, within functions as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]
FLOORS = {
    "": ("core", "injection", "training", "detection", "analysis", "launch"),
    "detection.": (
        *(
            "config passes texts",
            "prefix_texts blind_classifiers rows beginnings clusters",
            "benchmarks style",
            "examples methods model store blind",
            "neighbors",
        ),
        *("ranks resources build overlap matching", "forward", "views", "flags scope"),
        *("scores loaded", "collect", "needs evaluation", "summary", "export benchmark_summary"),
        "accuracy building thresholds view",
        *("run online probe arguments extraction", "api dry_run audits", "__init__ __main__"),
    ),
    "analysis.": (
        *("config conditions folder glossary two_stages", "cells training_record examples"),
        "methods facts",
        *("statistics", "sweeps direction", "tables summary", "findings headline", "charts"),
        "page mirror report",
        *("publish", "run", "__init__ __main__"),
    ),
}
"""What names begin with → the rooms, the lowest floor first; those of one floor stand apart."""


def imported(file: Path, home: Path) -> Iterator[str]:
    """All names that a file imports, with dots: also relative ones, and those loaded by a text."""
    package = file.relative_to(home).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            whole = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{whole}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in LOADERS:
            yield from (one.value for one in node.args if isinstance(one, ast.Constant))


LOADERS = ("import_module", "__import__", "run_module", "get_class", "instantiate")


def upward(home: Path, prefix: str) -> Iterator[str]:
    """The imports of a room that is on no lower floor, or on none."""
    floor = {room: n for n, rooms in enumerate(FLOORS[prefix]) for room in rooms.split()}
    place = home / prefix.rstrip(".")
    for room, own in floor.items():
        for file in sorted([*place.glob(f"{room}.py"), *place.glob(f"{room}/**/*.py")]):
            for name in imported(file, home):
                other = name.removeprefix(prefix).partition(".")[0]
                ours = name.startswith(prefix) if prefix else other in {*floor, "tests"}
                if prefix and name == prefix.rstrip("."):
                    yield f"{file.relative_to(home)} imports all of {name}: name the room"
                if ours and other != room and floor.get(other, len(floor)) >= own:
                    yield f"{file.relative_to(home)} imports {name}"


@pytest.mark.parametrize("prefix", FLOORS)
def test_rooms_import_lower_floors_only(prefix):
    assert [*upward(HOME, prefix)] == []


@pytest.mark.parametrize("prefix", [prefix for prefix in FLOORS if prefix])
def test_every_room_is_on_a_floor(prefix):
    rooms = {p.stem for p in (HOME / prefix.rstrip(".")).iterdir() if p.name != "__pycache__"}
    assert rooms == {room for rooms in FLOORS[prefix] for room in rooms.split()}


def test_an_import_upward_is_seen_wherever_it_stands(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core/a.py").write_text("import json\n\ndef f():\n    from launch import run\n")
    assert [*upward(tmp_path, "")] == ["core/a.py imports launch.run"]


PLANTED = [
    "from ..forward import batches",
    "from .. import run",
    "import detection",
    "import detection.run as r",
    "def f():\n    from detection import run",
    "import importlib\nimportlib.import_module('detection.run')",
    "__import__('detection.run')",
]


@pytest.mark.parametrize("line", PLANTED)
def test_a_forbidden_import_is_seen_however_it_is_written(tmp_path, line):
    room = tmp_path / "detection" / "model"
    room.mkdir(parents=True)
    (room / "planted.py").write_text(f"{line}\n")
    (found,) = upward(tmp_path, "detection.")
    assert found.startswith("detection/model/planted.py imports ")


@pytest.mark.parametrize(
    "line", ["from .. import launch", "import launch.run", "import tests.small"]
)
def test_a_package_above_is_seen_too(tmp_path, line):
    (tmp_path / "core" / "rewording").mkdir(parents=True)
    (tmp_path / "core" / "rewording" / "planted.py").write_text(f"{line.replace('..', '...')}\n")
    (found,) = upward(tmp_path, "")
    assert found.startswith("core/rewording/planted.py imports ")
