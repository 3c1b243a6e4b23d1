"""Plants one small bug at a time in each module and counts those that the default suite notices.

`make mutants` draws bugs for every module, `make mutants ONLY="core/statistics audits"` for some:

1. The default suite runs once with coverage.py, which records the tests that run each line.
2. mutmut's operators list the mutants of each module, and a seed draws `--per-module` of them.
3. Each mutant runs in a fork that has imported the libraries but nothing of the project. The import
   of the mutated module compiles the mutant; no file is changed. The tests that run its line, those
   of its own package first, stop at the first that fails.
4. The tests that failed run once more without a mutant. One that fails then too notices nothing: it
   is not used again, and its mutants are run anew.

A mutant that no test notices is a survivor. It is noticed after a sharper test, or it is listed in
`equivalent_mutants.txt` with the reason why no test could tell. A stopped run resumes. The results
are in `build/mutants`: `--table` prints them, `--survivors` lists the survivors, and `--again` runs
the survivors against the tests of today, `--coverage TESTS` records those tests anew.

Left out: what stands outside functions, and texts with a space in them, which are sentences. A test
that runs the line only in a process that it starts does not count; one in a fork counts.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "mutants"
COVERAGE, DURATIONS, SOURCES, RESULTS, CHECKED = (
    FOLDER / name
    for name in ("coverage", "durations.json", "sources.json", "results.jsonl", "checked.json")
)
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
PACKAGES = ("core", "data", "injection", "training", "detection", "analysis", "audits", "launch")
ARGUMENTS = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"  # brackets in them are closed again
LEAST_SECONDS = 60.0
"""Before a fork is out of time, for imports and for fixtures that another test's time includes."""
MOST_SECONDS, MOST_FILES = 60.0, 30
"""Of the tests that run a mutant's line, so many seconds and files of them."""
OUT_OF_TIME = -1000  # no exit status
STOPPING = signal.SIGTERM, signal.SIGHUP
OUTCOMES = {0: "survived", 1: "noticed", 2: "noticed", 5: "no tests", OUT_OF_TIME: "timeout"}
"""By pytest's exit status: 2 where a test can't import the mutant. Any other is no result."""
NOT_COLLECTED = 4
"""The exit status where a test's file or its conftest can't import the mutant, as the output says;
else a test is unknown."""
IMPORT_ERRORS = ("ImportError while loading conftest", "_ ERROR collecting ")
COLUMNS = ("mutants", "noticed", "timeout", "survived", "equivalent", "no tests")


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    Attributes:
        module: its path below the repository.
        source: the digest of the module without the change.
        function: the function or `Class.method` that contains it.
        line: where the change begins, counted from 1.
        new: the changed line, or "without " and the lines that the mutant lacks.
        code: of the whole changed module.
    """

    module: str
    source: str
    function: str
    line: int
    new: str
    code: str

    @property
    def key(self) -> str:
        """The same only for the same code with the same change."""
        return digest(f"{self.module}\0{self.code}")


def draw(module: str, number: int, seed: int) -> list[Mutant]:
    """Draws mutants of a module's functions; fewer where it has fewer."""
    import libcst
    from mutmut.mutation.file_mutation import create_mutations

    source = (ROOT / module).read_text()
    tree, mutations, _, _ = create_mutations(module, source)
    lines = source.splitlines()
    random.Random(f"{seed} {module}").shuffle(mutations)
    drawn: dict[str, Mutant] = {}
    for mutation in mutations:
        node = mutation.original_node
        is_sentence = isinstance(node, libcst.SimpleString) and " " in node.value
        if mutation.contained_by_top_level_function is None or is_sentence:
            continue
        changed = tree.deep_replace(node, mutation.mutated_node)
        assert isinstance(changed, libcst.Module)
        line, new = _difference(lines, changed.code.splitlines())
        function = _function_name(source, line)
        if function != "?":
            mutant = Mutant(module, digest(source), function, line, new, changed.code)
            drawn.setdefault(mutant.key, mutant)
        if len(drawn) == number:
            break
    return list(drawn.values())


