"""Measures the structure of the code base, for tables of before and after.

    python -m tests.structure [ROOT] [--repeats 3] [--lists] [--no-start-up]

It reads the source of a checkout and imports nothing of it, whether its packages are named `core`
or `contamination.core`. Product files are the Python files of the packages in `LAYERS`; tests and
measuring scripts are left out. `--lists` prints what stands behind each number.
"""

from __future__ import annotations

import argparse
import ast
import os
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

IMPORT_NAME = "contamination"
LAYERS = ("core", "data", "injection", "training", "detection", "analysis", "audits", "launch")
"""The packages, the lowest first. One that a checkout lacks is passed over."""
UNINFORMATIVE = frozenset({
    *("found", "own", "one", "each", "known", "shown", "made", "said", "kept", "given", "others")
})  # fmt: skip
HELP = (
    *("injection", "injection finetuning", "injection export format=text", "training"),
    *("training memory", "training which-step", "detection", "detection accuracy"),
    *("audits audit=books", "detection build source=jsonl", "detection extraction"),
    *("detection online", "detection probe", "detection select", "detection thresholds"),
    "detection train-lt-mia",
    "detection codec",
    *("detection view", "analysis", "analysis wandb", "launch", "launch status"),
    *("audits audit=books", "launch.console", IMPORT_NAME),
)
"""Commands whose `--help` is timed, where the checkout has them."""
STARTED = (IMPORT_NAME, *LAYERS, "launch.run")
"""Modules whose import is timed, where the checkout has them."""
Scope = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A product file.

    Attributes:
        name: with dots and without the common import name, `core.errors`.
        lines: of the file.
        tree: its syntax.
        package: whether it is an `__init__.py`.
    """

    name: str
    lines: int
    tree: ast.Module = field(repr=False)
    package: bool

    @property
    def layer(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]

    @cached_property
    def absolute_imports(self) -> set[str]:
        """The names of all imports that are not relative."""
        return {name for name, _ in imported_names(self)}

    @cached_property
    def header_lines(self) -> int:
        """Lines before the first class or function at the top level; all where there is none."""
        definitions = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
        for node in self.tree.body:
            if isinstance(node, definitions):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return first - 1
        return self.lines


@dataclass(frozen=True)
class Import:
    """A module imports another one: when it is itself imported, or later in a function."""

    importer: str
    imported: str
    at_once: bool


class CodeBase:
    """The product modules of a checkout, and who imports whom."""

    def __init__(self, root: Path, layers: Sequence[str] = LAYERS) -> None:
        self.root, self.layers = root, layers
        self.modules = {module.name: module for module in read_modules(root, layers)}

    @cached_property
    def imports(self) -> set[Import]:
        """All imports among product modules, those for type checking alone included as late."""
        return {
            Import(module.name, target, at_once)
            for module in self.modules.values()
            for name, at_once in imported_names(module)
            if (target := self._module_of(name)) is not None and target != module.name
        }

    def _module_of(self, name: str) -> str | None:
        """The product module that a dotted name is, or is in."""
        parts = name.split(".")
        if parts[0] == IMPORT_NAME:
            parts = parts[1:]
        for end in range(len(parts), 0, -1):
            if (candidate := ".".join(parts[:end])) in self.modules:
                return candidate
        return None

    def lines(self) -> int:
        """Lines of all product files."""
        return sum(module.lines for module in self.modules.values())

    def header_share(self) -> float:
        """The share of lines that stand before a file's first definition."""
        headers = sum(module.header_lines for module in self.modules.values())
        return headers / max(self.lines(), 1)

    def single_importers(self) -> dict[str, str]:
        """Modules that one product module alone imports, with that one."""
        importers: dict[str, set[str]] = defaultdict(set)
        for use in self.imports:
            importers[use.imported].add(use.importer)
        return {name: next(iter(names)) for name, names in importers.items() if len(names) == 1}

    def cycles(self, at_once: bool = True) -> list[list[str]]:
        """Groups of modules that import one another, at the top level or anywhere."""
        graph: dict[str, set[str]] = {name: set() for name in self.modules}
        for use in self.imports:
            if use.at_once or not at_once:
                graph[use.importer].add(use.imported)
        return sorted(sorted(group) for group in strongly_connected(graph) if len(group) > 1)

    def upward(self) -> list[Import]:
        """Imports of a module in a higher layer, also within functions."""
        height = {layer: place for place, layer in enumerate(self.layers)}
        return sorted(
            (
                use
                for use in self.imports
                if height[self.modules[use.imported].layer]
                > height[self.modules[use.importer].layer]
            ),
            key=lambda use: (use.importer, use.imported),
        )

    def repeated_class_names(self) -> dict[str, list[str]]:
        """Public class names that several modules define, with the modules."""
        modules = defaultdict(list)
        for module in self.modules.values():
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(module.name)
        return {name: places for name, places in sorted(modules.items()) if len(places) > 1}

    def local_names(self) -> Counter[str]:
        """How often each name is bound in a function, parameters not counted."""
        return Counter(
            name for module in self.modules.values() for name in bound_names(module.tree)
        )


