"""Con-ReCaLL."""

from __future__ import annotations

from dataclasses import dataclass

from contamination.core.config import Range, at_least, ranged_field
from contamination.detection.methods._shared import mean_logprob_ratio
from contamination.detection.methods.base import Method
from contamination.detection.passes import ORIGINAL, Example, Pass

STRENGTH = Range(lambda gamma: 0 <= gamma <= 1, "give a number from 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class ConRecall(Method):
    """Contrastive ReCaLL (Con-ReCaLL; Wang et al. 2024, arXiv 2409.03363).

    score(x) = (LL(x | P_non) − gamma · LL(x | P_mem)) / LL(x), with LL the mean log p of a token in
    nats, so that the score has no unit. P_non is ReCaLL's prefix of non-members, P_mem one of
    members: the lines of `prefix.path` with `member`: true. With gamma = 0 it is ReCaLL. An
    attacker needs texts that the model is known to have seen. The text is tokenised once, so all
    means are over the same tokens; the authors' code also scores the first token after a prefix. It
    tries nine values of gamma on the texts that it scores; here it is fixed. It won on WikiMIA and
    the like only, whose members and non-members differ in time: a prefix of either side then shows
    the model that difference, which is not membership.
    """

    shots: int = ranged_field(7, at_least(1))
    """Texts in each prefix, 1 or more. Fewer are used, with a warning, if a text has no room."""

    gamma: float = ranged_field(0.5, STRENGTH)
    """How much the prefix of members counts, from 0 to 1."""

    @property
    def nonmember_pass(self) -> Pass:
        """The pass over the text after non-members, which is ReCaLL's."""
        return Pass(view="prefix", shots=self.shots)

    @property
    def member_pass(self) -> Pass:
        """The pass over the text after members."""
        return Pass(view="member_prefix", shots=self.shots)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The text alone and after each of the prefixes."""
        return (ORIGINAL, self.nonmember_pass, self.member_pass)

    def score(self, example: Example) -> float:
        """Returns the difference of the two ratios."""
        text = example.stats(ORIGINAL)
        after_nonmembers = mean_logprob_ratio(example.stats(self.nonmember_pass), text)
        after_members = mean_logprob_ratio(example.stats(self.member_pass), text)
        return after_nonmembers - self.gamma * after_members
