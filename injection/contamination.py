"""What of a pool stands in a cell's corpora beside the inserted copies, and in which.

`contamination.parquet` has a row per document and example that share text:

- `corpus`: `corpus` (the contaminated one), the name of another corpus that was compared (`base`:
  that of the clean model), or `copies` (the document is an example of the pool whose copies hold
  this one's whole text).
- `document_id`: of another corpus the packed sequence that its document begins in; empty where
  only the proof found the text, among the packed tokens.
- `example_id`, `rule`, `evidence`: see `injection.decontamination`.
- `occurrences`: how often the example's whole text stands in the document.

Documents of another corpus are read from its packed sequences: each from its BOS on. Where the
tokenizer adds no BOS, they are stretches of tokens that overlap, and what stands in an overlap is
in two of them.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.artifacts import Artifact, file_name
from contamination.core.tasks import Runner
from contamination.data.readers.rows import grouped
from contamination.data.text import normalised
from contamination.injection import packing
from contamination.injection.config import OWN
from contamination.injection.corpus import CONTAMINATION, FinetuningSet, PackedCorpus, open_corpus
from contamination.injection.decontamination import VERBATIM, PoolSearch, first_words
from contamination.injection.token_stream import Ids, Tokenizer
from contamination.injection.tokenization import match_table

COLUMN = "contamination"
"""The examples' column of corpora that they share text with; empty for most."""
log = logging.getLogger(__name__)
Pool = Mapping[str, Sequence[str]]
"""Each example's text, then its fields."""
STRETCH_TOKENS = 4_096
DOCUMENTS_AT_ONCE = 256


