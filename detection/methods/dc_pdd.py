"""DC-PDD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from contamination.core.config import POSITIVE, at_least, ranged_field
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass
from contamination.detection.token_frequencies import SOURCES, corpus_digest


@dataclass(frozen=True, kw_only=True)
class DcPdd(Method):
    """Divergence from a corpus's token frequencies (DC-PDD; Zhang et al. 2024, arXiv 2409.14781).

    score(x) = the mean over the first occurrence of each token of min(p(x_t | x_<t) · log(1 /
    f(x_t)), limit), in nats, with f = (count + 1) / (N + V) the smoothed frequency of the token
    among the N tokens of a corpus, and V the size of the vocabulary (the paper's cross-entropy of
    the two distributions, taken token by token as in the authors' code). A likely token counts more
    if it is rare. The first token of a text is not scored. The corpus stands for what models are
    trained on: with the training corpus itself an attacker knows more than usual. No model is run
    for the frequencies.
    """

    corpus: str | None = None
    """Where tokens are counted: `embedded` (the package's own texts), a finished corpus folder, or
    a file of plain text; null leaves the method out of `method=all`."""

    characters: int = ranged_field(5_000_000, at_least(1))
    """The number of characters of the corpus to count, from its beginning, 1 or more."""

    limit: float = ranged_field(0.01, POSITIVE)
    """The most that a token counts, above 0; the paper's value for English."""

    @property
    def lack(self) -> tuple[str, str] | None:
        """Returns that no corpus is given."""
        if self.corpus is not None:
            return None
        need = f"method.dc_pdd.corpus ({SOURCES})"
        return need, f"a corpus, but method.dc_pdd.corpus is null. Give {SOURCES}."

    @property
    def digests(self) -> Mapping[str, str]:
        """Returns the corpus's hash."""
        return {} if self.corpus is None else {"corpus_digest": corpus_digest(self.corpus)}

    @cached_property
    def frequency_pass(self) -> Pass:
        """Returns the look-up of the tokens' frequencies."""
        digest = "".join(self.digests.values())[:16]
        corpus = str(self.corpus)
        return Pass(view="unigram", corpus=corpus, characters=self.characters, digest=digest)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Returns the text's pass and the look-up."""
        return (ORIGINAL, self.frequency_pass)

    def score(self, example: Example) -> float:
        """Returns the mean of the first occurrences' limited terms."""
        logprob = example.stats(ORIGINAL).logprob.astype(np.float64)
        log_frequency = example.stats(self.frequency_pass).logprob[: len(logprob)]
        first = log_frequency < 0
        terms = np.exp(logprob[first]) * -log_frequency[first].astype(np.float64)
        return float(np.minimum(terms, self.limit).mean())
