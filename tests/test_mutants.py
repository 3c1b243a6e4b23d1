"""Mutants are changed copies of a module that a fork imports; the table counts them once."""

import ast
import json
import os
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
    row["noticed_by"] = ""
    by_failing = {**row, "noticed_by": "x::fails_without_a_mutant"}
    rows = [
        {"key": "a", "source": now, "new": "x = 1", "outcome": "survived", **row},
        {"key": "b", "source": now, "new": "y = zip(a, strict=None)", "outcome": "survived", **row},
        {"key": "c", "source": now, "new": "z", "outcome": "timeout", **row},
        {"key": "d", "source": "another", "new": "z", "outcome": "survived", **row},
        {"key": "a", "source": now, "new": "x = 1", "outcome": "noticed", **row},
        {"key": "e", "source": now, "new": "w = 2", "outcome": "survived", **row},
        {"key": "f", "source": now, "new": "v = 3", "outcome": "noticed", **by_failing},
    ]
    monkeypatch.setattr(mutants, "DURATIONS", tmp_path / "durations.json")
    mutants.DURATIONS.write_text(json.dumps({"x::passes": 1.0}))
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


def test_the_lines_of_a_statement_are_those_that_python_may_trace():
    source = """\
@cache
def scale(
    values,
    by=2,
):
    total = sum(
        value * by
        for value in values
    )
    if (total
            > 3):
        return 0
    return total
"""
    assert mutants.statement_lines(source, 7) == {6, 7, 8, 9}
    assert mutants.statement_lines(source, 11) == {10, 11}
    assert mutants.statement_lines(source, 12) == {12}
    assert mutants.statement_lines(source, 13) == {13}
    # The head of a function and its decorators run at import: what calls it can notice.
    assert mutants.statement_lines(source, 1) == set(range(6, 14))
    assert mutants.statement_lines(source, 4) == set(range(6, 14))


def test_the_tests_of_a_line_are_chosen_nearest_first_and_share_what_a_fixture_ran(
    tmp_path, monkeypatch
):
    coverage = pytest.importorskip("coverage", reason="coverage is not installed")
    monkeypatch.setattr(mutants, "COVERAGE", tmp_path / "coverage")
    monkeypatch.setattr(mutants, "DURATIONS", tmp_path / "durations.json")
    source = (mutants.ROOT / MODULE).read_text()
    name, function = next(iter(mutants.functions(source).items()))
    first, last = function.body[-1].lineno, function.lineno
    near, far = "tests/core/statistics/test_metrics.py", "tests/launch/test_cells.py"
    data = coverage.CoverageData(basename=str(mutants.COVERAGE))
    for context in (f"{near}::test_a|run", f"{far}::test_b|setup", "tests/gone.py::test_c|run"):
        data.set_context(context)
        data.add_lines({str(mutants.ROOT / MODULE): [first]})
    data.write()
    seconds = {f"{near}::test_a": 2.0, f"{far}::test_b": 1.0, f"{far}::test_d": 0.5, "x::y": 0.1}
    mutants.DURATIONS.write_text(json.dumps(seconds))
    mutant = mutants.Mutant(MODULE, "", name, last, "", "")
    chosen = [f"{near}::test_a", f"{far}::test_d", f"{far}::test_b"]
    assert mutants.CoveringTests().choose(mutant) == chosen
    monkeypatch.setattr(mutants, "MOST_FILES", 1)
    assert mutants.CoveringTests().choose(mutant) == chosen[:1]
    monkeypatch.setattr(mutants, "MOST_FILES", 2)
    monkeypatch.setattr(mutants, "MOST_SECONDS", 2.6)
    assert mutants.CoveringTests().choose(mutant) == chosen[:2]


def test_a_stopped_run_leaves_no_fork(tmp_path):
    program = f"""
import os, sys, time
from pathlib import Path
from tests import mutants

def fork(mutant, tests, folder):
    pid = os.fork()
    if not pid:
        os.setsid()
        time.sleep(30)
        os._exit(0)
    Path({str(tmp_path / "pid")!r}).write_text(str(pid))
    return pid

mutants.fork = fork
mutants._ended = lambda jobs: (_ for _ in ()).throw(KeyboardInterrupt)
mutants.run_all([(None, ["test"])], {{"test": 1.0}}, 1)
"""
    with (tmp_path / "errors").open("w") as errors:
        subprocess.run([sys.executable, "-c", program], cwd=mutants.ROOT, stderr=errors)
    assert "KeyboardInterrupt" in (tmp_path / "errors").read_text()
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_test_that_fails_without_a_mutant_is_not_used_again(tmp_path, monkeypatch):
    for name in ("DURATIONS", "CHECKED", "RESULTS"):
        monkeypatch.setattr(mutants, name, tmp_path / name)
    mutants.DURATIONS.write_text(json.dumps({"x::a": 1.0, "x::b": 1.0, "x::c": 1.0}))
    rows = [{"key": key, "noticed_by": f"x::{key}" if key else ""} for key in ("a", "b", "")]
    mutants.RESULTS.write_text("\n".join(map(json.dumps, rows)))
    ran = []
    monkeypatch.setattr(
        mutants, "failing_without_mutant", lambda tests, _: ran.extend(tests) or {"x::b"}
    )
    assert mutants.drop_failing_tests(2)
    assert sorted(ran) == ["x::a", "x::b"]
    assert {*mutants.read_results()} == {"a", ""}
    assert not mutants.drop_failing_tests(2)
    assert len(ran) == 2  # each is checked once
    assert json.loads(mutants.DURATIONS.read_text()) == {"x::a": 1.0, "x::c": 1.0}


@pytest.mark.parametrize(
    ("code", "output", "outcome"),
    [
        (4, "ImportError while loading conftest '/x/conftest.py'.\n", "noticed"),
        (4, "___ ERROR collecting tests/test_a.py ___\nERROR: found no collectors", "noticed"),
        (4, "ERROR: not found: /x/test_a.py::test_b\n", None),
        (0, "", "survived"),
        (1, "", "noticed"),
        (70, "", None),
    ],
)
def test_what_cannot_be_imported_is_noticed_and_an_unknown_test_is_no_result(code, output, outcome):
    assert mutants.outcome_of(code, output) == outcome


def test_the_failed_tests_are_those_that_pytest_lists():
    output = "FAILED x::a[1 - 2] - assert 1\nERROR x::b\n1 failed FAILED x::c\n"
    tests = ["x::a", "x::a[1 - 2]", "x::b", "x::c"]
    assert mutants.failed_tests(output, tests) == {"x::a[1 - 2]", "x::b"}


def test_every_listed_change_is_of_a_function_that_exists():
    assert mutants.obsolete(mutants.listed()) == []
    gone = (MODULE, "no_such_function", "x = 1")
    assert mutants.obsolete([gone, ("*", "*", "x"), ("no/module.py", "f", "y")]) == [
        gone,
        ("no/module.py", "f", "y"),
    ]
