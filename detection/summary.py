"""What a user sees after scoring texts of their own: metrics where labels are known, ranks else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from core.bootstrap import resample
from core.estimates import Estimate, chosen_metrics, estimate, interval
from core.metrics import Scores
from detection.examples import Text
from detection.flags import counted, said

METRICS = chosen_metrics([0.05], [0.95])
HEADS = ("AUROC", "TPR at FPR ≤ 0.05", "FPR at TPR ≥ 0.95")
DRAWS, CONFIDENCE, SEED = 1_000, 0.95, 0
SHOWN = 5


def ranked(table: pd.DataFrame) -> pd.DataFrame:
    """The scores with each text's rank by its method and variant; 1 is the likeliest member.

    What is not ranked has none (<NA>).
    """
    scores = table["score"].where(table["ranked"])
    rank = scores.groupby([table["method"], table["variant"]]).rank(ascending=False, method="min")
    return table.assign(rank=rank.astype("Int64"))


def split(scores: pd.DataFrame, examples: Sequence[Text]) -> tuple[Scores, Scores]:
    """One method's scores of the members and of the non-members among the examples."""
    values = scores.set_index("example_id")["score"]
    members = [e.example_id for e in examples if e.label is True]
    nonmembers = [e.example_id for e in examples if e.label is False]
    return values[members].to_numpy(), values[nonmembers].to_numpy()


def summary(table: pd.DataFrame, examples: Sequence[Text]) -> str:
    """A table of metrics with intervals where there are both kinds, else the likeliest members.

    Args:
        table: example_id, method, variant, score, flag, ranked.
        examples: the texts, with labels where they are known.

    Returns:
        That of the ranked texts, below what is out of the ordinary about the scores.
    """
    kept = set(table["example_id"][table["ranked"]])
    examples = [e for e in examples if e.example_id in kept]
    notes = "".join(f"{line}\n" for line in said(counted(table)))
    return notes + _summary(table[table["ranked"]], examples)


def _summary(table: pd.DataFrame, examples: Sequence[Text]) -> str:
    labels = [e.label for e in examples if e.label is not None]
    known = labels.count(True), labels.count(False)
    if min(known) == 0:
        return "\n".join(_likeliest(table, examples))
    groups = {"all texts": examples}
    names = sorted({e.benchmark for e in examples})
    groups |= {n: [e for e in examples if e.benchmark == n] for n in names if len(names) > 1}
    return "\n\n".join(_group(name, table, texts) for name, texts in groups.items())


def _group(name: str, table: pd.DataFrame, examples: Sequence[Text]) -> str:
    width = 2 + max(7, *table["variant"].map(len))
    rows = [f"{'method':20}{'variant':{width}}" + "".join(f"{h:>22}" for h in HEADS)]
    head = name
    for (method, variant), scores in table.groupby(["method", "variant"], sort=False):
        members, nonmembers = split(scores, examples)
        head = f"{name}: {len(members)} members, {len(nonmembers)} non-members"
        if not len(members) or not len(nonmembers):
            return f"{head}: no metric without both"
        drawn = resample(len(members), len(nonmembers), DRAWS, SEED)
        found = estimate(members, nonmembers, drawn, METRICS)
        cells = "".join(f"{_cell(found[m.name]):>22}" for m in METRICS)
        rows.append(f"{method:20}{variant:{width}}{cells}")
    return "\n".join([f"{head} (95% bootstrap intervals)", *rows])


def _cell(found: Estimate) -> str:
    low, high = interval(found, CONFIDENCE)
    return f"{found.value:.3f} [{low:.3f}, {high:.3f}]"


def _likeliest(table: pd.DataFrame, examples: Sequence[Text]) -> Iterator[str]:
    """The first few by each method: without labels nothing can be said of how good they are."""
    texts = {e.example_id: e.text for e in examples}
    yield f"{len(examples)} texts without labels; the likeliest members by each method:"
    for (method, variant), scores in ranked(table).groupby(["method", "variant"], sort=False):
        yield f"{method} {variant}".strip()
        for row in scores.nsmallest(SHOWN, "rank").itertuples():
            start = " ".join(texts[row.example_id].split())[:60]
            yield f"  {row.rank:>4}  {row.score:>12.5g}  {row.example_id:<24} {start}"