def source_digest(module: str) -> str:
    """That of a module's file."""
    return digest((ROOT / module).read_text())


def digest(text: str) -> str:
    """16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _difference(old: Sequence[str], new: Sequence[str]) -> tuple[int, str]:
    """The number of the first line that differs (0 if none does), and what the mutant has."""
    start = next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), -1
    )
    if start < 0:
        return 0, ""
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    removed = [line.strip() for line in old[start : len(old) - end]]
    added = [line.strip() for line in new[start : len(new) - end]]
    return start + 1, " ".join(added) if added else "without " + " ".join(removed)


def functions(source: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module and the methods of its classes, as `Class.method`."""
    node_by_name: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}

    def add(body: Sequence[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{owner}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                node_by_name[owner + node.name] = node  # of overloads the last, which has the body

    add(ast.parse(source).body, "")
    return node_by_name


def _function_name(source: str, line: int) -> str:
    names = (name for name, node in functions(source).items() if line in _lines(node))
    return next(names, "?")


def _lines(node: ast.stmt) -> range:
    """A statement's lines; a function's decorators are above it."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return range(first, (node.end_lineno or node.lineno) + 1)


def statement_lines(source: str, line: int) -> set[int]:
    """The lines whose tests stand for those of a line that Python does not trace.

    It does not trace closing brackets, for one. They are the lines of the whole statement, or of
    its head where it has a body. The head of a function runs when the module is imported, and a
    test can notice a change of it only by a call: the lines of its body.
    """
    holding = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and line in _lines(node)
    ]
    if not holding:
        return {line}
    innermost = min(holding, key=lambda node: len(_lines(node)))
    body = getattr(innermost, "body", None)
    if body is None:
        return set(_lines(innermost))
    if isinstance(innermost, ast.FunctionDef | ast.AsyncFunctionDef):
        return set(range(body[0].lineno, _lines(innermost).stop))
    head = range(innermost.lineno, body[0].lineno)
    return set(head) if line in head else {line}


# The tests that run a line


def record_coverage(tests: Sequence[str], processes: int) -> None:
    """Runs the default suite, or some of its files again, and records the tests of each line."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--cov-context=test", "--cov-report="),
            *(f"--cov={package}" for package in PACKAGES),
            *(["--cov-append"] if tests else []),
            *("-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder"),
            *("-p", "tests.mutants", *tests),
        ],
        cwd=ROOT,
        env={**os.environ, "COVERAGE_FILE": str(COVERAGE), "MUTANTS_DURATIONS": str(FOLDER)},
    )
    seconds = json.loads(DURATIONS.read_text()) if tests and DURATIONS.exists() else {}
    measured: dict[str, float] = defaultdict(float)
    for part in sorted(FOLDER.glob("durations-*.jsonl")):
        for line in part.read_text().splitlines():
            test, duration = json.loads(line)
            measured[test] += duration
        part.unlink()
    if done.returncode not in (0, 1):
        sys.exit(f"pytest ended with {done.returncode}: the coverage is not complete.")
    DURATIONS.write_text(json.dumps(seconds | measured))
    if not tests:
        SOURCES.write_text(
            json.dumps({module: source_digest(module) for module in modules_below(())})
        )
    print(f"pytest ended with {done.returncode}; the time of {len(measured):,} tests is recorded")


def pytest_runtest_logreport(report) -> None:
    """As a plugin of pytest: notes how long each test that passed took, with its setup."""
    folder = os.environ.get("MUTANTS_DURATIONS")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if folder and worker and report.when != "teardown" and report.passed:
        with open(f"{folder}/durations-{worker}.jsonl", "a") as file:
            file.write(json.dumps([report.nodeid, round(report.duration, 3)]) + "\n")


