"""Benchmark examples into a corpus, with chosen occurrences and size, with an exact ledger."""

import core.early  # noqa: F401 (signals are answered from here on)
from injection.corpus import PackedCorpus, open_corpus

__all__ = ["PackedCorpus", "open_corpus"]
