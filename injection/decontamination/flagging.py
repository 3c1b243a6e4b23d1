"""Decontaminates a corpus while it is made: leaves out the copies and documents that a rule flags.

Each inserted copy must be a document of its own (injection.boundary=own_document), so the rule
reads it as it reads any other document. The inserted copies are known, so each decision is recorded
as right or wrong (`record_table`). The documents that follow fill the place of what is left out:
the corpus keeps its number of tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError, require
from contamination.data.readers import Document
from contamination.injection.config import OWN_DOCUMENT, InjectionStage
from contamination.injection.decontamination.rules.base import ItemSearch, Match, Rule
from contamination.injection.decontamination.rules.oracle import Oracle
from contamination.injection.token_stream import Tokenizer

if TYPE_CHECKING:
    import pandas as pd

    from contamination.injection.copies import Insertions
    from contamination.injection.placement import Segment

DECONTAMINATION_FILE = "decontamination.parquet"
COPY, DOCUMENT = "copy", "document"
"""What a row of the record is about."""


class FlaggedDocument(NamedTuple):
    """A document of the corpus that the rule flags."""

    document_id: str
    item: int
    """The item with the largest share."""
    kind: str
    share: float
    tokens: int


@dataclass(frozen=True)
class DocumentFlagging:
    """A rule with the items that it looks for; it can be sent to other processes."""

    rule: Rule
    items: tuple[str, ...]

    @property
    def is_oracle(self) -> bool:
        """Whether the rule flags the inserted copies and nothing else."""
        return isinstance(self.rule, Oracle)

    def matches(self, document: str) -> list[Match]:
        """Returns the items that the rule finds in a document."""
        return [] if self.is_oracle else _cached_search(self.rule, self.items).matches(document)

    def flag(
        self, documents: Mapping[int, Document], tokenizer: Tokenizer
    ) -> dict[int, FlaggedDocument]:
        """Returns what the rule flags: the document's key → the record of it."""
        flagged = {}
        for row, document in documents.items():
            if matches := self.matches(document.text):
                best = max(matches, key=lambda match: match.share)
                tokens = len(tokenizer.encode_documents([document.text])[0])
                flagged[row] = FlaggedDocument(
                    document.document_id, best.item, best.kind, best.share, tokens
                )
        return flagged

    @property
    def unseen(self) -> Sequence[str]:
        """For each item, why the rule can't find it in any document; "" if it can."""
        if self.is_oracle:
            return [""] * len(self.items)
        return _cached_search(self.rule, self.items).unseen


MOST_REMEMBERED = 200_000
"""The number of documents whose matches are remembered."""


class _RememberingSearch:
    """A search that reads equal documents once, since the cells of a sweep share most of them."""

    def __init__(self, search: ItemSearch) -> None:
        self._search, self.unseen = search, search.unseen
        self._matches_by_digest: dict[bytes, list[Match]] = {}

    def matches(self, document: str) -> list[Match]:
        """Returns the search's matches."""
        key = hashlib.sha256(document.encode()).digest()
        if key not in self._matches_by_digest:
            if len(self._matches_by_digest) >= MOST_REMEMBERED:
                self._matches_by_digest.clear()
            self._matches_by_digest[key] = self._search.matches(document)
        return self._matches_by_digest[key]


@lru_cache(maxsize=8)  # the rules of a sweep
def _cached_search(rule: Rule, items: tuple[str, ...]) -> _RememberingSearch:
    return _RememberingSearch(rule.search(items))


