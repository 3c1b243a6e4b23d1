"""Names that are told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def distinctly_named(names: Sequence[str], endings: Sequence[str]) -> list[str]:
    """Returns the names in order; each that is there several times gets its ending.

    A name with its ending may be that of another, as of ["a", "a", "a-2"] with the endings "-1",
    "-2" and "-3". Both then get their endings, some of them twice, until all names differ.

    Args:
        names: the names.
        endings: one per name, different from each other, none the end of another.

    Raises:
        ValueError: the endings do not tell the names apart.
    """
    distinct = list(names)
    for _ in range(len(names) + 1):
        times = Counter(distinct)
        if len(times) == len(distinct):
            return distinct
        distinct = [
            name + ending if times[name] > 1 else name
            for name, ending in zip(distinct, endings, strict=True)
        ]
    commonest, number = Counter(names).most_common(1)[0]
    raise ValueError(f"{commonest!r} is there {number} times, with endings that do not differ")
