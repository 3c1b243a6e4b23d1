"""The report of the one-run bound: the bound, what it is a bound of, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import pandas as pd

from contamination.audits.cells import AuditedCell
from contamination.audits.one_run_bound.guesses import OneRunBound
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import Table

LIMITS = (
    "**How private the training is.** The bound says “at least”. One run shows less than many: the "
    "examples interfere with one another, and an attack that is weak here leaves ε unseen "
    "(arXiv 2503.07199). A bound of 0 does not show privacy.",
    "A claim about one copy or one sequence. A coin puts all copies of an example in or leaves all "
    "of them out, and the documents after a copy move on, so that other sequences change as well.",
    "A bound for a rule that was chosen after looking. Naming another attack because this one gave "
    "less is a second look, and both need a corrected level (audit.attacks=[first,second]).",
)
"""What the bound can't prove."""


@dataclass(frozen=True)
class Group:
    """What a coin puts into the training data.

    Attributes:
        fewest: the copies of the member with the fewest.
        most: the copies of the member with the most.
        sequences: the sequences that contain a copy of a member, at most.
    """

    fewest: int
    most: int
    sequences: int

    def describe(self) -> str:
        """Returns a text such as "an example with its 4 copies"."""
        copies = f"{self.most}" if self.fewest == self.most else f"{self.fewest} to {self.most}"
        plural = "copy" if self.most == 1 else "copies"
        return f"an example with its {copies} {plural}, in up to {self.sequences} sequences"


def group_of(cell: AuditedCell) -> Group:
    """Returns what a coin puts into the training data: copies, and the sequences they are in."""
    doses = cell.doses[cell.cell.examples["member"].to_numpy(bool)]
    sequences = cell.corpus.ledger.groupby("example_id")["sequence"].nunique()
    if not len(doses):
        return Group(0, 0, 0)
    return Group(int(doses.min()), int(doses.max()), int(sequences.max()) if len(sequences) else 0)


def report(
    bound: OneRunBound, group: Group, rules: int, is_split: bool, facts: Mapping[str, str]
) -> ReportContent:
    """Returns the bound in sentences and a table.

    Args:
        bound: the bound.
        group: what it is a bound of.
        rules: the number of rules for which the level was corrected.
        is_split: whether the rule was chosen on a half of the examples.
        facts: what the audit is based on, by name.
    """
    rule = (
        "chosen on the other half of the examples"
        if is_split
        else "named in advance"
        if rules == 1
        else f"the best of {rules} named in advance, at a corrected level"
    )
    return ReportContent(
        title="A lower bound on ε from one training run",
        conclusions=[*_conclusions(bound, group, rule)],
        warnings=[*_warnings(bound, group)],
        tables=[_table(bound, group, rules)],
        limits=LIMITS,
        facts={
            **facts,
            "rule": f"{bound.rule.attack}, {bound.rule.share:g} of the examples guessed; {rule}",
            "method": "Steinke, Nasr and Jagielski 2023, theorem 5.2 (arXiv 2305.08846)",
        },
    )


def _conclusions(bound: OneRunBound, group: Group, rule: str) -> Iterator[str]:
    level = f"δ = {bound.delta:g}, {1 - _total_error(bound):.0%} confidence"
    unit = group.describe()
    if bound.epsilon > 0:
        yield f"**ε ≥ {bound.epsilon:.2f}** ({level}). The unit is {unit}."
    else:
        yield f"**No ε above 0 is shown** ({level}). The unit is {unit}."
    yield (
        f"By the scores of {bound.rule.attack}, {bound.guesses} of {bound.examples} coins were "
        f"guessed and {bound.correct} guesses were right (the rule was {rule}). All right would "
        f"have shown ε ≥ {bound.most:.2f}. The p-value of ε = 0 is {bound.p_value:.2g}."
    )
    if bound.epsilon > 0 and bound.delta == 0 and group.most > 1:
        yield (
            f"For one copy it follows that ε ≥ {bound.epsilon / group.most:.2f}, a "
            f"{group.most}th of it (group privacy, with δ = 0)."
        )


def _total_error(bound: OneRunBound) -> float:
    return (1 - bound.confidence) * bound.looks


def _warnings(bound: OneRunBound, group: Group) -> Iterator[str]:
    if group.fewest < group.most:
        yield (
            f"The members have {group.fewest} to {group.most} copies, which are drawn for all "
            "members together. A coin therefore changes the copies of other examples, too, and the "
            "theorem assumes that it changes one example alone. For a bound that holds give a cell "
            "with occurrences=fixed."
        )
    if bound.guesses < bound.examples and bound.most < 1:
        yield (
            f"{bound.guesses} guesses show ε ≥ {bound.most:.2f} at most: insert more examples, or "
            "guess a larger share."
        )


def _table(bound: OneRunBound, group: Group, rules: int) -> Table:
    row = {key: value for key, value in asdict(bound).items() if key != "rule"}
    row |= {"attack": bound.rule.attack, "share": bound.rule.share, "rules": rules}
    row |= {"fewest_copies": group.fewest, "most_copies": group.most}
    row |= {"most_sequences": group.sequences}
    header = ["attack", "ε at least", "δ", "guesses", "right", "examples", "p of ε = 0", "copies"]
    line = [
        bound.rule.attack, f"{bound.epsilon:.3f}", f"{bound.delta:g}", str(bound.guesses),
        str(bound.correct), str(bound.examples), f"{bound.p_value:.2g}", str(group.most),
    ]  # fmt: skip
    return Table("bound", "The bound", header, [line], pd.DataFrame([row]))
