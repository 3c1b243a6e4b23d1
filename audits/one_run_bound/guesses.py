"""Rules for guesses, which are fixed before the coins that they are judged by are looked at.

A bound holds for guesses that do not depend on the coins. Whoever tries several methods or numbers
of guesses and reports the largest ε has no bound. So `bound` takes a rule, and a rule is made in
one of two ways: `GuessRule` names a method and a number of guesses in advance, and `choose_on_half`
chooses them on one half of the examples, whose coins are then not judged by. Several rules that
were named in advance may be tried together (`bound_of_several`) at a corrected level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from contamination.audits.one_run_bound.one_run_epsilon import one_run_epsilon, one_run_p_value
from contamination.core.errors import ConfigError
from contamination.core.seeds import derive_seed

Labels = NDArray[np.bool_]
SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)
"""The shares of guessed examples among which `choose_on_half` chooses."""


@dataclass(frozen=True)
class AttackScores:
    """One attack's scores of all examples; a higher score means a member.

    Attributes:
        attack: the attack's name, such as "min_k k=0.2".
        scores: shape (examples,).
        benchmarks: the benchmark of each example, within which scores are ranked.
    """

    attack: str
    scores: NDArray[np.float64]
    benchmarks: NDArray[np.str_]

    def ranks(self, among: Labels) -> NDArray[np.float64]:
        """Returns each example's rank within its benchmark, from 0 to 1; no label is used.

        Args:
            among: the examples that are ranked; the others get NaN. Shape (examples,).
        """
        ranks = np.full(len(self.scores), np.nan)
        for benchmark in np.unique(self.benchmarks[among]):
            rows = np.flatnonzero(among & (self.benchmarks == benchmark))
            ranks[rows] = (rankdata(self.scores[rows]) - 0.5) / len(rows)
        return ranks


@dataclass(frozen=True)
class GuessRule:
    """An attack and the share of examples that it guesses, named before any coin is looked at.

    Half of the guesses are the examples with the highest scores, guessed to be members, and half
    those with the lowest, guessed to be non-members.

    Attributes:
        attack: the attack's name.
        share: the share of examples that are guessed.
        judged: which examples' coins the rule may be judged by; None: all. It was not chosen on
            these.
    """

    attack: str
    share: float
    judged: Labels | None = field(default=None, compare=False)

    def guess(self, scores: AttackScores) -> Guesses:
        """Returns the guesses by the scores of the rule's attack.

        Raises:
            ConfigError: they are another attack's scores.
        """
        if scores.attack != self.attack:
            raise ConfigError(
                f"audit.attack is {self.attack!r}, but these are scores of {scores.attack!r}: a "
                "rule that was fixed for one attack says nothing about another. Name the attack in "
                "advance."
            )
        judged = np.ones(len(scores.scores), bool) if self.judged is None else self.judged
        ranks = scores.ranks(judged)
        per_side = int(self.share * judged.sum() / 2)
        order = np.lexsort((np.arange(len(ranks)), np.where(judged, ranks, np.inf)))
        order = order[: int(judged.sum())]
        signs = np.zeros(len(ranks), np.int8)
        signs[order[:per_side]] = -1
        signs[order[len(order) - per_side :]] = 1
        return Guesses(self, signs, judged)


@dataclass(frozen=True)
class Guesses:
    """The guesses of a rule; only `GuessRule.guess` makes them.

    Attributes:
        rule: the rule.
        signs: 1: guessed to be a member, −1: a non-member, 0: no guess. Shape (examples,).
        judged: the examples whose coins are judged by. Shape (examples,).
    """

    rule: GuessRule
    signs: NDArray[np.int8]
    judged: Labels


@dataclass(frozen=True)
class OneRunBound:
    """A lower bound on ε, and what it was computed from."""

    rule: GuessRule
    epsilon: float
    """The largest ε that is refuted."""
    p_value: float
    """Of ε = 0 with the same δ: that the training keeps no trace of an example."""
    examples: int
    guesses: int
    correct: int
    delta: float
    confidence: float
    """Of this bound alone, after the correction for several."""
    most: float
    """The bound if all guesses were right."""
    looks: int = 1
    """The number of rules among which the level was divided."""


def bound(
    rule: GuessRule, scores: AttackScores, member: Labels, delta: float, confidence: float
) -> OneRunBound:
    """Returns the lower bound on ε that a rule's guesses give.

    Args:
        rule: the rule, fixed in advance or on other examples.
        scores: the scores of its attack.
        member: who is a member, by independent fair coins. Shape (examples,).
        delta: the δ of the (ε, δ) that is refuted.
        confidence: of the bound.
    """
    guesses = rule.guess(scores)
    is_guessed = guesses.signs != 0
    examples, number = int(guesses.judged.sum()), int(is_guessed.sum())
    correct = int((member[is_guessed] == (guesses.signs[is_guessed] > 0)).sum())
    counts = examples, number
    return OneRunBound(
        rule,
        one_run_epsilon(*counts, correct, delta, confidence),
        one_run_p_value(*counts, correct, 0.0, delta),
        *(*counts, correct, delta, confidence),
        most=one_run_epsilon(*counts, number, delta, confidence),
    )


def bound_of_several(
    rules: Sequence[GuessRule],
    scores: Mapping[str, AttackScores],
    member: Labels,
    delta: float,
    confidence: float,
) -> OneRunBound:
    """Returns the largest bound of several rules named in advance, at a corrected level.

    Each is at level (1 − `confidence`) / rules (Bonferroni), so the largest holds at `confidence`.
    """
    corrected = 1 - (1 - confidence) / len(rules)
    bounds = [bound(rule, scores[rule.attack], member, delta, corrected) for rule in rules]
    best = max(bounds, key=lambda of_rule: (of_rule.epsilon, -of_rule.p_value))
    return replace(best, looks=len(rules))


def choose_on_half(
    scores: Sequence[AttackScores],
    member: Labels,
    delta: float,
    confidence: float,
    seed: int,
    shares: Sequence[float] = SHARES,
) -> GuessRule:
    """Returns the rule with the largest bound on a random half, to be judged by the other half.

    Args:
        scores: the scores of the attacks among which one is chosen.
        member: who is a member. Shape (examples,).
        delta: of the bound.
        confidence: of the bound.
        seed: of the division into halves.
        shares: the shares of guessed examples among which one is chosen.
    """
    order = np.random.default_rng(derive_seed(seed, "one-run halves")).permutation(len(member))
    chosen_on = np.zeros(len(member), bool)
    chosen_on[order[: len(member) // 2]] = True
    candidates = [
        bound(GuessRule(of_attack.attack, share, chosen_on), of_attack, member, delta, confidence)
        for of_attack in scores
        for share in shares
    ]
    best = max(candidates, key=lambda candidate: (candidate.epsilon, -candidate.p_value)).rule
    return GuessRule(best.attack, best.share, ~chosen_on)
