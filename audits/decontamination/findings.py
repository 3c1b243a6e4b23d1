"""What a rule finds, costs and leaves, for each form of leak.

The truth is the record of the inserted copies. The twin is the cell of the same form and seed
without any copy (matcher=oracle); the cell with matcher=none has all copies. In nats per token:

    effect = mean over members (log p − log p of the twin) − the same over non-members,

so what the model learns from the leak about all items of the benchmark, such as their format, does
not count as an effect on members. The share that remains is effect(rule) / effect(none).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from contamination.audits.decontamination.inputs import (
    NONE,
    ORACLE,
    Flags,
    RuleCells,
    Study,
)
from contamination.audits.reference_attack.strength import (
    MeanOverCells,
    d_prime,
    mean_auroc,
    mean_over_examples,
    ratio,
)
from contamination.core.statistics.clopper_pearson import clopper_pearson

SHORT_WORDS = 13
"""Items with fewer words have no 13-gram."""
FEWEST_ESCAPED = 5
"""Fewer members of a benchmark with copies left give no AUROC of what escaped."""


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its confidence interval; NaN: there is none."""

    value: float
    low: float
    high: float


NO_INTERVAL = Interval(np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class RuleFindings:
    """What a rule does to one form of leak.

    Attributes:
        form: the form of the leak.
        rule: the rule.
        recall: the share of the members' copies that are flagged.
        recall_by_kind: the same of each benchmark, and of items with fewer words than a 13-gram and
            with at least so many.
        right: the share of the flagged copies in which the copy's own example is found.
        precision: the share of flagged copies among all documents that are flagged.
        documents_lost: the number of clean documents that are flagged, in all cells.
        tokens_lost: the number of their tokens.
        share_lost: these tokens as a share of the clean text that was read.
        leaked_tokens_left: the share of the leaked copies' tokens that remains in the corpus.
        unseen: the share of the members' copies that the rule can't see by construction.
        effect: the remaining effect on members, in nats per token.
        spillover: the mean difference of non-members from the twin, in nats per token. It shares
            all that differs between two trainings, so its interval is Student's over cells.
        share_left: the effect as a share of that without decontamination; NaN if that is not
            clearly above 0.
        auroc: the AUROC of all members, and its d′.
        d_prime: the same as d′.
        escaped_auroc: the AUROC of members with copies left.
        escaped_members: their number, in all cells.
        by_seed: one row per seed with the same quantities as values.
    """

    form: str
    rule: str
    recall: Interval
    recall_by_kind: dict[str, Interval]
    right: float
    precision: Interval
    documents_lost: int
    tokens_lost: int
    share_lost: float
    leaked_tokens_left: float
    unseen: float
    effect: Interval
    spillover: Interval
    share_left: Interval
    auroc: Interval
    d_prime: Interval
    escaped_auroc: Interval
    escaped_members: int
    by_seed: pd.DataFrame


def find_all(study: Study, confidence: float) -> list[RuleFindings]:
    """Returns the findings of all rules and forms."""
    return [
        find(study, rules[NONE], rules[ORACLE], cells, confidence)
        for rules in study.cells.values()
        for cells in rules.values()
    ]


def find(
    study: Study, untreated: RuleCells, twin: RuleCells, cells: RuleCells, confidence: float
) -> RuleFindings:
    """Returns what a rule finds, costs and leaves.

    Args:
        study: the members and benchmarks.
        untreated: the cells of the form without decontamination.
        twin: the cells of the form without any copy.
        cells: the cells of the rule.
        confidence: the confidence of the intervals.
    """
    interval = partial(_interval, confidence=confidence)
    leaked = study.member & (cells.leaked > 0)
    flagged = cells.leaked - cells.kept
    recall = partial(_recall, cells=cells, confidence=confidence)
    is_short = np.broadcast_to(study.words < SHORT_WORDS, leaked.shape)
    kinds = {
        **{name: leaked & (study.benchmarks == name) for name in np.unique(study.benchmarks)},
        f"under {SHORT_WORDS} words": leaked & is_short,
        f"{SHORT_WORDS} words or more": leaked & ~is_short,
    }
    lost = cells.lost.sum(numeric_only=True)
    documents, copies = int(lost["documents_lost"]), int(lost["copies_flagged"])
    tokens_read = lost["tokens_lost"] + lost["clean_tokens"]
    all_copy_tokens = float(twin.lost["copy_tokens_lost"].sum())
    effect, spillover = _effect(study, cells, twin)
    full_effect, _ = _effect(study, untreated, twin)
    is_clear = full_effect.interval(confidence)[0] > 0
    auroc = mean_auroc(cells.scores, study.member, ~study.member, study.benchmarks)
    escaped = study.member & (cells.kept > 0)
    return RuleFindings(
        form=cells.form,
        rule=cells.rule,
        recall=recall(leaked),
        recall_by_kind={name: recall(chosen) for name, chosen in kinds.items()},
        right=float(lost["copies_right"] / copies) if copies else np.nan,
        precision=_precision(copies, documents, int((flagged > 0).sum()), confidence),
        documents_lost=documents,
        tokens_lost=int(lost["tokens_lost"]),
        share_lost=float(lost["tokens_lost"] / tokens_read),
        leaked_tokens_left=1 - float(lost["copy_tokens_lost"]) / all_copy_tokens,
        unseen=float((cells.leaked * (cells.unseen & leaked)).sum() / cells.leaked.sum()),
        effect=interval(effect),
        spillover=Interval(spillover.value, *spillover.student_interval(confidence)),
        share_left=interval(ratio(effect, full_effect)) if is_clear else NO_INTERVAL,
        auroc=interval(auroc),
        d_prime=interval(d_prime(auroc)),
        escaped_auroc=interval(_escaped_auroc(study, cells, escaped)),
        escaped_members=int(escaped.sum()),
        by_seed=_by_seed(study, untreated, twin, cells),
    )


def _interval(mean: MeanOverCells | None, confidence: float) -> Interval:
    return NO_INTERVAL if mean is None else Interval(mean.value, *mean.interval(confidence))


def _recall(chosen: Flags, cells: RuleCells, confidence: float) -> Interval:
    """The share of flagged copies; for the interval each member of a cell is one trial."""
    leaked = int(cells.leaked[chosen].sum())
    if not leaked:
        return NO_INTERVAL
    share = float((cells.leaked - cells.kept)[chosen].sum() / leaked)
    trials = int(chosen.sum())
    return Interval(share, *_shared_trials(share, trials, confidence))


def _precision(copies: int, documents: int, examples: int, confidence: float) -> Interval:
    """The share of copies among flagged documents; the copies of an example are one trial."""
    if not copies + documents:
        return NO_INTERVAL
    share = copies / (copies + documents)
    return Interval(share, *_shared_trials(share, examples + documents, confidence))


def _shared_trials(share: float, trials: int, confidence: float) -> tuple[float, float]:
    """The ends of Clopper and Pearson's interval, for a share that need not be whole trials."""
    hits = share * trials
    low, _ = clopper_pearson(int(np.floor(hits + 1e-9)), trials, confidence)
    _, high = clopper_pearson(int(np.ceil(hits - 1e-9)), trials, confidence)
    return low, high


def _effect(study: Study, cells: RuleCells, twin: RuleCells) -> tuple[MeanOverCells, MeanOverCells]:
    """The effect on members, and the mean difference of non-members from the twin."""
    difference = cells.log_probability - twin.log_probability
    members = mean_over_examples(difference, study.member, study.benchmarks)
    others = mean_over_examples(difference, ~study.member, study.benchmarks)
    assert members is not None
    assert others is not None
    return members - others, others


def _escaped_auroc(study: Study, cells: RuleCells, escaped: Flags) -> MeanOverCells | None:
    enough = np.zeros_like(escaped)
    for cell, row in enumerate(escaped):
        for name in np.unique(study.benchmarks):
            of_benchmark = study.benchmarks == name
            if (row & of_benchmark).sum() >= FEWEST_ESCAPED:
                enough[cell] |= row & of_benchmark
    if not enough.any():
        return None
    return mean_auroc(cells.scores, enough, ~study.member, study.benchmarks)


def _by_seed(study: Study, untreated: RuleCells, twin: RuleCells, cells: RuleCells) -> pd.DataFrame:
    rows = []
    for number, seed in enumerate(study.seeds):
        row_of_cell = slice(number, number + 1)
        member = study.member[row_of_cell]
        auroc = mean_auroc(cells.scores[row_of_cell], member, ~member, study.benchmarks)
        leaked, kept = cells.leaked[number], cells.kept[number]
        effects = []
        for compared in (cells, untreated):
            difference = (compared.log_probability - twin.log_probability)[row_of_cell]
            means = [
                mean_over_examples(difference, side, study.benchmarks) for side in (member, ~member)
            ]
            effects.append(means[0].value - means[1].value if all(means) else np.nan)  # type: ignore[union-attr]
        rows.append({
            "form": cells.form, "rule": cells.rule, "seed": seed,
            "recall": float((leaked - kept).sum() / leaked.sum()),
            "auroc": auroc.value, "effect": effects[0], "effect_without_rule": effects[1],
            **cells.lost.iloc[number].drop("seed").to_dict(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def findings_frame(findings: Sequence[RuleFindings], study: Study) -> pd.DataFrame:
    """Returns one row per form and rule with all quantities and the ends of their intervals."""
    names = ("recall", "precision", "effect", "spillover", "share_left", "auroc", "d_prime",
             "escaped_auroc")  # fmt: skip
    plain = ("right", "documents_lost", "tokens_lost", "share_lost", "leaked_tokens_left", "unseen",
             "escaped_members")  # fmt: skip
    rows = []
    for f in findings:
        row: dict[str, object] = {"form": f.form, "rule": f.rule}
        for name in names:
            estimate = getattr(f, name)
            row |= {
                name: estimate.value,
                f"{name}_low": estimate.low,
                f"{name}_high": estimate.high,
            }
        row |= {name: getattr(f, name) for name in plain}
        row |= {f"recall, {kind}": estimate.value for kind, estimate in f.recall_by_kind.items()}
        same = study.index[(study.index["form"] == f.form) & (study.index["rule"] == f.rule)]
        row["models"] = " ".join(same["model"])
        rows.append(row)
    return pd.DataFrame(rows)
