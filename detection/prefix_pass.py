"""The pass of texts behind prefixes, of which there may be one for each benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from detection.decoder import Decoder
from detection.passes import TokenStats
from detection.views.prefix import Shots, run_after


def run_prefixed(
    decoder: Decoder,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    prefix_of: Sequence[int],
    prefixes: Sequence[Shots],
    batch_tokens: int,
    context: int | None,
    progress: str | None = None,
) -> list[TokenStats]:
    """The statistics of each sequence behind its prefix, `prefixes[prefix_of[i]]`, in order.

    The other arguments and the errors are `run_after`'s.
    """
    results: dict[int, TokenStats] = {}
    for number in sorted(set(prefix_of)):
        places = [i for i, its in enumerate(prefix_of) if its == number]
        own = [sequences[i] for i in places], [names[i] for i in places]
        found = run_after(decoder, prefixes[number], *own, batch_tokens, context, progress)
        results.update(zip(places, found, strict=True))
    return [results[i] for i in range(len(sequences))]
