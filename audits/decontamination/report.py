"""The report: rules × forms, what each rule costs, and what the figures can't show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from contamination.audits.decontamination.findings import (
    FEWEST_ESCAPED,
    Interval,
    RuleFindings,
    findings_frame,
)
from contamination.audits.decontamination.inputs import NONE, ORACLE, Study
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import NO_VALUE, Table, format_interval

LIMITS = (
    "**How a rule does on a real leak.** Here each copy is a document of its own in one of a few "
    "forms, and the models are small. In a real corpus a leaked item is often in a page of many "
    "items.",
    "What removing the shared text alone would leave: whole documents are left out.",
    "The variation between seeds, beyond their number. Intervals take cells and examples as "
    "random; with two seeds the variation between cells is hardly known. The table by seed shows "
    "it.",
    "Precision in a large corpus. It depends on how much clean text there is beside the leak; the "
    "share of clean text lost does not.",
)


def report(
    findings: Sequence[RuleFindings], study: Study, facts: Mapping[str, str], confidence: float
) -> ReportContent:
    """Returns the findings in sentences and tables."""
    frame = findings_frame(findings, study)
    rules = [rule for rule in dict.fromkeys(f.rule for f in findings)]
    forms = [*study.cells]
    by_key = {(f.rule, f.form): f for f in findings}
    about = f"Intervals: {confidence:.0%}."

    def crossed(
        name: str,
        title: str,
        cell: Callable[[RuleFindings], str],
        note: str,
        skip: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> Table:
        lines = [
            [rule, *(cell(by_key[rule, form]) if (rule, form) in by_key else NO_VALUE
                     for form in forms)]
            for rule in rules if rule not in skip
        ]  # fmt: skip
        data = _columns_of(frame, columns or (name,))
        return Table(name, title, ["rule", *forms], lines, data, note=note)

    tables = [
        crossed(
            "recall", "Recall: share of the leaked copies that are left out",
            lambda f: _text(f.recall),
            f"Of all copies that were inserted. {about} Clopper-Pearson with a trial per member.",
            (NONE, ORACLE),
        ),
        crossed(
            "share_left", "Share of the effect on members that remains",
            lambda f: _text(f.share_left),
            "Effect: how much more likely members became than in the twin without any copy, less "
            "the same of non-members (nats per token). 1: as without decontamination; 0: as in the "
            f"twin. {about}",
            (NONE, ORACLE),
        ),
        crossed(
            "effect", "Effect on members, nats per token", lambda f: _text(f.effect),
            f"See above; {NONE} is the leak without decontamination. {about}", (ORACLE,),
            ("effect", "spillover"),
        ),
        crossed(
            "auroc", f"AUROC of all leaked members ({facts['method']})", lambda f: _text(f.auroc),
            f"Mean over benchmarks and seeds. {ORACLE}: the twin, whose members did not leak. "
            f"{about}", (), ("auroc", "d_prime"),
        ),
        crossed(
            "escaped", "AUROC of what escaped", _escaped_text,
            f"Members with at least one copy left, in brackets their number; benchmarks of a cell "
            f"with fewer than {FEWEST_ESCAPED} are left out. {about}", (NONE, ORACLE),
            ("escaped_auroc", "escaped_members"),
        ),
        _cost_table(findings, frame, about),
        _kind_table(findings, frame, about),
        _seed_table(findings),
        _index_table(study),
    ]  # fmt: skip
    return ReportContent(
        title="Decontamination: what rules find, cost and leave",
        conclusions=[*_conclusions(findings)],
        warnings=[f"Left out: {reason}." for reason in study.left_out],
        tables=tables,
        limits=LIMITS,
        facts=facts,
    )


def _columns_of(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Returns the named quantities with the ends of their intervals, by rule and form."""
    ends = [[name, f"{name}_low", f"{name}_high"] for name in names]
    with_ends = [column for name, *of in ends for column in (name, *(c for c in of if c in frame))]
    return frame[["rule", "form", *with_ends]]


def _text(estimate: Interval) -> str:
    if not np.isfinite(estimate.value):
        return NO_VALUE
    return format_interval(estimate.value, estimate.low, estimate.high)


