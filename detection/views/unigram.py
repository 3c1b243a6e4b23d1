"""A text as a corpus's token frequencies see it, without the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from contamination.detection.forward.reader import Reader, Tokens, ViewWork
from contamination.detection.models.base import LanguageModel
from contamination.detection.passes import Copies, Floats, Pass, TokenStats
from contamination.detection.token_frequencies import log_frequencies
from contamination.detection.views.base import View
from contamination.detection.views.original_and_lowercase import original


class UnigramView(View):
    """Gives each token the log of its frequency in a corpus as `logprob`; no model is run.

    A token that has occurred before in the text gets 0, as if it were certain. Every frequency is
    below 1, so that 0 marks a repetition and nothing else. Long texts are not cut.
    """

    def max_tokens_read(self, wanted: Pass, tokens: int) -> int:
        """Returns 0: the model reads nothing."""
        return 0

    def describe_work(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> ViewWork:
        """Describes looking up each token; see `View.describe_work`.

        Raises:
            ConfigError: there is no such corpus.
            DataError: the corpus has no text.
        """
        given = dict(wanted.parameters)
        corpus, characters = str(given["corpus"]), int(given["characters"])
        frequencies = log_frequencies(reader.source, corpus, characters)
        return ViewWork(partial(look_up_first_occurrences, log_frequencies=frequencies), tokens)


def look_up_first_occurrences(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    *,
    log_frequencies: Floats,
    progress: str | None = None,
) -> list[Copies]:
    """Returns the log-frequencies of each sequence's tokens after the first, 0 for repetitions.

    The first token is never scored, so its repetition is a first occurrence.
    """
    copies: list[Copies] = []
    for sequence in sequences:
        ids = np.asarray(sequence[1:])
        first = np.zeros(len(ids), bool)
        first[np.unique(ids, return_index=True)[1]] = True
        logprob = np.where(first, log_frequencies[ids], 0).astype(np.float32)
        copies.append((TokenStats(logprob=logprob),))
    return copies


VIEWS = {
    "unigram": UnigramView(original, rewords=False, covers_text=True, limited_to_context=False)
}
