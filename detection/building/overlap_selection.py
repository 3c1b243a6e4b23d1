"""`python -m detection select`: non-members by their overlap with a corpus, as MIMIR has them.

Duan et al. 2024 ("Do membership inference attacks work on large language models?", section 4) call
a text a non-member where at most x% of its n-grams are in the training data.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.core.artifacts import Artifact, Built
from contamination.core.config import SHARE, Ranged, at_least, create, limited, runtime
from contamination.core.errors import DataError, require
from contamination.core.tasks import Runner
from contamination.data.config import ExamplesConfig
from contamination.data.examples import FIELDS, id_of, lines_digest
from contamination.data.readers.rows import Tally
from contamination.data.rows import folded, raw_rows
from contamination.data.texts import Text, Texts, clusters_of
from contamination.detection.building.datasheet import blind_row, hashed, made_in, write
from contamination.detection.building.ngram_search import Documents, Packed, Read, Search
from contamination.detection.examples import open_examples
from contamination.injection.corpus import open_corpus

ABOUT = (
    "Non-members are candidates of which at most the given share of n-grams (words in a row, "
    "whatever their case and punctuation) stands in the corpus; candidates that were members "
    "before stay members, whatever their overlap. Few shared n-grams make a text unusual, so the "
    "selection itself may shift the style: `selection` says how well the texts alone tell what was "
    "kept from what was left out. The shares are exact: no Bloom filter stands between."
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SelectConfig(Ranged, node="select"):
    """Which candidates are kept (node `select`)."""

    ngram: int = limited(13, at_least(1))
    """Words of an n-gram; MIMIR has 7 and 13."""
    max_share: float = limited(0.2, SHARE)
    """The most of a text's n-grams that may stand in the corpus; MIMIR has 0.2 and 0.8."""
    processes: int = runtime(1, at_least(1))
    """Processes that read the corpus's files side by side."""


@dataclass(frozen=True)
class SelectStage:
    """Everything that one run needs."""

    runs: str = runtime("runs")
    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    corpus_folder: str | None = None
    """A corpus of the testbed: its packed sequences, copies of members included."""
    corpus: dict[str, Any] | None = None
    """Or any documents: a choice of conf/corpus."""
    select: SelectConfig = field(default_factory=SelectConfig)

    def __post_init__(self) -> None:
        remedy = "give either corpus_folder=runs/corpus/DIR or corpus=local_jsonl (or another)."
        both = (self.corpus_folder is None) != (self.corpus is None)
        require(both, "corpus_folder", self.corpus_folder, remedy)


def run(stage: SelectStage) -> Artifact:
    """Select the non-members, or find them selected.

    Raises:
        ArtifactError: the corpus folder is unfinished.
        DataError: candidates that can't be used, or of which none is kept.
    """
    candidates = open_examples(stage.examples)
    corpus, digest = _opened(stage)
    inputs = {"candidates": _labelled_digest(candidates), "corpus": digest}
    own = stage.select
    make = partial(_make, stage, candidates, corpus, inputs)
    return made_in(stage.runs, name_of(own), stage, own, inputs, make)


def name_of(own: SelectConfig) -> str:
    """The split as MIMIR calls it: ngram_13_0.2."""
    return f"ngram_{own.ngram}_{own.max_share:g}"


def _opened(stage: SelectStage) -> tuple[Read, str]:
    if stage.corpus_folder is not None:
        corpus = open_corpus(stage.corpus_folder)
        return Packed(corpus), corpus.artifact.digest
    source = create("corpus", stage.corpus or {})
    return Documents(source), source.fingerprint()


def _labelled_digest(candidates: Texts) -> str:
    return lines_digest(f"{one.sha256} {one.example_id} {one.label}" for one in candidates)


def _make(
    stage: SelectStage,
    candidates: Texts,
    corpus: Read,
    inputs: Mapping[str, str],
    folder: Path,
    notes: Path,
) -> Built:
    own = stage.select
    search = Search([one.text for one in candidates], own.ngram, corpus, notes)
    read = Runner(notes, num_proc=own.processes).run("overlap", search)
    shares = search.shares()
    members = np.array([one.label is True for one in candidates])
    kept = (shares <= own.max_share) & ~members
    if not kept.any():
        least = float(np.min(shares[~members & ~np.isnan(shares)], initial=np.inf))
        raise DataError(
            f"examples.path is {stage.examples.path!r}: of {int((~members).sum())} candidates none "
            f"has at most select.max_share={own.max_share:g} of its {own.ngram}-grams in the "
            f"corpus (the least share is {least:g}). Raise it, or give other candidates."
        )
    extras = _extras(stage.examples)
    rows = [
        _row(one, share, extras.get(one.example_id, {}))
        for one, share, keep in zip(candidates, shares, kept | members, strict=True)
        if keep
    ]
    sheet = {
        "name": f"{name_of(own)} of {Path(stage.examples.path).name}",
        "about": ABOUT,
        "settings": {"ngram": own.ngram, "max_share": own.max_share},
        "sources": hashed(inputs),
        "read": {name: sum(part[name] for part in read) for name in ("texts", "characters")},
        "candidates": _counts(shares, members, kept),
        "selection": {"kept against left out": _selection(candidates, shares, members, kept)},
        "shares": _histogram(shares, members),
    }
    return write(folder, sheet, {name_of(own): rows}, "other")


def _counts(
    shares: NDArray[np.float64], members: NDArray[np.bool_], kept: NDArray[np.bool_]
) -> dict[str, int]:
    short = np.isnan(shares) & ~members
    return {
        "members": int(members.sum()),
        "kept": int(kept.sum()),
        "left_out_for_overlap": int((~members & ~kept & ~short).sum()),
        "left_out_as_shorter_than_an_n-gram": int(short.sum()),
    }


def _selection(
    candidates: Texts,
    shares: NDArray[np.float64],
    members: NDArray[np.bool_],
    kept: NDArray[np.bool_],
) -> dict[str, Any]:
    """How well the texts alone tell what was kept from what was left out for its overlap."""
    others = [n for n in range(len(candidates)) if not members[n] and not np.isnan(shares[n])]
    some = [candidates[n] for n in others]
    return blind_row([t.text for t in some], [int(kept[n]) for n in others], clusters_of(some))


def _histogram(shares: NDArray[np.float64], members: NDArray[np.bool_]) -> list[dict[str, Any]]:
    edges = np.linspace(0, 1, 11)
    return [
        {
            "share": f"{low:.1f} to {high:.1f}",
            "candidates": _within(shares[~members], low, high),
            "members": _within(shares[members], low, high),
        }
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]


def _within(shares: NDArray[np.float64], low: float, high: float) -> int:
    """How many are above `low`, or 0 as it is, and up to `high`."""
    return int((((shares > low) | ((low == 0) & (shares == 0))) & (shares <= high)).sum())


def _extras(examples: ExamplesConfig) -> dict[str, Mapping[str, Any]]:
    """The other columns of a file's rows, by id."""
    if not Path(examples.path).expanduser().is_file():
        return {}
    rows = raw_rows(examples, Tally("skip", "examples.on_error"))
    return {
        id_of(row): {k: v for k, v in row.value.items() if folded(k) not in FIELDS} for row in rows
    }


def _row(one: Text, share: float, extras: Mapping[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {"id": one.example_id, "text": one.text, "label": int(one.label is True)}
    if one.cluster:
        own["cluster"] = one.cluster
    if one.output_start is not None:
        own["output_start"] = one.output_start
    overlap = None if np.isnan(share) else round(float(share), 6)
    return {**extras, **own, "benchmark": one.benchmark, "overlap": overlap}