def pool_of(examples: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Each example's text and fields."""
    rows = examples.itertuples()
    return {r.example_id: (r.text, *json.loads(r.fields).values()) for r in rows}


def within_copies(
    examples: pd.DataFrame, ledger: pd.DataFrame, tokenizer: Tokenizer
) -> pd.DataFrame:
    """Examples whose whole text stands within the copies of another: a `match_table`."""
    texts = dict(zip(examples["example_id"], examples["text"], strict=True))
    copies = ledger.drop_duplicates(["example_id", "copy"])
    inserted = Counter(
        (row.example_id, row.reworded or texts[row.example_id]) for row in copies.itertuples()
    )
    pool = {name: (text,) for name, text in texts.items()}
    search = PoolSearch(pool, tokenizer.spelled, parts=False)
    found = search([text for _, text in inserted])
    rows = [
        (owner, *shared._replace(occurrences=shared.occurrences * times))
        for ((owner, _), times), examples_within in zip(inserted.items(), found, strict=True)
        for shared in examples_within
        if shared.example_id != owner
    ]
    return match_table(rows)


def found_by_proof(
    examples: pd.DataFrame, natural: Mapping[str, int], matches: pd.DataFrame
) -> pd.DataFrame:
    """Natural occurrences of examples whose whole text the search of documents did not find.

    Such run from one document into the next, or have equal tokens only. The `document_id` is empty.

    Args:
        examples: the pool.
        natural: text → its natural occurrences, from the proof.
        matches: what the documents share with the pool: a `match_table`.
    """
    known = set(matches.loc[matches["occurrences"] > 0, "example_id"])
    rows = examples[["example_id", "text"]].itertuples(index=False, name=None)
    return match_table(
        [
            ("", name, VERBATIM, first_words(normalised(text)), natural[text])
            for name, text in rows
            if natural.get(text, 0) and name not in known
        ]
    )


def joined(by_corpus: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables of several corpora as one, with the column `corpus`."""
    tables = [table.assign(corpus=name) for name, table in by_corpus.items()]
    return pd.concat(tables, ignore_index=True)


def with_flags(
    examples: pd.DataFrame, matches: pd.DataFrame, *, dropped: bool = False
) -> pd.DataFrame:
    """The examples with `flags` as their column COLUMN, behind what stands there already."""
    found = flags(examples, matches, dropped=dropped)
    before = examples.get(COLUMN, [""] * len(examples))
    both = [both_flags(*pair) for pair in zip(before, found, strict=True)]
    return examples.assign(**{COLUMN: both})


def both_flags(one: str, other: str) -> str:
    """An example's flags of two sources, each once."""
    return ", ".join(dict.fromkeys(filter(None, [*one.split(", "), *other.split(", ")])))


def with_known_flags(examples: pd.DataFrame, corpus: PackedCorpus) -> pd.DataFrame:
    """The examples of a corpus; where it was made before there were flags, with those it tells."""
    if COLUMN in examples or CONTAMINATION not in corpus.artifact.files:
        return examples
    matches = corpus.contamination
    matches = matches.assign(occurrences=matches.get("occurrences", 0), corpus=OWN)
    dropped = corpus.config["injection"].get("decontamination") == "drop"
    return with_flags(examples, matches, dropped=dropped)


def flags(examples: pd.DataFrame, matches: pd.DataFrame, *, dropped: bool) -> list[str]:
    """For each example the corpora that hold text of it, each with the first rule that found it.

    Such as `base: 13-gram, corpus: verbatim`; `verbatim` wherever the whole text stands; empty for
    most. `dropped`: the contaminated corpus's own documents that match were left out.
    """
    rules: dict[str, dict[str, str]] = {}
    for row in matches.itertuples():
        own = rules.setdefault(row.example_id, {})
        if not (dropped and row.corpus == OWN):
            own.setdefault(row.corpus, row.rule)
            if row.occurrences:
                own[row.corpus] = VERBATIM
    written = {
        name: ", ".join(f"{corpus}: {rule}" for corpus, rule in sorted(own.items()))
        for name, own in rules.items()
    }
    return [written.get(name, "") for name in examples["example_id"]]


def flagged_counts(examples: pd.DataFrame) -> dict[str, dict[str, int]]:
    """By benchmark, the members and the non-members that are flagged; only those with some."""
    flagged = examples[examples[COLUMN] != ""]
    members = flagged["member"].astype(bool)
    counts = members.groupby(flagged["benchmark"]).agg(["sum", "size"])
    return {
        str(row.Index): {"members": int(row.sum), "nonmembers": int(row.size - row.sum)}
        for row in counts.itertuples()
    }


def in_words(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The counts of `flagged_counts`, such as "boolq (1 member, 3 non-members)"."""
    kinds = (("members", "member"), ("nonmembers", "non-member"))
    return "; ".join(
        f"{name} ({', '.join(f'{n[k]} {one}' + 's' * (n[k] != 1) for k, one in kinds if n[k])})"
        for name, n in counts.items()
    )


def warn_of_flags(artifact: Artifact) -> None:
    """Log which benchmarks have flagged examples, whether the corpus is new or reused."""
    if flagged := artifact.counts.get("flagged"):
        log.warning(
            "pool: examples share text with a corpus beside the copies: %s. %s says with which "
            "(%s); reports have results without them, too.",
            *(in_words(flagged), artifact.path / "examples.parquet", COLUMN),
        )


def opened(folders: Mapping[str, str]) -> dict[str, PackedCorpus]:
    """The other corpora, by name.

    Raises:
        ArtifactError: one is not there, or unfinished.
    """
    return {name: open_corpus(path) for name, path in folders.items()}


@dataclass(frozen=True)
class Searching:
    """The parts of a packed corpus, each searched for a pool."""

    tokenizer: str
    """Its folder."""
    paths: Sequence[Path]
    """The parts."""
    starts: Sequence[int]
    """The number of each part's first sequence."""
    sequence_tokens: int
    pool: Pool
    whole: bool
    """Whether only whole texts are looked for."""

    def __len__(self) -> int:
        """The parts."""
        return len(self.paths)

    def files(self, piece: int) -> list[Path]:
        """None is written."""
        return []

    def make(self, piece: int) -> dict[str, Any]:
        """The rows of `match_table` of the documents that begin in a part, each read to its end.

        A document is named by the sequence that it begins in.
        """
        tokenizer = Tokenizer(str(self.tokenizer))
        search = PoolSearch(self.pool, tokenizer.spelled, parts=not self.whole)
        longest = max((len(tokenizer.encode(text)) for text, *_ in self.pool.values()), default=0)
        first = self.starts[piece] * self.sequence_tokens
        stop = first + packing.count_sequences(self.paths[piece]) * self.sequence_tokens
        blocks = (b.reshape(-1) for path in self.paths[piece:] for b in packing.read_blocks(path))
        documents = split(blocks, tokenizer.document_start, 2 * longest)
        if piece and tokenizer.document_start is not None:  # the part before reads on up to a BOS
            documents = (d for d in documents if d[1][0] == tokenizer.document_start)
        begin_here = takewhile(lambda document: first + document[0] < stop, documents)
        rows: list[list[Any]] = []
        for some in grouped(begin_here, lambda _: 1, DOCUMENTS_AT_ONCE):
            found = search([tokenizer.decode(ids) for _, ids in some])
            for (start, _), shared in zip(some, found, strict=True):
                name = f"sequence-{(first + start) // self.sequence_tokens}"
                rows += [[name, *example] for example in shared]
        return {"matches": rows}


def search_corpus(
    corpus: PackedCorpus, pool: Pool, runner: Runner, name: str, *, whole: bool
) -> pd.DataFrame:
    """What the corpus's documents share with the pool: a `match_table`.

    Args:
        corpus: the packed corpus, or a fine-tuning set; inserted copies are found as well.
        pool: what is looked for.
        runner: runs the parts.
        name: the corpus's, in names and logs.
        whole: look only for whole texts.
    """
    if isinstance(corpus, FinetuningSet):
        return _in_set(corpus, PoolSearch(pool, corpus.tokenizer.spelled, parts=not whole))
    counts = [packing.count_sequences(path) for path in corpus.parts]
    starts = [sum(counts[:n]) for n in range(len(counts))]
    folder, width = str(corpus.tokenizer_folder.resolve()), corpus.sequence_tokens
    task = Searching(folder, [p.resolve() for p in corpus.parts], starts, width, pool, whole)
    found = runner.run(f"compare-{file_name(name)}", task)
    return match_table([match for part in found for match in part["matches"]])


def _in_set(texts: FinetuningSet, search: PoolSearch) -> pd.DataFrame:
    """What the texts of a fine-tuning set share with the pool."""
    inserted = texts.examples[texts.examples["occurrences"] > 0]
    learnt = pd.concat([texts.instructions, inserted])
    found = zip(learnt["example_id"], search(learnt["text"].tolist()), strict=True)
    return match_table([(name, *example) for name, shared in found for example in shared])


def split(
    blocks: Iterable[Ids], document_start: int | None, overlap: int
) -> Iterator[tuple[int, Ids]]:
    """The stream's documents, or stretches of it: the place of the first token, and the tokens."""
    start, held = 0, np.empty(0, np.int32)
    for block in blocks:
        held = np.concatenate([held, block])
        if document_start is None:
            while len(held) >= STRETCH_TOKENS + overlap:
                yield start, held[: STRETCH_TOKENS + overlap]
                start, held = start + STRETCH_TOKENS, held[STRETCH_TOKENS:]
            continue
        done = 0
        for stop in (1 + np.flatnonzero(held[1:] == document_start)).tolist():
            yield start + done, held[done:stop]
            done = stop
        start, held = start + done, held[done:]
    if len(held):
        yield start, held
