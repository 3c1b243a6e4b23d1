"""CoDeC's share as a test: do more than half of a set's texts drop after others of the set?

Zawalski et al. (2025, arXiv 2510.27055) report the share of texts whose confidence drops after
other texts of the set (`detection.tasks.context_drop`), and no p-value. Without an effect of
context in either direction a text drops with probability 1/2, so that p = P(Bin(n, 1/2) ≥ k) of k
texts among n. That is no hypothesis about training: a model that knows the *distribution* of the
set drops as well, and a model that learns from context rises although it has seen the texts.
"""

from __future__ import annotations

from scipy.stats import binom

from contamination.audits.set_tests.version_rank import Tail


def context_share_tail(dropped: int, texts: int) -> Tail:
    """Returns P(Bin(texts, 1/2) ≥ dropped) and P(Bin(texts, 1/2) > dropped)."""
    at_least, above = binom.sf([dropped - 1, dropped], texts, 0.5).tolist()
    return Tail(at_least, above)
