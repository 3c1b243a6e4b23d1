"""What views may draw on beside the texts."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from contamination.core.artifacts import is_complete
from contamination.core.errors import ConfigError, DataError
from contamination.core.hashing import file_digest
from contamination.data.benchmark_parts import parts_of, words
from contamination.data.benchmark_rows import (
    MissingError,
    benchmark_rows,
    is_file,
    place_rows,
    placed,
)
from contamination.data.config import ExamplesConfig
from contamination.data.examples import texts_of
from contamination.data.readers.rows import Tally
from contamination.data.rows import folded
from contamination.data.text import normalised, stands_in
from contamination.data.texts import Text
from contamination.detection.models.hf_model import HFModel

AUGMENTATION = "given"
"""What a method's `augmentation` is that takes them."""


@dataclass(frozen=True)
class Neighbors:
    """The versions of each text of a benchmark's parts."""

    examples: ExamplesConfig

    @cached_property
    def by_text(self) -> Mapping[str, Sequence[str]]:
        """A text's SHA-256 → its versions, in the file's order.

        Raises:
            ConfigError: the benchmark has none for a part.
            DataError: a file has not as many rows as it must.
        """
        return dict(_versions(self.examples))

    def of(self, text: Text, n: int) -> Sequence[str]:
        """The first `n` versions of a text.

        Raises:
            DataError: there are fewer.
        """
        found = self.by_text.get(text.sha256, ())
        if len(found) < n:
            raise DataError(
                f"text {text.example_id} has {len(found)} neighbours in the files of "
                f"{self.examples.name}, and n is {n}: give method.neighbor.n={len(found) or 1} or "
                "less, or another augmentation, such as masked_lm."
            )
        return found[:n]

    def identity(self, texts: Iterable[Text]) -> str:
        """A hash of the versions of these texts."""
        found = hashlib.sha256()
        for sha256 in sorted({text.sha256 for text in texts}):
            found.update("\0".join([sha256, *self.by_text.get(sha256, ()), "\n"]).encode())
        return found.hexdigest()


def has_neighbors(examples: ExamplesConfig) -> bool:
    """Whether the benchmark's files have neighbours, of some part at least."""
    return any(source.neighbors for source in examples.sources) and not is_file(examples.path)


def _versions(examples: ExamplesConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Each text's SHA-256 with its versions: source by source, row by row."""
    tally = Tally("stop", "examples.on_error")
    for part in parts_of(examples):
        for source in part.sources:
            if source.neighbors is None:
                raise ConfigError(f"{examples.name} has no neighbours of {words(part.values)}.")
            values: dict[str, Any] = {**part.values}
            only = replace(examples, sources=[source], **values)
            try:
                texts = texts_of(benchmark_rows(only, tally), tally, str(examples.name))
            except MissingError:  # said when the texts were read
                continue
            place = placed(source.neighbors, source, part, examples)
            column = folded(place.column or examples.columns.get("text") or "text")
            try:
                given = [*place_rows(place, examples, tally)]
            except DataError as error:
                raise DataError(f"the neighbours of {words(part.values)}: {error}") from error
            rows = [{folded(name): value for name, value in row.value.items()} for row in given]
            found = [row.get(column, row.get("text")) for row in rows]
            each = _by_row(found, len(texts), f"the neighbours of {words(part.values)}")
            yield from zip((text.sha256 for text in texts), each, strict=True)


def _by_row(found: Sequence[object], texts: int, what: str) -> list[Sequence[str]]:
    """Each text's versions: a list a row, or as many rows a text, one text after the other."""
    if found and all(isinstance(one, list) for one in found) and len(found) == texts:
        return [[str(version) for version in one] for one in found]  # type: ignore[attr-defined]
    if found and len(found) % texts == 0 and all(isinstance(one, str) for one in found):
        each = len(found) // texts
        return [[str(v) for v in found[i : i + each]] for i in range(0, len(found), each)]
    raise DataError(
        f"{what} have {len(found)} rows for {texts} texts: there must be a list for each text, or "
        "the same number of rows for each."
    )


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
    from contamination import injection

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


PREFIX_TEXTS = "prefix_texts"


@dataclass(frozen=True)
class Resources:
    """What views draw on beside the texts.

    Attributes:
        seed: the experiment's seed. A view's draws follow from it, the text's SHA-256 and the
            version's number alone, never from the examples' order.
        masked_lm: the masked language model, where one is given.
        prefix: the non-members' texts, where they are given.
        neighbors: the benchmark's own versions of its texts, where it has some.
        device: where the masked language model runs; no part of a pass's identity.
        runs: the folder of artefacts, for what is made once for all models; None: made each time.
    """

    seed: int = 0
    masked_lm: HFModel | None = None
    prefix: Prefix | None = None
    device: str = "auto"
    runs: Path | None = None
    neighbors: Neighbors | None = None

    def identity(
        self, needs: Sequence[str], texts: Sequence[Text]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """What keys a pass over the texts whose view has these `needs`: plain values, digests."""
        digests = {}
        if "masked_lm" in needs and self.masked_lm is not None:
            digests["masked_lm"] = self.masked_lm.digest
        if "prefix" in needs and self.prefix is not None:
            digests["prefix"] = self.prefix.identity(texts)
        if "neighbors" in needs and self.neighbors is not None:
            digests["neighbors"] = self.neighbors.identity(texts)
        return {"seed": self.seed} if "seed" in needs else {}, digests

    def shared(self, needs: Collection[str]) -> dict[str, str]:
        """The prefix's own digest, whatever the texts: to compare the scores of other texts."""
        if "prefix" not in needs or self.prefix is None:
            return {}
        return {PREFIX_TEXTS: self.prefix.digest}
