"""Mutants are changed copies of a module that a fork imports; the table counts them once."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import mutants

MODULE = "core/statistics/metrics.py"


def test_drawn_mutants_are_different_changes_of_one_place():
    pytest.importorskip("mutmut", reason="mutmut is not installed")
    source = (mutants.ROOT / MODULE).read_text()
    drawn = mutants.draw(MODULE, 12, seed=1)
    assert len({mutant.key for mutant in drawn}) == 12
    for mutant in drawn:
        ast.parse(mutant.code)
        assert mutant.code.splitlines()[: mutant.line - 1] == source.splitlines()[: mutant.line - 1]
        assert mutant.code.splitlines()[mutant.line - 1] != source.splitlines()[mutant.line - 1]
        assert f"def {mutant.function.rpartition('.')[2]}(" in source
    assert mutants.draw(MODULE, 12, seed=1) == drawn
    assert mutants.draw(MODULE, 12, seed=2) != drawn


def test_the_mutated_module_is_imported_and_no_other_and_no_file_is_changed():
    source = (mutants.ROOT / MODULE).read_text()
    program = f"""
import sys
from pathlib import Path
from tests.mutants import MutantFinder
code = Path({MODULE!r}).read_text() + "\\nMUTATED = True\\n"
sys.meta_path.insert(0, MutantFinder({MODULE!r}, code))
from contamination.core.statistics import bootstrap, metrics
print(metrics.MUTATED, hasattr(bootstrap, "MUTATED"), Path(metrics.__file__).resolve())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=mutants.ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False", str((mutants.ROOT / MODULE).resolve())]
    assert (mutants.ROOT / MODULE).read_text() == source


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a\nb\nc", "a\nB\nc", (2, "B")),
        ("a\nb\nb\nc", "a\nb\nc", (3, "without b")),
        ("a\nb\nc", "a\n  x\n  y\nc", (2, "x y")),
        ("a", "a", (0, "")),
    ],
)
def test_a_mutant_is_named_by_its_first_line_and_what_it_has_instead(old, new, expected):
    assert mutants._difference(old.splitlines(), new.splitlines()) == expected


def test_the_table_counts_the_last_result_of_todays_code(tmp_path, monkeypatch, capsys):
    now = mutants.digest((mutants.ROOT / MODULE).read_text())
    row = {"module": MODULE, "function": "f", "line": 3, "seconds": 1.0, "tests": 2}
    rows = [
        {"key": "a", "source": now, "new": "x = 1", "outcome": "survived", **row},
        {"key": "b", "source": now, "new": "y = zip(a, strict=None)", "outcome": "survived", **row},
        {"key": "c", "source": now, "new": "z", "outcome": "timeout", **row},
        {"key": "d", "source": "another", "new": "z", "outcome": "survived", **row},
        {"key": "a", "source": now, "new": "x = 1", "outcome": "noticed", **row},
        {"key": "e", "source": now, "new": "w = 2", "outcome": "survived", **row},
    ]
    results: Path = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(each) + "\n" for each in rows))
    listed = tmp_path / "equivalent.txt"
    listed.write_text("# why\n* | * | zip(*, strict=None) | the same\n")
    monkeypatch.setattr(mutants, "RESULTS", results)
    monkeypatch.setattr(mutants, "EQUIVALENT", listed)
    mutants.print_table([MODULE], survivors=True)
    header, survivor, line, whole = capsys.readouterr().out.splitlines()
    assert header.split() == [*" ".join(mutants.COLUMNS).split(), "share"]
    assert survivor.strip() == f"{MODULE}:3 | f | w = 2"
    assert line.split() == [MODULE, "4", "1", "1", "1", "1", "0", "66.7%"]
    assert whole.split() == ["all", *line.split()[1:]]