def _escaped_text(f: RuleFindings) -> str:
    text = _text(f.escaped_auroc)
    return f"{text} ({f.escaped_members})"


def _conclusions(findings: Sequence[RuleFindings]) -> Iterator[str]:
    judged = [f for f in findings if f.rule not in (NONE, ORACLE)]
    for form in dict.fromkeys(f.form for f in findings):
        whole = next(f for f in findings if f.form == form and f.rule == NONE)
        of_form = [f for f in judged if f.form == form]
        if not of_form:
            continue
        best = max(of_form, key=lambda f: (f.recall.value, -f.tokens_lost))
        worst = min(of_form, key=lambda f: f.recall.value)
        yield (
            f"**{form}**: without decontamination the AUROC is {_text(whole.auroc)}. {best.rule} "
            f"leaves out {best.recall.value:.0%} of the copies (AUROC {_text(best.auroc)}) and "
            f"loses {best.share_lost:.2%} of the clean text; {worst.rule} leaves out "
            f"{worst.recall.value:.0%} (AUROC {_text(worst.auroc)})."
        )


def _cost_table(findings: Sequence[RuleFindings], frame: pd.DataFrame, about: str) -> Table:
    lines = [
        [
            f.rule, f.form, _text(f.precision), _share(f.right), str(f.documents_lost),
            f"{f.tokens_lost:,}", f"{f.share_lost:.2%}", f"{f.leaked_tokens_left:.0%}",
            f"{f.unseen:.0%}",
        ]
        for f in findings if f.rule != NONE
    ]  # fmt: skip
    header = ["rule", "form", "precision", "right item", "clean documents lost",
              "clean tokens lost", "share of clean text", "leaked tokens left",
              "copies it can't see"]  # fmt: skip
    note = (
        "Precision: the share of copies among the documents that are left out. Right item: the "
        "share of flagged copies in which their own example is found. Over all seeds: the same "
        f"clean documents count once per seed. {about} Clopper-Pearson with a trial per member or "
        "document."
    )
    names = ("precision", "right", "documents_lost", "tokens_lost", "share_lost",
             "leaked_tokens_left", "unseen")  # fmt: skip
    return Table("costs", "What a rule costs", header, lines, _columns_of(frame, names), note=note)


def _share(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else NO_VALUE


def _kind_table(findings: Sequence[RuleFindings], frame: pd.DataFrame, about: str) -> Table:
    kinds = [*findings[0].recall_by_kind]
    lines = [
        [f.rule, f.form, *(_text(f.recall_by_kind[kind]) for kind in kinds)]
        for f in findings
        if f.rule not in (NONE, ORACLE)
    ]
    note = f"Words of the whole example, whatever form leaked. {about}"
    return Table(
        "recall_by_kind", "Recall by benchmark and length", ["rule", "form", *kinds], lines,
        _columns_of(frame, [f"recall, {kind}" for kind in kinds]), note=note,
    )  # fmt: skip


def _seed_table(findings: Sequence[RuleFindings]) -> Table:
    data = pd.concat([f.by_seed for f in findings], ignore_index=True)
    lines = [
        [
            str(row["rule"]), str(row["form"]), str(row["seed"]), f"{row['recall']:.3f}",
            f"{row['auroc']:.3f}", f"{row['effect']:.3f}", str(row["documents_lost"]),
        ]
        for _, row in data.iterrows()
    ]  # fmt: skip
    header = ["rule", "form", "seed", "recall", "AUROC", "effect", "clean documents lost"]
    return Table("by_seed", "By seed", header, lines, data)


def _index_table(study: Study) -> Table:
    data = study.index
    lines = [
        [str(row["rule"]), str(row["form"]), str(row["seed"]), str(row["model"])[:12]]
        for _, row in data.iterrows()
    ]
    note = (
        "Cells with equal corpora have the same model. index.csv has the digests of corpus, model "
        "and scores, by which other tables on the same cells are joined."
    )
    return Table("index", "Models", ["rule", "form", "seed", "model"], lines, data, note=note)
