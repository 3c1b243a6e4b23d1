"""Flags: remarks on unusual scores, stored with each score, counted and reported.

A method's `flag` says where it fell back on another statistic. A text that is blank or has too few
scored tokens is not ranked: its score is in the file, but enters no metric and no comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from contamination.data.words import is_blank
from contamination.detection.passes import LOWEST_LOGPROB, ORIGINAL, Example, Pass
from contamination.detection.views import view_of

if TYPE_CHECKING:
    import pandas as pd

    from contamination.data.texts import Texts
    from contamination.detection.pass_store import StatsByText

SIDES = {True: "member", False: "non-member", None: "without label"}
UPPER_BOUND = "_upper_bound"
"""The suffix of a method's name if its reference is the target's own past."""
COLUMNS = ("method", "variant", "flag", "texts", "of")


def with_token_count_pass(passes: set[Pass]) -> set[Pass]:
    """Returns the passes, with one that shows how many tokens of each text the target scores."""
    return passes if any(map(_shows_token_counts, passes)) else {*passes, ORIGINAL}


def find_token_count_stats(passes: Mapping[Pass, StatsByText]) -> StatsByText:
    """Returns a pass whose first copy shows how many tokens of each text the target scores."""
    return passes[min(filter(_shows_token_counts, passes), key=lambda wanted: wanted.key)]


def reason_unranked(text: str, scored: int, min_scored_tokens: int) -> str:
    """Returns why a text with `scored` scored tokens is not ranked; empty if it is ranked."""
    if is_blank(text):
        return "blank"
    return f"fewer than {min_scored_tokens} scored tokens" if scored < min_scored_tokens else ""


def zero_probability_flag(example: Example) -> str:
    """Returns a flag if a server assigned probability 0 to a token, whose log is not finite."""
    copies = (stats for copies_of_pass in example.copies.values() for stats in copies_of_pass)
    logprobs = (vars(stats)["logprob"] for stats in copies if "logprob" in vars(stats))
    has_zero = any((logprob == LOWEST_LOGPROB).any() for logprob in logprobs)
    return "a token of probability 0, taken as 2^-149" if has_zero else ""


def count_flags(table: pd.DataFrame) -> pd.DataFrame:
    """Counts the texts of each flag; most texts have the empty flag.

    A text that is not ranked is so for every method. It is counted once, with an empty `method`.

    Args:
        table: the rows of `scores.parquet`, of one checkpoint.

    Returns:
        A table with COLUMNS: `texts` of `of` texts have the flag.
    """
    key_columns = {name: table[name].where(table["ranked"], "") for name in COLUMNS[:2]}
    by_flag = table.assign(**key_columns).groupby(list(COLUMNS[:3]))["example_id"]
    return by_flag.nunique().reset_index(name="texts").assign(of=table["example_id"].nunique())


def merge_flag_counts(counts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Merges counts of parts of a table, each of one method and variant on all texts."""
    import pandas as pd

    merged = pd.concat(counts, ignore_index=True).drop_duplicates()
    return merged.sort_values(list(COLUMNS[:3]), ignore_index=True)


def describe_flags(counts: pd.DataFrame) -> Sequence[str]:
    """Returns one line per flag, and one for each method that is an upper bound."""
    bounds = [name for name in counts["method"].unique() if name.endswith(UPPER_BOUND)]
    return [
        *(
            f"{name}: compares with the target's own past, which no attacker has."
            for name in bounds
        ),
        *(
            f"{f'{row.method} {row.variant}'.strip() or 'not ranked, and in no metric'}: "
            f"{row.texts} of {row.of} texts: {row.flag}."
            for row in counts[counts["flag"] != ""].itertuples()
        ),
    ]


def describe_contamination(texts: Texts) -> Sequence[str]:
    """Returns a line that counts the texts found in a corpus apart from their inserted copies."""
    contaminated = texts.take(pc.not_equal(texts.column("contamination"), "").to_numpy())
    if not contaminated:
        return []
    labels = contaminated.column("label").to_pylist()
    counts = [(labels.count(label), name) for label, name in SIDES.items()]
    sides = ", ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in counts if count)
    return [
        f"{len(contaminated)} of {len(texts)} texts ({sides}) share text with a corpus beside "
        "their copies: the column contamination names the corpus."
    ]


def _shows_token_counts(wanted: Pass) -> bool:
    return wanted.model == ORIGINAL.model and view_of(wanted).covers_text