def check_matcher(stage: InjectionStage) -> Rule | None:
    """Returns the stage's rule, or None if there is none.

    Raises:
        ConfigError: the rule can't be used while a corpus is made.
    """
    if not stage.matcher:
        return None
    rule = instantiate_node("matcher", stage.matcher)
    remedy = "choose one of conf/matcher/."
    require(isinstance(rule, Rule), "matcher._target_", stage.matcher["_target_"], remedy)
    config = stage.injection
    remedy = "with a matcher each copy is a document of its own: choose own_document."
    require(config.boundary == OWN_DOCUMENT, "injection.boundary", config.boundary, remedy)
    remedy = "with a matcher choose local or none: the tasks of datatrove apply no rule."
    require(stage.cluster.kind != "datatrove", "cluster.kind", stage.cluster.kind, remedy)
    max_documents = getattr(rule, "max_documents", None)
    if max_documents is not None:
        raise ConfigError(
            f"matcher.max_documents is {max_documents}: while a corpus is made, n-grams are not "
            "counted over its documents. Give null, or choose matcher=ngram_13."
        )
    assert isinstance(rule, Rule)
    return rule


@dataclass(frozen=True)
class CopyDecision:
    """What the rule decided about one copy."""

    segment: Segment
    is_flagged: bool
    best: Match | None
    """The match with the largest share; None: no item matches."""
    is_right: bool
    """Whether the copy's own example is among the matches."""


def flag_copies(flagging: DocumentFlagging, copies: Insertions) -> list[CopyDecision]:
    """Returns the decision about each copy, in the order of the segments."""
    used = {segment.text for segment in copies.segments}
    matches_by_text = {number: flagging.matches(copies.texts[number]) for number in used}
    decisions = []
    for segment in copies.segments:
        matches = matches_by_text[segment.text]
        best = max(matches, key=lambda match: match.share, default=None)
        is_right = flagging.is_oracle or any(match.item == segment.example for match in matches)
        is_flagged = flagging.is_oracle or bool(matches)
        decisions.append(CopyDecision(segment, is_flagged, best, is_right))
    return decisions


def without_flagged(
    copies: Insertions, examples: pd.DataFrame, decisions: Sequence[CopyDecision]
) -> tuple[Insertions, pd.DataFrame]:
    """Returns the copies that are kept, and the examples with their remaining occurrences."""
    segments = [decision.segment for decision in decisions if not decision.is_flagged]
    occurrences = [0] * len(examples)
    for segment in segments:
        occurrences[segment.example] += 1
    return replace(copies, segments=segments), examples.assign(occurrences=occurrences)


def record_table(
    examples: pd.DataFrame,
    decisions: Sequence[CopyDecision],
    flagged: Sequence[Sequence[Any]],
    flagging: DocumentFlagging,
) -> pd.DataFrame:
    """Returns the record of a decontamination: a row per inserted copy and per flagged document.

    Columns: `kind` (COPY or DOCUMENT), `document_id` ("" for a copy), `example_id` and `copy` of a
    copy ("" and -1 for a document), `flagged`, `found_example` (the example whose match has the
    largest share; "" if there is none), `right` (whether the copy's own example is found), `share`
    (of that match; 0 without one), `tokens` (of the document, or of the copy with its special
    tokens) and `unseen` (why the rule can't find the copy's example; "" if it can).
    """
    import pandas as pd

    names = examples["example_id"].tolist()
    unseen = flagging.unseen
    rows = [
        {
            "kind": COPY,
            "document_id": "",
            "example_id": names[d.segment.example],
            "copy": d.segment.copy,
            "flagged": d.is_flagged,
            "found_example": "" if d.best is None else names[d.best.item],
            "right": d.is_right,
            "share": 0.0 if d.best is None else d.best.share,
            "tokens": d.segment.tokens,
            "unseen": unseen[d.segment.example],
        }
        for d in decisions
    ] + [
        {
            "kind": DOCUMENT,
            "document_id": document.document_id,
            "example_id": "",
            "copy": -1,
            "flagged": True,
            "found_example": names[document.item],
            "right": False,
            "share": document.share,
            "tokens": document.tokens,
            "unseen": "",
        }
        for document in (FlaggedDocument(*row[: len(FlaggedDocument._fields)]) for row in flagged)
    ]
    return pd.DataFrame(rows, columns=list(RECORD_COLUMNS))


RECORD_COLUMNS = (
    *("kind", "document_id", "example_id", "copy", "flagged", "found_example", "right", "share"),
    *("tokens", "unseen"),
)
