"""The resources that views use in addition to the texts, such as the prefix of non-members."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contamination.core.artifacts import is_complete
from contamination.core.errors import DataError
from contamination.core.hashing import file_digest
from contamination.data.texts import Text
from contamination.data.words import is_contained_in, normalise_text
from contamination.detection.models.base import ModelHandle
from contamination.detection.models.hf_model import HFModel
from contamination.detection.supplied_neighbors import Neighbors

PREFIX_TEXTS = "prefix_texts"
CONTRASTING = "con_recall"
"""The method that also puts members before each text."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prefix:
    """Non-member texts in order, from `prefix.path` or held out of a corpus.

    Attributes:
        path: the file, or the corpus folder.
        texts: the texts.
        digest: a hash of the texts, independent of their location.
        benchmarks: the benchmark of each text; empty if the texts serve every benchmark.
        held_out: whether the texts come from a corpus; then fewer shots than asked for are allowed.
        members: the member texts of the same file, for methods that contrast the two, or None.
        method: the method whose shots these are, for errors.
    """

    path: str
    texts: tuple[str, ...]
    digest: str
    benchmarks: tuple[str, ...] = ()
    held_out: bool = False
    members: Prefix | None = None
    method: str = "recall"

    def shots(self, count: int, benchmark: str = "") -> Sequence[str]:
        """Returns the first `count` texts of the benchmark.

        If the benchmark has no texts, or is not named, they are taken from all texts.

        Raises:
            DataError: there are fewer than `count`, and they are not a corpus's.
        """
        texts, of_benchmark = self.texts, ""
        if self.benchmarks and benchmark:
            pairs = zip(texts, self.benchmarks, strict=True)
            texts = tuple(text for text, text_benchmark in pairs if text_benchmark == benchmark)
            of_benchmark = f" of benchmark {benchmark}"
        if of_benchmark and not texts:
            texts, of_benchmark = self.texts, ""
            log.warning(
                "prefix: %s has no texts of its own, so those of the other benchmarks are used.",
                benchmark,
            )
        if count > len(texts) and not self.held_out:
            raise DataError(
                f"prefix.path is {self.path!r}: it has {len(texts)} texts{of_benchmark}, but "
                f"{count} shots are requested. Give more {self._side} texts, or fewer "
                f"method.{self.method}.shots."
            )
        if count > len(texts):
            log.warning("prefix: %d texts%s are held out, not %d.", len(texts), of_benchmark, count)
        return texts[:count]

    @property
    def _side(self) -> str:
        return "member" if self.method == CONTRASTING else "non-member"

    def shots_for_benchmarks(self, count: int, benchmarks: Sequence[str]) -> list[tuple[str, ...]]:
        """Returns the shots of each text, given the texts' benchmarks.

        Raises:
            DataError: see `shots`.
        """
        shots = {name: tuple(self.shots(count, name)) for name in sorted(set(benchmarks))}
        return [shots[benchmark] for benchmark in benchmarks]

    def identity(self, texts: Iterable[Text]) -> str:
        """Returns a hash of the prefixes of these texts."""
        if not self.benchmarks:
            return self.digest
        lines = sorted({f"{text.sha256} {text.benchmark}" for text in texts})
        return hashlib.sha256("\n".join([self.digest, *lines]).encode()).hexdigest()


def open_prefix(path: str) -> Prefix:
    """Reads a prefix from JSONL, or from lines of plain text.

    A line of JSONL has a `text`, and optionally its `benchmark` and `member`: true for a text that
    the model is known to have seen (`Prefix.members`).

    Raises:
        DataError: there is no such file, or a line has no text.
    """
    source = Path(path).expanduser()
    if not source.is_file():
        raise DataError(
            f"prefix.path is {path!r}: there is no such file. Give a file of non-member texts: "
            "JSONL with a `text` in each line, or plain text, one per line."
        )
    lines = enumerate(source.read_bytes().split(b"\n"), 1)
    rows = [_parse_prefix_line(source, number, line) for number, line in lines if line.strip()]
    digest = file_digest(source)

    def of_side(member: bool, **more: Any) -> Prefix:
        texts = tuple(text for text, _, is_member in rows if is_member is member)
        benchmarks = tuple(name for _, name, is_member in rows if is_member is member)
        return Prefix(path, texts, digest, benchmarks if any(benchmarks) else (), **more)

    members = of_side(True, method=CONTRASTING)
    return of_side(False, members=members if members.texts else None)


