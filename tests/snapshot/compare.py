"""Compares two records: what is equal, what differs and by how much, and which names changed.

Artefacts of a command are paired by kind and name, those left by their contents. Files of a pair
are paired by name, those left by their contents or number of rows; columns of a table by name,
those left by their cells. What was paired under two names is a *changed name*, and no difference.
So is

- a column of text in which each word always became the same other one, of 20 words at most;
- another order of rows;
- a number written in another way, such as 1 and 1.0;
- a field or a word of a `config.yaml`, where recorded class paths stand.

Pages and charts are compared, but count only where that is asked for: their wording, order and
labels may change, and their numbers come from tables that are compared.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.snapshot.contents import Table, numbers_of

RENAMED_WORDS = 20
"""At most so many words of a column may have changed their names."""
LISTED = 60
"""At most so many differences, and names of one kind, are printed."""
OUTPUT = "output"
"""The kind of what a command printed and wrote outside of the runs folder."""
SOFT = ("pages", "printed", "charts")
CLASSES = ("commands", "tables", "scores", "data files", "counts", "settings", *SOFT)

Entry = dict[str, Any]
Item = TypeVar("Item")


@dataclass
class Tally:
    """What became of the things of one class; the numbers in those that both records have."""

    equal: int = 0
    differing: int = 0
    missing: int = 0
    new: int = 0
    numbers: int = 0
    largest: float = 0.0


@dataclass
class Report:
    """What a comparison found."""

    tallies: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in CLASSES})
    differences: list[str] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def differs(self, strict: bool = False) -> bool:
        """Whether anything differs or is missing, pages and charts too where `strict`."""
        return any(
            tally.differing or tally.missing
            for name, tally in self.tallies.items()
            if strict or name not in SOFT
        )

    def markdown(self) -> str:
        """The table, the differences and the changed names."""
        lines = [
            "| | equal | differ | missing | new | numbers compared | largest difference |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for name, tally in self.tallies.items():
            counts = (tally.equal, tally.differing, tally.missing, tally.new, tally.numbers)
            cells = [*(f"{count:,}" for count in counts), f"{tally.largest:.3g}"]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines += _listed("Differences", self.differences)
        for kind, names in self.names.items():
            counted = Counter(names)
            words = [f"{name}{f' ({n} times)' if n > 1 else ''}" for name, n in counted.items()]
            lines += _listed(f"Changed names: {kind}", words)
        return "\n".join(lines)

    def add(self, kind: str, where: str, problem: str | None, numbers: int = 0) -> None:
        """Count a thing that both records have, and say what differs, if anything."""
        tally = self.tallies[kind]
        tally.numbers += numbers
        tally.equal += problem is None
        tally.differing += problem is not None
        if problem is not None:
            self.differences.append(f"{kind}: {where}: {problem}")

    def alone(self, kind: str, where: str, new: bool) -> None:
        """Count a thing that one record has."""
        tally = self.tallies[kind]
        tally.new += new
        tally.missing += not new
        self.differences.append(f"{kind}: {where} is {'new' if new else 'missing'}")

    def renamed(self, kind: str, before: str, after: str) -> None:
        """Note a changed name."""
        if before != after:
            self.names[kind].append(f"`{before}` → `{after}`")


def _listed(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    more = [f"- … and {len(items) - LISTED:,} more"] if len(items) > LISTED else []
    return ["", f"{title}:", "", *(f"- {item}" for item in items[:LISTED]), *more]


def compare(before: Path, after: Path) -> Report:
    """Compare two folders `record`."""
    report = Report()
    first, second = (json.loads((folder / "index.json").read_text()) for folder in (before, after))
    for name in dict.fromkeys([*first["commands"], *second["commands"]]):
        status, other = first["commands"].get(name), second["commands"].get(name)
        if status is None or other is None:
            report.alone("commands", name, new=status is None)
        else:
            words = f"exit status {status}, then {other}"
            report.add("commands", name, None if status == other else words)
    comparison = _Comparison(report, before, after)
    by_command = [_by_command(index["artefacts"]) for index in (first, second)]
    for command in dict.fromkeys([*by_command[0], *by_command[1]]):
        comparison.artefacts(by_command[0].get(command, []), by_command[1].get(command, []))
    return report


def _by_command(artefacts: Sequence[Entry]) -> dict[str, list[Entry]]:
    groups = defaultdict(list)
    for artefact in artefacts:
        groups[artefact["command"]].append(artefact)
    return groups


def paired(
    before: Sequence[Item], after: Sequence[Item], *keys: Callable[[Item], Hashable]
) -> Iterator[tuple[Item | None, Item | None]]:
    """Pairs by the first key, of those left by the second, and so on; then those left alone.

    A key of None pairs nothing. Of several with one key the first is paired with the first.
    """
    left, right = list(before), list(after)
    for key in keys:
        waiting: dict[Hashable, list[Item]] = defaultdict(list)
        for item in right:
            waiting[key(item)].append(item)
        unpaired = []
        for item in left:
            name = key(item)
            if name is not None and waiting[name]:
                partner = waiting[name].pop(0)
                right = [other for other in right if other is not partner]
                yield item, partner
            else:
                unpaired.append(item)
        left = unpaired
    yield from ((item, None) for item in left)
    yield from ((None, item) for item in right)


class _Comparison:
    """Compares artefacts, files and cells, and tells the report."""

    def __init__(self, report: Report, before: Path, after: Path) -> None:
        self.report, self.before, self.after = report, before, after

    def artefacts(self, before: Sequence[Entry], after: Sequence[Entry]) -> None:
        """Compare what one command made."""
        pairs = paired(
            before, after,
            lambda artefact: (artefact["kind"], artefact["name"], _fingerprint(artefact)),
            lambda artefact: (artefact["kind"], artefact["name"], artefact["ordinal"]),
            _fingerprint,
            lambda artefact: (artefact["kind"], tuple(sorted(artefact["files"]))),
            lambda artefact: artefact["kind"],
            lambda artefact: tuple(sorted(Path(name).suffix for name in artefact["files"])),
        )  # fmt: skip
        for first, second in pairs:
            artefact = first or second
            assert artefact is not None
            names = (artefact["command"], artefact["kind"], artefact["name"])
            where = "/".join(filter(None, names))
            if artefact["ordinal"]:
                where += f" ({artefact['ordinal'] + 1})"
            if first is not None and second is not None:
                self.report.renamed("kinds of artefacts", first["kind"], second["kind"])
                self.report.renamed("artefacts", first["name"], second["name"])
                self.fields("counts", where, first["counts"], second["counts"])
                self.fields("settings", where, first["config"], second["config"])
            elif artefact["kind"] != OUTPUT:
                for kind in ("counts", "settings"):
                    self.report.alone(kind, where, new=first is None)
            self.files(
                where, first["files"] if first else {}, second["files"] if second else {},
                artefact["kind"],
            )  # fmt: skip

    def fields(self, kind: str, where: str, before: Entry, after: Entry) -> None:
        """Compare the leaves of counts or settings, as a table of one row."""
        problem, numbers = self.tables(
            kind,
            Table({name: [cell] for name, cell in before.items()}),
            Table({name: [cell] for name, cell in after.items()}),
            lenient=kind == "settings",
        )
        self.report.add(kind, where, problem, numbers)

    def files(
        self, where: str, before: Mapping[str, Entry], after: Mapping[str, Entry], artefact: str
    ) -> None:
        """Compare the files of an artefact."""
        pairs = paired(
            list(before.items()), list(after.items()),
            lambda item: item[0],
            lambda item: (item[1]["kind"], item[1]["digest"]),
            lambda item: (item[1]["kind"], Path(item[0]).suffix, item[1].get("rows")),
        )  # fmt: skip
        for first, second in pairs:
            name, entry = first or second or ("", {})
            kind = _class_of(name, entry["kind"], artefact)
            if first is None or second is None:
                self.report.alone(kind, f"{where}/{name}", new=first is None)
                continue
            self.report.renamed("files", name, second[0])
            self.file(kind, f"{where}/{name}", first[1], second[1])

    def file(self, kind: str, where: str, before: Entry, after: Entry) -> None:
        """Compare two files."""
        if before["digest"] == after["digest"]:
            self.report.add(kind, where, None, before["numbers"])
        elif before["kind"] != after["kind"]:
            self.report.add(kind, where, f"it was a {before['kind']} and is a {after['kind']}")
        elif before["kind"] == "table":
            first = read_cells(self.before, before["digest"])
            second = read_cells(self.after, after["digest"])
            problem, numbers = self.tables(kind, first, second)
            self.report.add(kind, where, problem, numbers)
        elif before["kind"] == "page":
            lost, new = (Counter(first["page"]) - Counter(second["page"])
                         for first, second in ((before, after), (after, before)))  # fmt: skip
            words = f"{lost.total()} numbers gone{_some(lost)}, {new.total()} new{_some(new)}"
            self.report.add(kind, where, words, before["numbers"])
        else:
            self.report.add(kind, where, f"{before['bytes']:,}, then {after['bytes']:,} bytes")

    def tables(
        self, kind: str, before: Table, after: Table, lenient: bool = False
    ) -> tuple[str | None, int]:
        """What differs between two tables, if anything, and how many numbers were compared.

        Args:
            kind: the class that the tables are counted in.
            before: a table.
            after: another one.
            lenient: any changed word, and any field that only one of them has, is a changed name.
        """
        if before.rows != after.rows:
            return f"{before.rows:,} rows, then {after.rows:,}", 0
        pairs = list(paired(
            list(before.columns.items()), list(after.columns.items()),
            lambda item: item[0],
            lambda item: tuple(item[1]),
        ))  # fmt: skip
        problems, columns = [], []
        for first, second in pairs:
            if first is not None and second is not None:
                self.report.renamed("columns and fields", first[0], second[0])
                columns.append((first[0], first[1], second[1]))
                continue
            name = (first or second or ("",))[0]
            if lenient:
                self.report.names["fields gone or new"].append(
                    f"`{name}` is {'new' if first is None else 'gone'}"
                )
            elif first is None:
                self.report.names["new columns and fields"].append(f"`{name}`")
            else:
                problems.append(f"{name} is missing")
        columns, moved = _in_order(columns)
        if moved:
            self.report.names["order of rows"].append(kind)
        numbers = 0
        for name, old, new in columns:
            difference = compare_cells(old, new)
            numbers += difference.numbers
            tally = self.report.tallies[kind]
            tally.largest = max(tally.largest, difference.largest)
            if difference.differing:
                problems.append(
                    f"{name}: {difference.differing:,} of {difference.numbers:,} numbers differ, "
                    f"by up to {difference.largest:.3g}"
                )
            if difference.words and (lenient or difference.consistent):
                for word, others in difference.words.items():
                    for other in others:
                        self.report.renamed(f"words in {name}", str(word), str(other))
            elif difference.words:
                texts = sum(map(len, difference.words.values()))
                problems.append(f"{name}: {texts} texts differ")
        return "; ".join(problems) or None, numbers


@dataclass
class ColumnDifference:
    """How two columns differ.

    Attributes:
        numbers: how many there are.
        differing: how many of them differ.
        largest: the largest absolute difference; infinite where only one is finite.
        words: texts of the first column, and what they are in the second.
    """

    numbers: int = 0
    differing: int = 0
    largest: float = 0.0
    words: dict[str | None, set[str | None]] = field(default_factory=lambda: defaultdict(set))

    @property
    def consistent(self) -> bool:
        """Whether each of a few texts always became the same other one."""
        one_to_one = all(len(others) == 1 for others in self.words.values())
        return one_to_one and len(self.words) <= RENAMED_WORDS


def compare_cells(before: Sequence[str | None], after: Sequence[str | None]) -> ColumnDifference:
    """Compare two columns of one length, cell by cell."""
    result = ColumnDifference()
    unchanged: set[str | None] = set()
    for old, new in zip(before, after, strict=True):
        numbers, others = numbers_of(old), numbers_of(new)
        if numbers is None or others is None or len(numbers) != len(others):
            result.numbers += len(numbers or ())
            if numbers is not None:  # a number became a word, or a list has another length
                result.differing += old != new
                result.largest = math.inf if old != new else result.largest
            elif old != new:
                result.words[old].add(new)
            else:
                unchanged.add(old)
            continue
        result.numbers += len(numbers)
        if old == new:
            continue
        for number, other in zip(numbers, others, strict=True):
            difference = _difference(number, other)
            result.differing += difference > 0
            result.largest = max(result.largest, difference)
    for word in unchanged & result.words.keys():
        result.words[word].add(word)
    return result


def _difference(number: float, other: float) -> float:
    """The absolute difference; 0 for two of the same infinity or two NaN."""
    if number == other or (math.isnan(number) and math.isnan(other)):
        return 0.0
    difference = abs(number - other)
    return math.inf if math.isnan(difference) else difference


Column = tuple[str, Sequence[str | None], Sequence[str | None]]


def _in_order(columns: Sequence[Column]) -> tuple[Sequence[Column], bool]:
    """The columns, with the rows of both tables in one order where only their order differs.

    Returns:
        The columns, and whether the order differed.
    """
    if all(old == new for _, old, new in columns):
        return columns, False
    rows = [list(zip(*(column[side] for column in columns), strict=True)) for side in (1, 2)]
    if Counter(rows[0]) != Counter(rows[1]):
        return columns, False
    return [(name, old, old) for name, old, _ in columns], True


def _fingerprint(artefact: Entry) -> Hashable:
    """The digests of an artefact's tables and data; None where it has none."""
    files = artefact["files"].values()
    return tuple(sorted(f["digest"] for f in files if f["kind"] in ("table", "data"))) or None


def _class_of(name: str, kind: str, artefact: str) -> str:
    """The class that a file is counted in."""
    path = Path(name)
    if artefact == OUTPUT and name == "stdout":
        return "printed"
    if path.stem == "scores" or (artefact == "scores" and path.suffix == ".parquet"):
        return "scores"
    return {"table": "tables", "page": "pages", "chart": "charts", "data": "data files"}[kind]


def _some(numbers: Counter[str]) -> str:
    few = ", ".join(list(numbers)[:5])
    return f" ({few}{', …' if len(numbers) > 5 else ''})" if few else ""


def read_cells(record: Path, digest: str) -> Table:
    """A table of a record."""
    return Table(
        json.loads(gzip.decompress((record / "tables" / f"{digest}.json.gz").read_bytes()))
    )
