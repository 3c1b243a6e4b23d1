"""PrivLeak: does a membership test find the forgotten texts as it would in a retrained model?

    PrivLeak = 100 · (AUC_unlearned − AUC_retrained) / AUC_retrained

(Shi et al. 2024, "MUSE", arXiv 2407.06460), where AUC is that of Min-K% between
forgotten texts and others that no model read. MUSE's code and open-unlearning count a *low* AUC for
members: their AUC is 1 − AUROC, where AUROC is high for texts that look trained on. So, as in their
tables,

    PrivLeak = 100 · (AUROC_retrained − AUROC_unlearned) / (1 − AUROC_retrained)

0 is best. Below 0 the texts are still known (−100: AUROC 1 beside a retrained model's 0.5). Above 0
they were pushed below texts that the model never saw, which reveals them just as well (+100: AUROC
0). The reference is the clean twin; without one open-unlearning takes 0.5, and so does this module.
The original in its place is wrong: with an AUROC of 0.981 it turns an AUROC of 2e-5 into +5163
(as in open-unlearning's issue 167), where 0.5 gives +100.

The denominator goes to 0 where even the twin's scores separate the texts, which says that these
differ in themselves. So PrivLeak is not defined where the twin's AUROC may be above MOST_RETRAINED.
"""

from __future__ import annotations

from math import nan

CHANCE = 0.5
"""The AUROC of a retrained model, if there is none: no score can tell its texts from others."""
MOST_RETRAINED = 0.99
"""The highest AUROC of a retrained model beside which PrivLeak is defined: above it, a difference
of 0.01 in AUROC is more than 100%."""


def privleak(unlearned: float, retrained: float = CHANCE) -> float:
    """Returns PrivLeak in percent.

    Args:
        unlearned: the AUROC of members against non-members by the unlearned model.
        retrained: that by the model that was trained without the members. If it is 1, the result
            is NaN.
    """
    return 100 * (retrained - unlearned) / (1 - retrained) if retrained < 1 else nan


Interval = tuple[float, float]


def privleak_interval(unlearned: Interval, retrained: Interval = (CHANCE, CHANCE)) -> Interval:
    """Returns the lowest and the highest PrivLeak of AUROCs within two intervals.

    PrivLeak falls with the unlearned model's AUROC and rises with the retrained one's.
    """
    return privleak(unlearned[1], retrained[0]), privleak(unlearned[0], retrained[1])