class CoveringTests:
    """The passing tests of the default suite that run a line of a module."""

    def __init__(self) -> None:
        import coverage

        self._data = coverage.CoverageData(basename=str(COVERAGE))
        self._data.read()
        self.seconds: dict[str, float] = json.loads(DURATIONS.read_text())
        self._by_file: dict[str, list[str]] = defaultdict(list)
        for test in self.seconds:
            self._by_file[test.partition("::")[0]].append(test)
        self._contexts = cache(self._data.contexts_by_lineno)

    def choose(self, mutant: Mutant) -> list[str]:
        """Returns tests of a mutant's line, the nearest and quickest first.

        What a fixture calls counts for the other tests of the file, which may share it.
        """
        covering: set[str] = set()
        by_line = self._contexts(str(ROOT / mutant.module))
        contexts = set(by_line.get(mutant.line, ())) - {""}  # "": in an import
        if not contexts:
            lines = statement_lines((ROOT / mutant.module).read_text(), mutant.line)
            contexts = {context for line in lines for context in by_line.get(line, ())}
        for context in sorted(contexts):
            test, _, when = context.rpartition("|")
            covering.add(test)
            if when == "setup":
                covering.update(self._by_file[test.partition("::")[0]])
        module_parts = Path(mutant.module).parts

        def distance(test: str) -> tuple[int, float]:
            parts = Path(test.partition("::")[0]).parts[1:]
            n_shared = 0
            while (
                n_shared < min(len(parts), len(module_parts))
                and parts[n_shared] == module_parts[n_shared]
            ):
                n_shared += 1
            has_module_name = Path(mutant.module).stem in Path(test.partition("::")[0]).stem
            return (-n_shared - 2 * has_module_name, self.seconds[test])

        chosen, files, seconds = [], set(), 0.0
        for test in sorted(covering & self.seconds.keys(), key=distance):
            file = test.partition("::")[0]
            if seconds + self.seconds[test] > MOST_SECONDS and chosen:
                continue
            if file not in files and len(files) == MOST_FILES:
                continue
            chosen.append(test)
            files.add(file)
            seconds += self.seconds[test]
        return chosen


# Running them


class MutantFinder(importlib.abc.MetaPathFinder):
    """Imports one module from other code than its file's."""

    def __init__(self, module: str, code: str) -> None:
        self.name = ".".join(("contamination", *Path(module).with_suffix("").parts))
        self.name = self.name.removesuffix(".__init__")
        self.code = code

    def find_spec(self, name, path=None, target=None):
        """The usual finder's answer, with another loader for the mutated module."""
        if name != self.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (other.find_spec(name, path, target) for other in others)))
        spec.loader = _MutantLoader(name, spec.origin, self.code)
        return spec


class _MutantLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: str) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname):
        return compile(self._code, self.path, "exec", dont_inherit=True)


