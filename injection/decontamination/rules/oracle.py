"""The rule that knows the truth: it flags exactly the inserted copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contamination.core.errors import ConfigError
from contamination.injection.decontamination.rules.base import Counts, ItemSearch, Rule


@dataclass(frozen=True)
class Oracle(Rule):
    """Flags the inserted copies and no other document, so what remains is the clean twin.

    It reads no text but the ledger's truth, so it can be used only where a corpus is contaminated.
    """

    def search(self, items: Sequence[str], document_counts: Counts | None = None) -> ItemSearch:
        """Raises a ConfigError: in a corpus from elsewhere the truth is unknown."""
        raise ConfigError(
            "matcher is oracle: it knows which copies python -m injection inserted, and nothing "
            "about other corpora. Choose ngram_union, longest_match, embedding, marin or contam."
        )
