"""What is out of the ordinary about a score: it travels with the score, and is counted and said.

A method says in `flag` where it fell back on another statistic. A text that is blank or has too few
scored tokens is not ranked: its score stands in the file, but in no metric and beside no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from contamination.data.text import is_blank
from contamination.detection.passes import LEAST, ORIGINAL, Example, Pass
from contamination.detection.views import view_of

if TYPE_CHECKING:
    import pandas as pd

    from contamination.data.texts import Texts
    from contamination.detection.pass_store import ByText

SIDES = {True: "member", False: "non-member", None: "without label"}
UPPER_BOUND = "_upper_bound"
"""What the name of a method ends with whose reference is the target's own past."""
COLUMNS = ("method", "variant", "flag", "texts", "of")


def counting(passes: set[Pass]) -> set[Pass]:
    """The passes, one of which shows how many tokens of each text the target scores."""
    return passes if any(map(_counts, passes)) else {*passes, ORIGINAL}


def scored_by(passes: Mapping[Pass, ByText]) -> ByText:
    """The pass that shows how many tokens of each text the target scores: its first copy's."""
    return passes[min(filter(_counts, passes), key=lambda wanted: wanted.key)]


def unranked(text: str, scored: int, least: int) -> str:
    """Why a text of so many scored tokens is not ranked; empty: it is."""
    if is_blank(text):
        return "blank"
    return f"fewer than {least} scored tokens" if scored < least else ""


def impossible(example: Example) -> str:
    """Where a server called a token's probability 0: no score is made of log 0 itself."""
    copies = (stats for of_pass in example.copies.values() for stats in of_pass)
    logprobs = (vars(stats)["logprob"] for stats in copies if "logprob" in vars(stats))
    some = any((logprob == LEAST).any() for logprob in logprobs)
    return "a token of probability 0, taken as 2^-149" if some else ""


def counted(table: pd.DataFrame) -> pd.DataFrame:
    """How many texts each flag is about, and of how many: COLUMNS; `flag` is empty for most texts.

    What is not ranked is so by every method: it is counted once, with an empty `method`.

    Args:
        table: `scores.parquet`, of one checkpoint.
    """
    who = {name: table[name].where(table["ranked"], "") for name in COLUMNS[:2]}
    by_flag = table.assign(**who).groupby(list(COLUMNS[:3]))["example_id"]
    return by_flag.nunique().reset_index(name="texts").assign(of=table["example_id"].nunique())


def together(counts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The counts of a table from its parts, each a method and variant's rows on all texts."""
    import pandas as pd

    found = pd.concat(counts, ignore_index=True).drop_duplicates()
    return found.sort_values(list(COLUMNS[:3]), ignore_index=True)


def said(counts: pd.DataFrame) -> Sequence[str]:
    """The flags in words, a line each, and which methods are upper bounds."""
    bounds = [name for name in counts["method"].unique() if name.endswith(UPPER_BOUND)]
    return [
        *(f"{name}: against the target's own past, which no attacker has." for name in bounds),
        *(
            f"{f'{row.method} {row.variant}'.strip() or 'not ranked, and in no metric'}: "
            f"{row.texts} of {row.of} texts: {row.flag}."
            for row in counts[counts["flag"] != ""].itertuples()
        ),
    ]


def flagged(texts: Texts) -> Sequence[str]:
    """How many texts a corpus holds beside their copies, in words; nothing where there are none."""
    own = texts.take(pc.not_equal(texts.column("contamination"), "").to_numpy())
    if not own:
        return []
    kinds = [(own.column("label").to_pylist().count(kind), SIDES[kind]) for kind in SIDES]
    sides = ", ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in kinds if count)
    return [
        f"{len(own)} of {len(texts)} texts ({sides}) share text with a corpus beside their copies: "
        "the column contamination names it."
    ]


def _counts(wanted: Pass) -> bool:
    """Whether the pass shows how many tokens of a text the target scores."""
    return wanted.model == ORIGINAL.model and view_of(wanted).counts