def import_libraries() -> None:
    """Imports what the tests import, but nothing of the project, in this one thread."""
    os.environ.update(dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"], "1"))
    os.environ.update(WANDB_MODE="offline", HF_HUB_OFFLINE="1", TRITON_INTERPRET="1")
    listing = (
        "import sys, pytest; pytest.main(['--collect-only', '-qq']);"
        "print('LOADED', *sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = done.stderr.rpartition("LOADED ")[2].split()
    not_libraries = ("tests", "contamination", "conftest", "__main__", "pytest", "_pytest", ".")
    # Before its package, a module such as `_asyncio` would have a state of its own.
    for name in sorted(names, key=lambda name: name.startswith("_")):
        if not name.startswith(not_libraries):
            try:
                importlib.import_module(name)
            except Exception:  # a part of a library that is imported only within another
                continue
    for name in [name for name in sys.modules if name.startswith("contamination")]:
        del sys.modules[name]  # a plugin's: each fork imports the project itself


def fork(mutant: Mutant | None, tests: Sequence[str], folder: Path) -> int:
    """Starts the tests in a fork, with a mutant or without; returns the process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        folder.mkdir(parents=True, exist_ok=True)
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(TMPDIR=str(folder), PYTEST_DEBUG_TEMPROOT=str(folder))
        tempfile.tempdir = None
        if mutant is not None:
            sys.meta_path.insert(0, MutantFinder(mutant.module, mutant.code))
        import pytest

        arguments = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line"]
        # Plugins that were imported before the fork can't have their assertions rewritten.
        arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        first = ["-x"] if mutant is not None else []
        code = int(pytest.main([*arguments, *first, *tests]))
        sys.stdout.flush()
        os._exit(code)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)


@dataclass
class Job:
    """A mutant whose tests run."""

    mutant: Mutant
    tests: Sequence[str]
    began: float
    limit: float
    folder: Path


def run(modules: Sequence[str], per_module: int, seed: int, processes: int, again: bool) -> None:
    """Runs the drawn mutants of some modules that have no result yet."""
    recorded = json.loads(SOURCES.read_text())
    if changed := [m for m in modules if recorded.get(m) != source_digest(m)]:
        sys.exit(f"changed since the coverage was recorded: {changed}. Remove {SOURCES}.")
    import_libraries()
    while True:
        covering_tests, result_by_key = CoveringTests(), read_results()
        waiting: list[tuple[Mutant, list[str]]] = []
        for module in modules:
            for mutant in draw(module, per_module, seed):
                result = result_by_key.get(mutant.key)
                if result is None or (again and result["outcome"] in ("survived", "no tests")):
                    waiting.append((mutant, covering_tests.choose(mutant)))
        print(f"{len(waiting):,} mutants of {len(modules):,} modules are to run", flush=True)
        run_all(waiting, covering_tests.seconds, processes)
        if not drop_failing_tests(processes):
            return
        again = False


def drop_failing_tests(processes: int) -> bool:
    """Runs the tests that noticed a mutant without one; whether some fail, which are not used."""
    checked = set(json.loads(CHECKED.read_text())) if CHECKED.exists() else set()
    unchecked = {row["noticed_by"] for row in read_results().values()} - checked - {""}
    failing = failing_without_mutant(unchecked, processes) if unchecked else set()
    seconds = json.loads(DURATIONS.read_text())
    for test in failing:
        seconds.pop(test, None)
    DURATIONS.write_text(json.dumps(seconds))
    CHECKED.write_text(json.dumps(sorted(checked | unchecked - failing)))
    return bool(failing)


def run_all(
    chosen: Sequence[tuple[Mutant, list[str]]], seconds: dict[str, float], processes: int
) -> None:
    """Runs the tests of each mutant and writes its result; when stopped, leaves no fork behind."""
    jobs: dict[int, Job] = {}
    try:
        _run_all(chosen, seconds, processes, jobs)
    finally:
        _kill(jobs)
        for job in jobs.values():
            shutil.rmtree(job.folder, ignore_errors=True)


def _run_all(
    chosen: Sequence[tuple[Mutant, list[str]]],
    seconds: dict[str, float],
    processes: int,
    jobs: dict[int, Job],
) -> None:
    began, ended, queue = time.monotonic(), 0, iter(chosen)
    while True:
        while len(jobs) < processes and (following := next(queue, None)) is not None:
            mutant, tests = following
            if not tests:
                write_result(mutant, "no tests", (), 0.0)
                ended += 1
                continue
            limit = LEAST_SECONDS + 5 * sum(seconds[test] for test in tests)
            folder = Path(tempfile.mkdtemp(prefix="mutant-"))
            pid = fork(mutant, tests, folder)
            jobs[pid] = Job(mutant, tests, time.monotonic(), limit, folder)
        if not jobs:
            return
        for pid, code in _ended(jobs):
            job = jobs.pop(pid)
            output = (job.folder / "output").read_text(errors="replace")
            if outcome := outcome_of(code, output):
                seconds_taken = time.monotonic() - job.began
                noticed_by = min(failed_tests(output, job.tests), default="")
                write_result(job.mutant, outcome, job.tests, seconds_taken, noticed_by)
                shutil.rmtree(job.folder, ignore_errors=True)
            else:
                print(f"no result, pytest ended with {code}: see {job.folder}/output", flush=True)
            ended += 1
            if ended % 50 == 0:
                minutes = (time.monotonic() - began) / 60
                print(f"{ended:,} of {len(chosen):,} after {minutes:.0f} minutes", flush=True)


def outcome_of(code: int, output: str) -> str | None:
    """What came of a mutant by pytest's exit status and output; None is no result."""
    if code == NOT_COLLECTED and any(words in output for words in IMPORT_ERRORS):
        return "noticed"
    return OUTCOMES.get(code)


def _kill(pids: Iterable[int]) -> None:
    """Ends forks that are not waited for yet, with the processes of their groups."""
    for pid in pids:
        for kill in (os.killpg, os.kill):  # one that has just begun leads no group yet
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # it has ended already
            os.waitpid(pid, 0)


def _ended(jobs: dict[int, Job]) -> Iterator[tuple[int, int]]:
    """The processes that have ended, with their status; `OUT_OF_TIME` for those beyond theirs."""
    time.sleep(0.02)
    for pid, job in list(jobs.items()):
        late = time.monotonic() - job.began > job.limit
        if late:
            os.killpg(pid, signal.SIGKILL)
        done, status = os.waitpid(pid, 0 if late else os.WNOHANG)
        if done:
            with suppress(ProcessLookupError):  # what the tests started and left
                os.killpg(pid, signal.SIGKILL)
            yield pid, OUT_OF_TIME if late else os.waitstatus_to_exitcode(status)


def failing_without_mutant(tests: Iterable[str], processes: int) -> set[str]:
    """Returns the tests that fail here in a fork without a mutant, which can tell nothing."""
    tests = sorted(tests)
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        by_file[test.partition("::")[0]].append(test)
    shares: list[list[str]] = [[] for _ in range(processes)]
    for number, of_file in enumerate(by_file.values()):
        shares[number % processes] += of_file
    folders = [Path(tempfile.mkdtemp(prefix="mutant-")) for _ in shares]
    forks: list[int] = []
    try:
        for share, folder in zip(shares, folders, strict=True):
            forks += [fork(None, share, folder)] if share else []
        while forks:
            status = os.waitpid(forks[-1], 0)[1]
            forks.pop()
            if (code := os.waitstatus_to_exitcode(status)) not in (0, 1):
                sys.exit(f"without a mutant pytest ended with {code}: see {[*map(str, folders)]}")
    finally:
        _kill(forks)
    output = "".join(file.read_text() for folder in folders for file in folder.glob("output"))
    failed = failed_tests(output, tests)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    for test in sorted(failed):
        print(f"fails without a mutant, so it is not used: {test}")
    return failed


def failed_tests(output: str, tests: Iterable[str]) -> set[str]:
    """Those of the tests that pytest's last lines list as failed."""
    listed_lines = re.findall(r"^(?:FAILED|ERROR) (.*)$", output, re.MULTILINE)
    return {
        test
        for test in tests
        for line in listed_lines
        if line == test or line.startswith(f"{test} - ")
    }


# Results


def read_results() -> dict[str, dict]:
    """The last result of each mutant by its key, less those noticed by a test no longer used."""
    if not RESULTS.exists():
        return {}
    rows = {}
    for line in RESULTS.read_text().splitlines():
        with suppress(json.JSONDecodeError):  # a stopped run may leave a part of a line
            row = json.loads(line)
            rows[row["key"]] = row
    used_tests = {"", *json.loads(DURATIONS.read_text())}
    return {key: row for key, row in rows.items() if row["noticed_by"] in used_tests}


def write_result(
    mutant: Mutant, outcome: str, tests: Sequence[str], seconds: float, noticed_by: str = ""
) -> None:
    """Appends a line to the results."""
    row = {"key": mutant.key, **asdict(mutant), "outcome": outcome}
    del row["code"]
    row |= {"tests": len(tests), "seconds": round(seconds, 1), "noticed_by": noticed_by}
    with RESULTS.open("a") as file:
        file.write("\n" * (file.tell() > 0) + json.dumps(row))


def print_table(modules: Sequence[str], survivors: bool) -> None:
    """Prints a line per module; the share is that of the mutants that are not equivalent."""
    by_module: dict[str, list[dict]] = defaultdict(list)
    for row in read_results().values():
        by_module[row["module"]].append(row)
    equivalent, whole = listed(), Counter[str]()
    print(f"{'':44}" + "".join(f"{column:>11}" for column in (*COLUMNS, "share")))
    for module in modules:
        now = source_digest(module)
        results = [row for row in by_module[module] if row["source"] == now]
        counts = Counter(mutants=len(results))
        for row in results:
            is_equivalent = row["outcome"] == "survived" and is_listed(row, equivalent)
            counts["equivalent" if is_equivalent else row["outcome"]] += 1
            if survivors and not is_equivalent and row["outcome"] in ("survived", "no tests"):
                print(f"    {module}:{row['line']} | {row['function']} | {row['new']}")
        print_line(module, counts)
        whole += counts
    print_line("all", whole)
    for entry in obsolete(equivalent):
        print(f"no longer in the code: {' | '.join(entry)}")


def print_line(module: str, counts: Counter[str]) -> None:
    """The counts, and the share that was noticed."""
    noticed = counts["noticed"] + counts["timeout"]
    told = noticed + counts["survived"] + counts["no tests"]
    share = f"{noticed / told:.1%}" if told else "–"
    print(f"{module:44}" + "".join(f"{counts[column]:>11}" for column in COLUMNS) + f"{share:>11}")


def is_listed(row: dict, equivalent: Iterable[tuple[str, str, str]]) -> bool:
    """Whether a survivor is listed as equivalent; * as the module stands for all of them."""
    for module, function, line in equivalent:
        if module == "*":
            if fits(row["new"], line):
                return True
        elif (module, function, line) == (row["module"], row["function"], row["new"]):
            return True
    return False


def fits(line: str, pattern: str) -> bool:
    """Whether a mutant's line holds a pattern; an asterisk is a call's other arguments."""
    return re.search(ARGUMENTS.join(map(re.escape, pattern.split("*"))), line) is not None


def obsolete(entries: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The listed changes of a function that no longer exists, or no longer calls what they call."""
    functions_of = cache(lambda path: functions(path.read_text()) if path.exists() else {})

    def is_gone(module: str, function: str, line: str) -> bool:
        node = functions_of(ROOT / module).get(function)
        called = set(re.findall(r"\w+(?=\()", re.sub(r'"[^"]*"', "", line)))
        return node is None or not called <= set(re.findall(r"\w+", ast.unparse(node)))

    return sorted(entry for entry in entries if entry[0] != "*" and is_gone(*entry))


def listed() -> set[tuple[str, str, str]]:
    """The survivors that `equivalent_mutants.txt` gives a reason for."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and line[0] != "#"]
    return {tuple(line.rpartition(" | ")[0].split(" | ", 2)) for line in lines}


def modules_below(parts: Sequence[str]) -> list[str]:
    """The product's modules, or those in the given files and folders."""
    named = [path for part in parts or PACKAGES for path in _python_files(ROOT / part)]
    return sorted(str(path.relative_to(ROOT)) for path in named)


def _python_files(path: Path) -> Iterator[Path]:
    if not path.exists():
        sys.exit(f"no file or folder {path.relative_to(ROOT)}")
    yield from [path] if path.is_file() else path.rglob("*.py")


def main() -> None:
    """Records the coverage where there is none, runs what has no result, and prints the table."""
    parser = argparse.ArgumentParser(prog="tests.mutants")
    parser.add_argument("parts", nargs="*", help="files or folders of the product; default: all")
    parser.add_argument("--per-module", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="only print what has run")
    parser.add_argument("--survivors", action="store_true", help="list them too")
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    parser.add_argument("--coverage", nargs="+", metavar="TESTS", help="only record these again")
    options = parser.parse_args()
    for number in STOPPING:  # leave no fork behind, as after Ctrl-C
        signal.signal(number, lambda *_: sys.exit(1))
    if options.coverage:
        return record_coverage(options.coverage, options.processes)
    os.chdir(ROOT)
    modules = modules_below(options.parts)
    if not options.table:
        if not SOURCES.exists():
            record_coverage((), options.processes)
        run(modules, options.per_module, options.seed, options.processes, options.again)
    print_table(modules, options.survivors)


if __name__ == "__main__":
    main()
