"""Plants one small bug at a time and counts those that the quick tests beside it notice.

`make mutants` runs the groups of `[tool.mutants]` in pyproject.toml, `make mutants
ONLY="estimates training"` two of them. A stopped run resumes; where a group's tests
have changed it begins anew. A group is mutmut's work in `build/mutants/GROUP`, where
`mutmut results` lists the survivors and `mutmut show NAME` shows one.

A survivor is killed by a sharper test, or listed in `equivalent_mutants.txt` where no test could
tell. mutmut leaves out decorated functions and what stands outside of functions.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
ARGUMENTS = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"  # brackets in them are closed again
COLUMNS = ("mutants", "killed", "timeout", "survived", "equivalent", "no tests", "not run")


def main() -> None:
    """Runs the groups one after another, each in a process of its own, then prints the table."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutants"]
    parser = argparse.ArgumentParser(prog="tests.mutants")
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(groups)}; default: all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="only print what has run")
    parser.add_argument("--survivors", action="store_true", help="list them too")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := [name for name in given.groups if name not in groups]:
        parser.error(f"no group {', '.join(unknown)}: give some of {', '.join(groups)}")
    chosen = {name: groups[name] for name in given.groups or groups}
    if given.inside:
        return run(*chosen.values(), given.processes)
    for name in [] if given.table else chosen:
        print(f"\n{name}", flush=True)
        again = [sys.executable, __file__, name, "--inside", f"--processes={given.processes}"]
        subprocess.run(again, cwd=folder(name), env=environment(name), check=True)
    print_table({name: group["mutate"] for name, group in chosen.items()}, given.survivors)


def folder(name: str) -> Path:
    """A group's folder, which shows the repository by links."""
    shutil.rmtree(RUNS / name / "tmp", ignore_errors=True)
    (RUNS / name / "tmp").mkdir(parents=True)
    for path in ROOT.iterdir():
        link = RUNS / name / path.name
        if not path.name.startswith((".", "build", "runs")) and not link.is_symlink():
            link.symlink_to(path)
    return RUNS / name


def environment(name: str) -> dict[str, str]:
    """One thread, since threads don't survive a fork; temporary folders where they're removed."""
    one = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"], "1")
    return {**os.environ, **one, "PYTEST_DEBUG_TEMPROOT": str(RUNS / name / "tmp")}


def run(group: dict[str, list[str]], processes: int) -> None:
    """Runs what is left of a group, in its folder; quick tests first."""
    from mutmut import __main__ as mutmut
    from mutmut import configuration
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state

    configuration._config = dataclasses.replace(
        configuration.config(),
        only_mutate=group["mutate"],
        pytest_add_cli_args_test_selection=group["tests"],
    )
    in_any_order, alone = PytestRunner.run_tests, PytestRunner.execute_pytest

    def run_tests(self, *, mutant_name, tests):
        tests = sorted(tests, key=lambda test: state().duration_by_test.get(test, 0))
        return in_any_order(self, mutant_name=mutant_name, tests=tests)

    def execute_pytest(self, params, plugins=()):
        return alone(self, params, plugins=[SharedSetups(state()._stats), *plugins])

    PytestRunner.run_tests, PytestRunner.execute_pytest = run_tests, execute_pytest
    forget_results(group["tests"])
    mutmut._run([], processes)


class SharedSetups:
    """What the setup of a shared fixture calls is called by every test that uses it."""

    def __init__(self, called: set[str]) -> None:
        self.called, self.by_fixture = called, defaultdict(set)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        before = self.called.copy()
        self.called.clear()
        try:
            return (yield)
        finally:
            self.by_fixture[fixturedef.argname] |= self.called
            self.called |= before

    def pytest_runtest_call(self, item):
        self.called.update(*(self.by_fixture[name] for name in item.fixturenames))


def forget_results(tests: list[str]) -> None:
    """Where the tests, or the helpers beside and above them, aren't the last run's."""
    from mutmut.__main__ import _reset_mutant_results

    digest, last = digest_of(tests), Path("tests.sha256")
    if not last.exists() or last.read_text() != digest:
        Path("mutants/mutmut-stats.json").unlink(missing_ok=True)
        _reset_mutant_results(lambda *_: True)
        last.write_text(digest)


