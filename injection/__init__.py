"""Benchmark examples into a corpus, with chosen occurrences and size, with an exact ledger."""

import core.early  # noqa: F401 (signals are answered from here on)
from injection.corpus import PackedCorpus, open_corpus

__all__ = ["PackedCorpus", "inject", "open_corpus"]


def inject(*words: str) -> PackedCorpus:
    """Make a contaminated corpus, or find it made: `python -m injection` with these words.

    Args:
        *words: overrides of conf/injection.yaml, such as `"injection.members=50"`.

    Raises:
        UserError: as the command does.
    """
    from core.compose import made
    from injection.config import InjectionStage
    from injection.run import run

    return open_corpus(made("injection", words, InjectionStage, run))
