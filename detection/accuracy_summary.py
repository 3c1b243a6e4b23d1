"""What the answers say: members' accuracy, non-members', their difference, and by occurrences.

Every figure has a 95% bootstrap interval. Members and non-members of a benchmark are resampled
separately, and one resample serves a benchmark's whole line: the difference's interval is of the
draws' differences. Two models are compared by each example's own change, so that is paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from core.artifacts import Artifact
from core.bootstrap import resample
from core.estimates import Estimate, interval, mean
from core.seeds import derive

CONFIDENCE, DRAWS, SEED = 0.95, 1_000, 0
HEADS = ("members", "non-members", "difference")
AVERAGE = "average"
MANY, MOST = 20, 0.8  # of so many examples, so large a share with one answer is said
Line = dict[str, Estimate]


def summary(table: pd.DataFrame, artifact: Artifact) -> str:
    """Accuracy by benchmark and by occurrences, and what was left out.

    Args:
        table: the artefact's rows.
        artifact: says how the options were compared, and counts what was left out.
    """
    normalisation = artifact.config()["accuracy"]["normalisation"]
    by = {"mean": "mean log-likelihood a token", "sum": "summed log-likelihood"}[normalisation]
    title = f"accuracy by the options' {by}"
    table = table.assign(value=table["correct"].astype(float))
    return "\n".join([
        *_means(title, table), "", *_occurrences(table), *_notes(table, artifact.counts["left_out"])
    ])  # fmt: skip


def compared(model: pd.DataFrame, reference: pd.DataFrame) -> str:
    """How the accuracy changed on the same examples, from the reference to the model."""
    joined = model.merge(reference[["example_id", "correct"]], on="example_id",
                         suffixes=("", "_before"), validate="one_to_one")  # fmt: skip
    change = joined["correct"].astype(float) - joined["correct_before"].astype(float)
    title = "accuracy minus the reference model's, on the same examples"
    if missing := len(model) - len(joined):
        title += f" ({missing} of the model's lack it)"
    return "\n".join(_means(title, joined.assign(value=change)))


def lines(table: pd.DataFrame) -> dict[str, Line]:
    """For each benchmark, and on average, the mean of `value` of each kind, and the difference.

    What is not there is left out: a difference needs both kinds. Members that were inserted no
    time are neither kind.
    """
    found = {str(name): _line(str(name), rows) for name, rows in table.groupby("benchmark")}
    whole = {h: [line[h] for line in found.values() if h in line] for h in HEADS}
    if len(found) > 1:
        found[AVERAGE] = {h: mean(e) for h, e in whole.items() if len(e) == len(found)}
    return found


def _line(name: str, rows: pd.DataFrame) -> Line:
    members = rows.loc[rows["member"] & (rows["occurrences"] > 0), "value"].to_numpy(np.float64)
    others = rows.loc[~rows["member"], "value"].to_numpy(np.float64)
    line: Line = {}
    seed = derive(SEED, "accuracy", name)
    drawn = resample(max(1, len(members)), max(1, len(others)), DRAWS, seed)
    if len(members):
        draws = drawn.members @ members / len(members)
        line["members"] = Estimate(len(members), 0, float(members.mean()), draws)
    if len(others):
        draws = drawn.nonmembers @ others / len(others)
        line["non-members"] = Estimate(0, len(others), float(others.mean()), draws)
    if len(line) == 2:
        a, b = line["members"], line["non-members"]
        sizes = len(members), len(others)
        line["difference"] = Estimate(*sizes, a.value - b.value, a.draws - b.draws)
    return line


def _means(title: str, table: pd.DataFrame) -> list[str]:
    chance = table["options"].map(lambda options: 1 / len(options))
    chances = chance.groupby(table["benchmark"]).mean()
    head = f"{'benchmark':16}" + "".join(f"{h:>30}" for h in HEADS) + f"{'chance':>9}"
    rows = [f"{title} (95% bootstrap intervals; number of examples)", head]
    for name, line in lines(table).items():
        guess = chances.mean() if name == AVERAGE else chances[name]
        cells = "".join(f"{_cell(line.get(h), h):>30}" for h in HEADS)
        rows.append(f"{name:16}{cells}{guess:>9.3f}")
    return rows


def _occurrences(table: pd.DataFrame) -> list[str]:
    """The members' accuracy for each number of occurrences; 0 stands for the non-members."""
    times = sorted(set(table.loc[table["member"], "occurrences"]) - {0})
    groups = {0: table[~table["member"]]}
    groups |= {n: table[table["member"] & (table["occurrences"] == n)] for n in times}
    found = {n: lines(group) for n, group in groups.items()}
    names = [*sorted(table["benchmark"].unique()), AVERAGE]
    width = max([9, *map(len, names)]) + 2
    rows = [f"{'occurrences':13}{'benchmark':{width}}{'accuracy':>30}"]
    for name in names:
        for n in found:
            kind = "members" if n else "non-members"
            one = found[n].get(name, {}).get(kind)
            if one is not None:
                rows.append(f"{n:<13}{name:{width}}{_cell(one, kind):>30}")
    return rows


def _notes(table: pd.DataFrame, left_out: Sequence[Mapping[str, object]]) -> list[str]:
    notes = []
    drawn = table[table["drawn_options"]]
    for name, rows in drawn.groupby("benchmark"):
        notes.append(
            f"drawn options: {name}: {len(rows)} examples have no wrong answers of their own, so "
            "they were drawn from the answers of other questions that were not inserted"
        )
    for name, rows in table.groupby("benchmark"):
        chosen = [options[i] for options, i in zip(rows["options"], rows["chosen"], strict=True)]
        answer, times = Counter(chosen).most_common(1)[0]
        if len(rows) >= MANY and times > MOST * len(rows):
            notes.append(
                f"nearly one answer: {name}: {answer!r} is chosen for {times} of {len(rows)} "
                "examples, so accuracy is about the share of each kind that this is right for"
            )
    if unexposed := int((table["member"] & (table["occurrences"] == 0)).sum()):
        notes.append(f"not counted: {unexposed} drawn as members but inserted no time")
    for one in left_out:
        notes.append(f"left out: {one['benchmark']}: {one['examples']}, because {one['reason']}")
    return ["", *notes] if notes else []


def _cell(found: Estimate | None, kind: str) -> str:
    if found is None:
        return "-"
    low, high = interval(found, CONFIDENCE)
    size = "" if kind == "difference" else f" ({found.n_members or found.n_nonmembers})"
    return f"{found.value:.3f} [{low:.3f}, {high:.3f}]{size}"
