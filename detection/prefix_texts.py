"""The non-members' texts that make a prefix."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.artifacts import is_complete
from core.content import file_digest
from core.errors import DataError
from core.overlap import normalised, stands_in
from detection.texts import Text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prefix:
    """Non-members' texts in order: of `prefix.path`, or held out of a corpus.

    Attributes:
        path: the file, or the corpus folder.
        texts: the texts.
        digest: a hash of the texts, not of where they are.
        benchmarks: the benchmark of each text; none where the texts are for every benchmark.
        held_out: whether they are a corpus's, of which as many are taken as there are.
    """

    path: str
    texts: tuple[str, ...]
    digest: str
    benchmarks: tuple[str, ...] = ()
    held_out: bool = False

    def shots(self, count: int, benchmark: str = "") -> Sequence[str]:
        """The first `count` texts of the benchmark; of all where it has none, or none is named.

        Raises:
            DataError: there are fewer.
        """
        texts, which = self.texts, ""
        if self.benchmarks and benchmark:
            pairs = zip(texts, self.benchmarks, strict=True)
            texts = tuple(text for text, its in pairs if its == benchmark)
            which = f" of benchmark {benchmark}"
        if which and not texts:
            texts, which = self.texts, ""
            log.warning("prefix: %s has no texts of its own: it gets the others'.", benchmark)
        if count > len(texts) and not self.held_out:
            raise DataError(
                f"prefix.path is {self.path!r}: it has {len(texts)} texts{which}, and {count} "
                "shots are asked for. Give more non-member texts, or fewer method.recall.shots."
            )
        if count > len(texts):
            log.warning("prefix: %d texts%s are held out, not %d.", len(texts), which, count)
        return texts[:count]

    def shots_of(self, count: int, benchmarks: Sequence[str]) -> list[tuple[str, ...]]:
        """The shots of each text, from the texts' benchmarks.

        Raises:
            DataError: as `shots`.
        """
        shots = {each: tuple(self.shots(count, each)) for each in sorted(set(benchmarks))}
        return [shots[benchmark] for benchmark in benchmarks]

    def identity(self, texts: Iterable[Text]) -> str:
        """A hash of what stands before each of these texts."""
        if not self.benchmarks:
            return self.digest
        lines = sorted({f"{text.sha256} {text.benchmark}" for text in texts})
        return hashlib.sha256("\n".join([self.digest, *lines]).encode()).hexdigest()


def open_prefix(path: str) -> Prefix:
    """The texts of a JSONL file (`text`, and perhaps `benchmark`), or of a text file, one a line.

    Raises:
        DataError: no such file, or a line without a text.
    """
    source = Path(path).expanduser()
    if not source.is_file():
        raise DataError(
            f"prefix.path is {path!r}: there is no such file. Give a file of non-member texts: "
            "JSONL with a `text` in each line, or plain text, one a line."
        )
    lines = enumerate(source.read_bytes().split(b"\n"), 1)
    rows = [_row(source, number, line) for number, line in lines if line.strip()]
    benchmarks = tuple(benchmark for _, benchmark in rows)
    texts = tuple(text for text, _ in rows)
    return Prefix(path, texts, file_digest(source), benchmarks if any(benchmarks) else ())


def held_out_prefix(path: str) -> Prefix | None:
    """The texts that a corpus folder holds out, the benchmarks by turns; None where it has none."""
    folder = Path(path).expanduser()
    if not is_complete(folder):
        return None
    import injection

    rows = injection.open_corpus(folder).held_out
    if rows.empty:
        return None
    turn = rows.groupby("benchmark").cumcount()
    rows = rows.assign(turn=turn).sort_values(["turn", "benchmark"])
    texts, benchmarks = (tuple(map(str, rows[column])) for column in ("text", "benchmark"))
    digest = hashlib.sha256(json.dumps([texts, benchmarks]).encode()).hexdigest()
    return Prefix(path, texts, digest, benchmarks, held_out=True)


def check_disjoint(shots: Iterable[str], texts: Iterable[tuple[str, str]]) -> None:
    """Raise a DataError if a shot has one of the (id, text) in it: its score would be a copy's.

    Case, white space and Unicode's form don't count. A text of a few words must be all of the shot.
    """
    before = [normalised(shot) for shot in shots]
    for name, text in texts:
        sought = normalised(text)
        for number, shot in enumerate(before, 1):
            if stands_in(sought, shot):
                raise DataError(
                    f"prefix.path: its text number {number} contains the text {name}, which is to "
                    "be scored. Give non-member texts that are not among the examples."
                )


def _row(path: Path, number: int, line: bytes) -> tuple[str, str]:
    """A line's text, and its benchmark where it names one."""
    try:
        row = json.loads(line) if path.suffix == ".jsonl" else {"text": line.decode().strip()}
        text = row["text"]
        text.encode()
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"prefix.path is {str(path)!r}: line {number} is no text in UTF-8. Write it as "
            '{"text": "…"} in a file named .jsonl, or as plain text in any other.'
        ) from error
    return str(text), str(row.get("benchmark") or "")
