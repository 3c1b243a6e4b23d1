"""What share of the examples a model gives back: members by occurrences, beside non-members.

Shares have Wilson's 95% interval. A p-value compares all members with the non-members, by random
relabelings; Holm's is over the benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from core.estimates import Estimate
from core.terminal import fit
from detection.accuracy.estimates import AVERAGE, lines, p_values
from detection.accuracy.summary import cell, p_words
from detection.extraction.targets import QUESTION

NONE, ANY = "non-members", "members"


def summary(tables: Mapping[str, pd.DataFrame], left_out: Sequence[Mapping[str, object]]) -> str:
    """A table for each number of tokens before: a row a benchmark and number of occurrences.

    Args:
        tables: the artefacts' rows by what to call the model; the p-values are the first one's.
        left_out: the counts of what could not be asked for.
    """
    first = next(iter(tables.values()))
    parts = [
        "\n".join(_part(prefix, {n: t[t["prefix"] == prefix] for n, t in tables.items()}))
        for prefix in first["prefix"].unique()
    ]
    notes = [f"left out: {o['benchmark']}: {o['examples']}: {o['reason']}" for o in left_out]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def _part(prefix: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    first, *_ = tables.values()
    what, behind = "answers", "their questions"
    if prefix != QUESTION:
        what, behind = f"last {first['tokens'].iloc[0]} tokens", f"the {prefix} tokens before them"
    yield (
        f"share of the examples whose {what} come back word for word behind {behind} "
        "(Wilson's 95% intervals; number of examples)"
    )
    valued = {name: _valued(table) for name, table in tables.items()}
    tested, shares = p_values(_valued(first)), {name: _shares(t) for name, t in valued.items()}
    names = sorted(first["benchmark"].unique())
    rows = []
    for name in [*names, *([AVERAGE] if len(names) > 1 else [])]:
        for group in next(iter(shares.values())):
            cells = [cell(own[group].get(name)) for own in shares.values()]
            p = tested.get(name, (None, None)) if group == ANY else (None, None)
            rows.append([name, group, *cells, *map(p_words, p)])
    yield from fit(["benchmark", "occurrences", *tables, "p", "p Holm"], rows).lines(left=2)


def _valued(table: pd.DataFrame) -> pd.DataFrame:
    """With 1 for what is extracted; members of unknown occurrences count as inserted."""
    value, times = table["extracted"].astype(float), table["occurrences"].fillna(1).astype(int)
    return table.assign(value=value, known=table["occurrences"], occurrences=times)


def _shares(table: pd.DataFrame) -> dict[str, dict[str, Estimate]]:
    """The shares by benchmark: of non-members, of members by known occurrences, of all members."""
    member = table["member"].astype(bool)
    groups = {NONE: table[~member]}
    for times in sorted(set(table.loc[member, "known"].dropna()) - {0}):
        groups[str(times)] = table[member & (table["known"] == times).fillna(False)]
    groups[ANY] = table[member]
    found = {group: lines(rows, wilson=True) for group, rows in groups.items()}
    return {
        group: {name: estimate for name, line in own.items() for estimate in line.values()}
        for group, own in found.items()
    }
