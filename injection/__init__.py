"""Inserts benchmark examples into a corpus a chosen number of times, with an exact ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contamination.core.process_startup import lazy_exports

if TYPE_CHECKING:
    from contamination.injection.corpus import PackedCorpus, open_corpus

__all__ = ["PackedCorpus", "inject", "open_corpus"]
__getattr__ = lazy_exports(__name__, {"PackedCorpus": "corpus", "open_corpus": "corpus"})


def inject(*words: str) -> PackedCorpus:
    """Returns a contaminated corpus, built unless it exists, as `python -m injection` does.

    Args:
        *words: overrides for conf/injection.yaml, such as `"injection.members=50"`.

    Raises:
        UserError: as the command would report it.
    """
    from contamination.core.cli import run_stage
    from contamination.injection.config import InjectionStage
    from contamination.injection.corpus import open_corpus
    from contamination.injection.run import run

    return open_corpus(run_stage("injection", words, InjectionStage, run))