def held_out_prefix(path: str) -> Prefix | None:
    """Returns the texts that a corpus folder holds out, alternating between benchmarks, or None."""
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


def check_shots_disjoint(shots: Iterable[str], texts: Iterable[tuple[str, str]]) -> None:
    """Raises a DataError if a shot contains one of the (id, text) pairs that are to be scored.

    Case, white space and Unicode form are ignored. A text of a few words must equal the whole shot.
    """
    normalised_shots = [normalise_text(shot) for shot in shots]
    for name, text in texts:
        normalised_text = normalise_text(text)
        for number, shot in enumerate(normalised_shots, 1):
            if is_contained_in(normalised_text, shot):
                raise DataError(
                    f"prefix.path: its text number {number} contains the text {name}, which is to "
                    "be scored. Give non-member texts that are not among the examples."
                )


def _parse_prefix_line(path: Path, number: int, line: bytes) -> tuple[str, str, bool]:
    """Returns a line's text, its benchmark or an empty string, and whether it is a member."""
    try:
        row = json.loads(line) if path.suffix == ".jsonl" else {"text": line.decode().strip()}
        text = row["text"]
        text.encode()
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"prefix.path is {str(path)!r}: line {number} is not a text in UTF-8. Write it as "
            '{"text": "…"} in a file named .jsonl, or as plain text in any other.'
        ) from error
    return str(text), str(row.get("benchmark") or ""), row.get("member") is True


@dataclass(frozen=True)
class Resources:
    """What views use in addition to the texts.

    Attributes:
        seed: the experiment's seed. A view's random choices depend on it, the text's SHA-256 and
            the version's number, and never on the order of the examples.
        masked_lm: the masked language model, if there is one.
        prefix: the non-member texts, if there are any.
        device: where the masked language model runs; not part of a pass's identity.
        runs: the folder of artefacts, which stores rewordings for all models; None stores nothing.
        neighbors: the benchmark's own neighbours of its texts, if it has any.
        reference: the reference model, for views that compare the target with it.
    """

    seed: int = 0
    masked_lm: HFModel | None = None
    prefix: Prefix | None = None
    device: str = "auto"
    runs: Path | None = None
    neighbors: Neighbors | None = None
    reference: ModelHandle | None = None

    @property
    def member_prefix(self) -> Prefix | None:
        """The member texts of the prefix, if it has any."""
        return None if self.prefix is None else self.prefix.members

    def identity(
        self, needs: Sequence[str], texts: Sequence[Text]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Returns the settings and digests that identify a pass whose view has these `needs`."""
        digests = {}
        if "masked_lm" in needs and self.masked_lm is not None:
            digests["masked_lm"] = self.masked_lm.digest
        if "prefix" in needs and self.prefix is not None:
            digests["prefix"] = self.prefix.identity(texts)
        if "member_prefix" in needs and self.member_prefix is not None:
            digests["member_prefix"] = self.member_prefix.identity(texts)
        if "neighbors" in needs and self.neighbors is not None:
            digests["neighbors"] = self.neighbors.identity(texts)
        if "reference" in needs and self.reference is not None:
            digests["reference"] = self.reference.digest
        return {"seed": self.seed} if "seed" in needs else {}, digests

    def prefix_digest(self, needs: Collection[str]) -> dict[str, str]:
        """Returns the digest of all prefix texts, to compare scores of different examples."""
        if "prefix" not in needs or self.prefix is None:
            return {}
        return {PREFIX_TEXTS: self.prefix.digest}
