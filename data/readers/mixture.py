"""Subsets in given shares: a deterministic interleave of one stream a subset."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping

from contamination.core.errors import DataError, require
from contamination.data.readers import Document

log = logging.getLogger(__name__)


def check_weights(weights: Mapping[str, float]) -> None:
    """Refuse weights that no mixture has.

    Raises:
        ConfigError: a weight is not a finite number above 0.
    """
    require(bool(weights), "corpus.weights", weights, "name a subset, or give null.")
    for subset, weight in weights.items():
        good = isinstance(weight, int | float) and math.isfinite(weight) and weight > 0
        remedy = "give a number above 0, or leave the subset out."
        require(good, f"corpus.weights.{subset}", weight, remedy)


def interleave(
    streams: Mapping[str, Iterator[Document]], weights: Mapping[str, float]
) -> Iterator[Document]:
    """Merge the subsets' streams so that every prefix has about the weights' shares of characters.

    The next document is always of the subset that is furthest behind (fewest characters by its
    weight), so a subset is never further off than one document. Nothing is random, so the documents
    of a smaller budget are a prefix of a larger one's. Where a subset runs out, the others go on.

    Raises:
        DataError: a weighted subset has no document.
    """
    live, total = dict(streams), dict.fromkeys(streams, 0)
    whole = len(live)
    while live:
        subset = min(live, key=lambda name: (total[name] / weights[name], name))
        document = next(live[subset], None)
        if document is not None:
            total[subset] += len(document.text)
            yield document
            continue
        if not total[subset]:
            raise no_documents(subset)
        del live[subset]
        if len(live) == whole - 1 and live:  # said once: from here on the shares do not hold
            say_used_up(subset, total[subset])


def no_documents(subset: str) -> DataError:
    """What is wrong with a weighted subset without documents."""
    return DataError(
        f"corpus.weights names the subset {subset!r}, which has no documents: mend the name, or "
        "leave it out of corpus.weights."
    )


def say_used_up(subset: str, characters: int) -> None:
    """Warn that a subset's documents are all in the mixture."""
    log.warning(
        "corpus: the subset %s is used up after %s characters; the others go on, and the shares of "
        "corpus.weights no longer hold",
        *(subset, f"{characters:,}"),
    )
