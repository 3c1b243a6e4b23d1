"""What the answers say: members' accuracy, non-members', their difference, and by occurrences.

Every figure has a 95% bootstrap interval, every difference a p-value that is corrected over the
benchmarks. How options are compared can decide the conclusion: each benchmark is shown by its own
convention first, then by every way. Two models are compared by each example's own change, so that
is paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from contamination.core.artifacts import Artifact
from contamination.core.seeds import derive
from contamination.core.statistics.bootstrap import Scores, resample
from contamination.core.statistics.estimates import Estimate, mean
from contamination.core.statistics.significance import holm, p_value, relabelled
from contamination.data.config import CHOSEN_BY
from contamination.detection.summary import figure

DRAWS, SEED = 1_000, 0
RELABELINGS = 9_999
HEADS = ("members", "non-members", "difference")
AVERAGE = "average"
Line = dict[str, Estimate]


def p_values(table: pd.DataFrame) -> dict[str, tuple[float, float | None]]:
    """By benchmark its difference's p-value and Holm's over all; for the average its own alone."""
    sides = {str(name): _sides(rows) for name, rows in table.groupby("benchmark")}
    both = {name: (m, n) for name, (m, n) in sides.items() if len(m) and len(n)}
    values = {name: float(m.mean() - n.mean()) for name, (m, n) in both.items()}
    nulls = {
        name: relabelled(m, n, RELABELINGS, derive(SEED, "relabelings", name))
        for name, (m, n) in both.items()
    }
    alone = np.array([p_value(values[name], nulls[name]) for name in both])
    pairs = zip(alone.tolist(), holm(alone).tolist(), strict=True)
    found: dict[str, tuple[float, float | None]] = dict(zip(both, pairs, strict=True))
    if len(both) == len(sides) > 1:
        value, null = np.mean(list(values.values())), np.mean(list(nulls.values()), axis=0)
        found[AVERAGE] = p_value(float(value), null), None
    return found


def lines(table: pd.DataFrame, *, wilson: bool = False) -> dict[str, Line]:
    """For each benchmark, and on average, the mean of `value` of each kind, and the difference.

    What is not there is left out: a difference needs both kinds. Members that were inserted no
    time are neither kind. With `wilson` the means are shares, which may be 0: their intervals are
    Wilson's (`core.statistics.estimates.intervals`), which then have a width as well.
    """
    groups = table.groupby("benchmark")
    found = {str(name): _line(str(name), rows, wilson=wilson) for name, rows in groups}
    whole = {h: [line[h] for line in found.values() if h in line] for h in HEADS}
    if len(found) > 1:
        found[AVERAGE] = {h: mean(e) for h, e in whole.items() if len(e) == len(found)}
    return found


def _sides(rows: pd.DataFrame) -> tuple[Scores, Scores]:
    """The values of the members that were inserted, and of the non-members."""
    members = rows.loc[rows["member"] & (rows["occurrences"] > 0), "value"]
    others = rows.loc[~rows["member"], "value"]
    return members.to_numpy(np.float64), others.to_numpy(np.float64)


def _line(name: str, rows: pd.DataFrame, *, wilson: bool) -> Line:
    members, others = _sides(rows)
    line: Line = {}
    seed = derive(SEED, "accuracy", name)
    drawn = resample(max(1, len(members)), max(1, len(others)), DRAWS, seed)
    if len(members):
        draws = drawn.members @ members / len(members)
        trials = len(members) if wilson else None
        line["members"] = Estimate(len(members), 0, float(members.mean()), draws, trials)
    if len(others):
        draws = drawn.nonmembers @ others / len(others)
        trials = len(others) if wilson else None
        line["non-members"] = Estimate(0, len(others), float(others.mean()), draws, trials)
    if len(line) == 2:
        a, b = line["members"], line["non-members"]
        sizes = len(members), len(others)
        line["difference"] = Estimate(*sizes, a.value - b.value, a.draws - b.draws)
    return line


MANY, MOST = 20, 0.8  # of so many examples, a share of one answer that is warned of


def summary(table: pd.DataFrame, artifact: Artifact) -> str:
    """Accuracy by benchmark and by occurrences, and what was left out.

    Args:
        table: the artefact's rows.
        artifact: counts what was left out.
    """
    table = table.assign(value=table["correct"].astype(float))
    ways = _ways("accuracy", table, _right(table))
    notes = _notes(table, artifact.counts["left_out"])
    return "\n".join([*_means("accuracy", table), "", *ways, "", *_occurrences(table), *notes])


def compared(model: pd.DataFrame, reference: pd.DataFrame) -> str:
    """How the accuracy changed on the same examples, from the reference to the model."""
    own = ["example_id", "correct", *(f"chosen_{by}" for by in CHOSEN_BY)]
    suffixes = ("", "_before")
    joined = model.merge(reference[own], on="example_id", suffixes=suffixes, validate="1:1")
    change = joined["correct"].astype(float) - joined["correct_before"].astype(float)
    title = "accuracy minus the reference model's, on the same examples"
    if missing := len(model) - len(joined):
        title += f" ({missing} of the model's lack it)"
    before = _right(joined, "_before")
    changes = {by: values - before[by] for by, values in _right(joined).items()}
    joined = joined.assign(value=change)
    return "\n".join([*_means(title, joined), "", *_ways("change", joined, changes)])


def _right(table: pd.DataFrame, suffix: str = "") -> dict[str, pd.Series[float]]:
    """For each way of choosing 1 where the choice is right, else 0; NaN where there is none."""
    chosen = {by: table[f"chosen_{by}{suffix}"] for by in CHOSEN_BY}
    return {
        by: (one == table["answer"]).astype(float).where(one.notna()) for by, one in chosen.items()
    }


def _means(title: str, table: pd.DataFrame) -> list[str]:
    """Each benchmark by its own way of choosing."""
    chance = table["options"].map(lambda options: 1 / len(options))
    chances = chance.groupby(table["benchmark"]).mean()
    ways = table.groupby("benchmark")["chosen_by"].first()
    found, tested = lines(table), p_values(table)
    width = _width(found)
    head = f"{'benchmark':{width}}{'chosen by':11}" + "".join(f"{h:>30}" for h in HEADS)
    rows = [
        f"{title}, by each benchmark's convention (95% bootstrap intervals; number of examples; "
        "p-values by relabeling, Holm's over the benchmarks)",
        f"{head}{'p':>8}{'p Holm':>8}{'chance':>8}",
    ]
    for name, line in found.items():
        guess = chances.mean() if name == AVERAGE else chances[name]
        cells = "".join(f"{cell(line.get(h), h):>30}" for h in HEADS)
        cells += "".join(f"{p_words(p):>8}" for p in tested.get(name, (None, None)))
        rows.append(f"{name:{width}}{ways.get(name, ''):11}{cells}{guess:>8.3f}")
    return rows


def _ways(title: str, table: pd.DataFrame, values: Mapping[str, pd.Series[float]]) -> list[str]:
    """Each benchmark by every way of choosing that all its options allow; `*` is its own."""
    own = dict(table.groupby("benchmark")["chosen_by"].first())
    names = [*sorted(own), *([AVERAGE] if len(own) > 1 else [])]
    ways = {by: _lines_by(table, one) for by, one in values.items()}
    width = _width(names)
    head = f"{'benchmark':{width}}{'':13}" + "".join(f"{by:>25}" for by in CHOSEN_BY)
    rows = [f"{title} by every way to choose an option (*: the benchmark's convention)", head]
    for name in names:
        for kind in HEADS:
            found = {by: ways[by].get(name, {}).get(kind) for by in CHOSEN_BY}
            cells = [_share(e) + " *"[own.get(name) == by] for by, e in found.items()]
            rows.append(f"{name:{width}}{kind:13}" + "".join(f"{cell:>25}" for cell in cells))
    return rows


def _lines_by(table: pd.DataFrame, values: pd.Series[float]) -> dict[str, Line]:
    """The lines of the benchmarks whose examples all have a value; an average only of all."""
    whole = values.notna().groupby(table["benchmark"]).transform("all")
    found = lines(table.assign(value=values)[whole])
    if not whole.all():
        found.pop(AVERAGE, None)
    return found


def _width(names: Iterable[str]) -> int:
    return max([9, *map(len, names)]) + 2


def _occurrences(table: pd.DataFrame) -> list[str]:
    """The members' accuracy for each number of occurrences; 0 stands for the non-members."""
    times = sorted(set(table.loc[table["member"], "occurrences"]) - {0})
    groups = {0: table[~table["member"]]}
    groups |= {n: table[table["member"] & (table["occurrences"] == n)] for n in times}
    found = {n: lines(group) for n, group in groups.items()}
    names = [*sorted(table["benchmark"].unique()), AVERAGE]
    width = _width(names)
    rows = [f"{'occurrences':13}{'benchmark':{width}}{'accuracy':>30}"]
    for name in names:
        for n in found:
            kind = "members" if n else "non-members"
            one = found[n].get(name, {}).get(kind)
            if one is not None:
                rows.append(f"{n:<13}{name:{width}}{cell(one, kind):>30}")
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


def cell(found: Estimate | None, kind: str = "") -> str:
    """An estimate with its interval and, but for a difference, its number of examples."""
    if found is None or kind == "difference":
        return _share(found)
    return f"{_share(found)} ({found.n_members or found.n_nonmembers})"


def _share(found: Estimate | None) -> str:
    return "-" if found is None else figure(found)


def p_words(value: float | None) -> str:
    """A p-value, if there is one."""
    return "-" if value is None else f"{value:.4f}"