def read_modules(root: Path, layers: Sequence[str]) -> Iterator[Module]:
    """The product modules of a checkout: those of its layers and of the package of the import name.

    Raises:
        FileNotFoundError: the folder has none of the layers.
    """
    folders = [root / layer for layer in layers if (root / layer).is_dir()]
    if not folders:
        raise FileNotFoundError(f"{root} has none of the packages {', '.join(layers)}.")
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            parts = file.relative_to(root).with_suffix("").parts
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            yield Module(name, len(text.splitlines()), ast.parse(text), package)


def imported_names(module: Module) -> Iterator[tuple[str, bool]]:
    """Each name that a module imports, with dots, and whether it does so when it is imported."""
    package = module.name.split(".") if module.package else module.name.split(".")[:-1]
    for node, at_once in _import_statements(module.tree, at_once=True):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((f"{source}.{alias.name}".lstrip("."), at_once) for alias in node.names)


def _import_statements(node: ast.AST, at_once: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """The statements below a node that import, and whether they run when the module does.

    Expressions, which contain none, are not entered.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_once
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            is_late = isinstance(child, Scope) or (
                isinstance(child, ast.If) and _for_type_checking(child)
            )
            yield from _import_statements(child, at_once and not is_late)


def _for_type_checking(node: ast.If) -> bool:
    return ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING"


def bound_names(tree: ast.Module) -> Iterator[str]:
    """The names that functions assign, one for each assignment: also loops, `with` and `:=`."""
    for node in ast.walk(tree):
        if isinstance(node, Scope):
            inner = {id(part) for scope in _scopes_in(node) for part in ast.walk(scope)}
            yield from (
                name.id
                for name in ast.walk(node)
                if isinstance(name, ast.Name)
                and isinstance(name.ctx, ast.Store)
                and id(name) not in inner
            )


def _scopes_in(scope: Scope) -> Iterator[ast.AST]:
    """The functions and classes within a function."""
    for node in ast.walk(scope):
        if node is not scope and isinstance(node, ast.ClassDef | Scope):
            yield node


def strongly_connected(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """The strongly connected components of a graph (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    components: list[set[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for neighbour in graph[node]:
            if neighbour not in order:
                visit(neighbour)
                lowest[node] = min(lowest[node], lowest[neighbour])
            elif neighbour in stack:
                lowest[node] = min(lowest[node], order[neighbour])
        if lowest[node] == order[node]:
            place = stack.index(node)
            components.append({*stack[place:]})
            del stack[place:]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10 * len(graph) + 1000))
    for node in graph:
        if node not in order:
            visit(node)
    sys.setrecursionlimit(limit)
    return components


def start_up(root: Path, repeats: int) -> Iterator[tuple[str, float | None]]:
    """CPU seconds of each `--help` and of importing each package, the median; None: it failed."""
    cpu_seconds(root, ["-m", "launch", "--help"], 1)  # so that all is compiled
    for words in HELP:
        name, *more = words.split()
        if runnable(root, name):
            yield f"{words} --help", cpu_seconds(root, ["-m", name, *more, "--help"], repeats)
    for module in STARTED:
        place = root.joinpath(*module.split("."))
        if (place / "__init__.py").is_file() or place.with_suffix(".py").is_file():
            renamed = module != IMPORT_NAME and (root / IMPORT_NAME).is_dir()
            name = f"{IMPORT_NAME}.{module}" if renamed else module
            yield f"import {name}", cpu_seconds(root, ["-c", f"import {name}"], repeats)


def runnable(root: Path, name: str) -> bool:
    """Whether `python -m name` is a module of the checkout."""
    place = root.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()


def cpu_seconds(root: Path, words: Sequence[str], repeats: int) -> float | None:
    """The median CPU seconds of `python words` and its children; None where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    times = []
    for _ in range(repeats):
        process = subprocess.Popen(
            [sys.executable, *words], cwd=root, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            return None
        times.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(times)


def measures(code: CodeBase) -> list[tuple[str, str]]:
    """The rows of the table: a measure and its value."""
    single = code.single_importers()
    single_lines = sum(code.modules[name].lines for name in single)
    names = code.local_names()
    uninformative = sum(names[name] for name in UNINFORMATIVE)
    uninformative_share = uninformative / max(names.total(), 1)
    sizes = [module.lines for module in code.modules.values()]
    return [
        ("product files", f"{len(sizes):,}"),
        ("lines", f"{sum(sizes):,}"),
        ("mean lines per file", f"{statistics.mean(sizes):.0f}"),
        ("median lines per file", f"{statistics.median(sizes):.0f}"),
        ("header share", f"{code.header_share():.1%}"),
        ("modules that one module alone imports", f"{len(single)} ({single_lines:,} lines)"),
        ("import cycles at the top level of modules", f"{len(code.cycles())}"),
        ("import cycles, also within functions", f"{len(code.cycles(at_once=False))}"),
        ("upward imports", f"{len(code.upward())}"),
        ("public class names in several modules", f"{len(code.repeated_class_names())}"),
        ("assignments to local variables", f"{names.total():,}"),
        ("with an uninformative name", f"{uninformative:,} ({uninformative_share:.1%})"),
    ]  # fmt: skip


def layer_rows(code: CodeBase) -> list[tuple[str, str]]:
    """Files and lines of each package."""
    rows = []
    for layer in code.layers:
        sizes = [module.lines for module in code.modules.values() if module.layer == layer]
        if sizes:
            rows.append((layer, f"{len(sizes)} files, {sum(sizes):,} lines"))
    return rows


def print_lists(code: CodeBase) -> None:
    """Print what stands behind the numbers."""
    print("\nModules that one module alone imports:")
    for name, importer in sorted(code.single_importers().items()):
        print(f"- {name} ({code.modules[name].lines} lines): {importer}")
    for title, at_once in (("at the top level", True), ("also within functions", False)):
        print(f"\nImport cycles {title}:")
        for group in code.cycles(at_once):
            print(f"- {', '.join(group)}")
    print("\nUpward imports:")
    for use in code.upward():
        print(f"- {use.importer} imports {use.imported}")
    print("\nPublic class names in several modules:")
    for name, modules in code.repeated_class_names().items():
        print(f"- {name}: {', '.join(modules)}")
    names = code.local_names()
    print("\nLocal variables with an uninformative name:")
    for name in sorted(UNINFORMATIVE, key=lambda name: -names[name]):
        print(f"- {name}: {names[name]}")


def print_table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> None:
    """Print a Markdown table."""
    print(f"\n| {head[0]} | {head[1]} |\n|---|---:|")
    for name, value in rows:
        print(f"| {name} | {value} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="tests.structure", description=__doc__.partition("\n")[0])
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--repeats", type=int, default=1, help="timed runs of each command")
    parser.add_argument("--lists", action="store_true", help="print what is behind each number")
    parser.add_argument("--no-start-up", action="store_true", help="time nothing")
    options = parser.parse_args()
    root = options.root.resolve()
    code = CodeBase(root)
    print_table(("measure", "value"), measures(code))
    print_table(("package", "size"), layer_rows(code))
    if options.lists:
        print_lists(code)
    if not options.no_start_up:
        print_table(
            ("start-up", "CPU seconds"),
            (
                (name, "failed" if seconds is None else f"{seconds:.2f}")
                for name, seconds in start_up(root, options.repeats)
            ),
        )


if __name__ == "__main__":
    main()
