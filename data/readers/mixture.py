"""Interleaves the documents of several subsets deterministically, in given shares."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping

from contamination.core.errors import DataError, require
from contamination.data.readers import Document

log = logging.getLogger(__name__)


def check_weights(weights: Mapping[str, float]) -> None:
    """Checks the weights of a mixture.

    Raises:
        ConfigError: a weight is not a finite number above 0.
    """
    require(bool(weights), "corpus.weights", weights, "name a subset, or give null.")
    for subset, weight in weights.items():
        valid = isinstance(weight, int | float) and math.isfinite(weight) and weight > 0
        remedy = "give a number above 0, or leave the subset out."
        require(valid, f"corpus.weights.{subset}", weight, remedy)


def interleave_by_weight(
    streams: Mapping[str, Iterator[Document]], weights: Mapping[str, float]
) -> Iterator[Document]:
    """Yields documents so that the shares of characters in every prefix are about the weights.

    The next document is always of the subset that is furthest behind (fewest characters divided by
    weight), so a subset is off by at most one document. The order is not random, so the documents
    of a smaller budget are a prefix of those of a larger one. If a subset ends, the others
    continue.

    Raises:
        DataError: a weighted subset has no document.
    """
    open_streams, total = dict(streams), dict.fromkeys(streams, 0)
    while open_streams:
        subset = min(open_streams, key=lambda name: (total[name] / weights[name], name))
        document = next(open_streams[subset], None)
        if document is not None:
            total[subset] += len(document.text)
            yield document
            continue
        if not total[subset]:
            raise no_documents_error(subset)
        del open_streams[subset]
        if len(open_streams) == len(streams) - 1 and open_streams:  # only for the first subset
            warn_of_used_up_subset(subset, total[subset])


def no_documents_error(subset: str) -> DataError:
    """Returns the error for a weighted subset without documents."""
    return DataError(
        f"corpus.weights names the subset {subset!r}, which has no documents: fix the name, or "
        "leave it out of corpus.weights."
    )


def warn_of_used_up_subset(subset: str, characters: int) -> None:
    """Warns that all documents of a subset are used."""
    log.warning(
        "corpus: the subset %s is used up after %s characters; the others continue, so the shares "
        "differ from corpus.weights",
        *(subset, f"{characters:,}"),
    )