def digest_of(tests: list[str]) -> str:
    """A hash of the selection, its files, and the helpers in their folders up to `tests`."""
    named = {Path(test.partition("::")[0]) for test in tests if test[0] != "-"}
    folders = {folder for file in named for folder in file.parents if folder.name}
    helpers = {file for folder in folders for file in folder.glob("*.py")}
    files = named | {file for file in helpers if not file.name.startswith("test_")}
    words = [json.dumps(tests).encode(), *(file.read_bytes() for file in sorted(files))]
    return hashlib.sha256(b"".join(words)).hexdigest()


def print_table(groups: dict[str, list[str]], survivors: bool) -> None:
    """A line a module; "noticed" is the share of those that ran and are not equivalent."""
    equivalent, whole, unused = listed(), Counter(), set()
    anywhere = {entry for entry in equivalent if entry[0] == "*"}
    print(f"\n{'':36}" + "".join(f"{column:>11}" for column in (*COLUMNS, "noticed")))
    for name, patterns in groups.items():
        os.chdir(RUNS / name)
        metas = [meta for each in patterns for meta in Path("mutants").glob(f"{each}.meta")]
        for module in sorted(meta.relative_to("mutants").with_suffix("") for meta in metas):
            alive = Counter(survivors_of(module))
            counts = count(module)
            mine = {entry for entry in equivalent if entry[0] == str(module)}
            mine |= {entry for entry in alive if any(fits(entry[2], each[2]) for each in anywhere)}
            counts["equivalent"] = sum(alive[entry] for entry in mine)
            counts["survived"] -= counts["equivalent"]
            print_line(str(module), counts)
            whole += counts
            unused |= mine - set(alive)
            for entry in alive if survivors else []:
                if entry not in mine:
                    print("   ", *entry[1:], sep=" | ")
    print_line("all", whole)
    for entry in sorted(unused):
        print("Listed as equivalent, but did not survive:", *entry, sep=" | ")


def count(module: Path) -> Counter[str]:
    """How many mutants of a module ended how."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.stats import status_by_exit_code

    data = SourceFileMutationData(path=module)
    data.load()
    called = {"not checked": "not run", "segfault": "timeout"}  # SIGKILL comes after SIGXCPU
    ends = [status_by_exit_code[code] for code in data.exit_code_by_key.values()]
    return Counter({"mutants": len(ends)}) + Counter(called.get(end, end) for end in ends)


def print_line(module: str, counts: Counter[str]) -> None:
    """The counts, and the share noticed."""
    noticed = counts["killed"] + counts["timeout"]
    told = noticed + counts["survived"] + counts["no tests"]
    share = f"{noticed / told:.1%}" if told else "–"
    print(f"{module:36}" + "".join(f"{counts[column]:>11}" for column in COLUMNS) + f"{share:>11}")


def survivors_of(module: Path) -> list[tuple[str, str, str]]:
    """Of each survivor: module, function, and the lines that the mutant has instead."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.utils.format_utils import orig_function_and_class_names_from_key as names

    data = SourceFileMutationData(path=module)
    data.load()
    found = []
    for mutant in (mutant for mutant, code in data.exit_code_by_key.items() if code == 0):
        lines = get_diff_for_mutant(mutant, path=module).splitlines()[2:]
        new = [line[1:].strip() for line in lines if line[0] == "+"]
        old = [line[1:].strip() for line in lines if line[0] == "-"]
        function, owner = names(mutant)
        where = f"{owner}.{function}" if owner else function
        found.append(
            (
                str(module),
                where,
                " ".join(new) if len(new) == len(old) else "without " + " ".join(old),
            )
        )
    return found


def fits(line: str, pattern: str) -> bool:
    """Whether a mutant's line holds a pattern; an asterisk is a call's other arguments."""
    return re.search(ARGUMENTS.join(map(re.escape, pattern.split("*"))), line) is not None


def listed() -> set[tuple[str, str, str]]:
    """The survivors that `equivalent_mutants.txt` gives a reason for."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and line[0] != "#"]
    return {tuple(line.rpartition(" | ")[0].split(" | ", 2)) for line in lines}


if __name__ == "__main__":
    main()
