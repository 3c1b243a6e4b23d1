"""What texts have in common, as a user sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.compute as pc

from detection.texts import Text, Texts
from injection.near_duplicates import Item, Keys, across


def text_notes(examples: Sequence[Text]) -> list[str]:
    """A sentence each on exact duplicates and on near-duplicates across the labels."""
    return [note for note in (repeated(examples), overlap(examples)) if note]


def part_notes(examples: Texts, named: Callable[[str], str]) -> list[str]:
    """The same of each part of a benchmark, and how many texts have no label.

    Args:
        examples: the texts.
        named: what a part is called, by its texts' `benchmark`.
    """
    column = examples.column("benchmark")
    notes = []
    for name in column.unique().to_pylist():
        own = examples.take(np.flatnonzero(pc.equal(column, name).to_numpy()))
        notes += [f"{named(name)}: {note}" for note in text_notes(own)]
    unknown = examples.column("label").null_count
    return notes + [f"{unknown} texts have no label: they are in no metric."] * bool(unknown)


def repeated(examples: Sequence[Text]) -> str:
    """A sentence on texts that are there more than once, or nothing."""
    firsts: dict[str, Text] = {}
    again = [(e, first) for e in examples if (first := firsts.setdefault(e.sha256, e)) is not e]
    if not again:
        return ""
    one, first = again[0]
    return (
        f"{len(again)} of {len(examples)} texts are exact duplicates of another one, such as "
        f"{one.example_id} of {first.example_id}: each counts, so intervals are too narrow."
    )


def overlap(examples: Sequence[Text]) -> str:
    """A sentence on the labelled texts that are near-duplicates across the labels, or nothing.

    Each benchmark has a template of its own. Texts of different benchmarks are compared too, since
    one model saw them all.
    """
    known = [e for e in examples if e.label is not None]
    members = [bool(e.label) for e in known]
    items = [Item([e.text], [e.text], e.benchmark) for e in known]
    near = across(items, members, Keys(items))
    if not near:
        return ""
    inside = sum(members[i] for i in near)
    apart = sum(known[i].benchmark != known[other].benchmark for i, other in near.items())
    between = f", {apart} of them of a text of another benchmark" if apart else ""
    first, other = next(iter(near.items()))
    return (
        f"{inside} members and {len(near) - inside} non-members are near-duplicates of one another "
        "(13 words in a row in both, or no difference but case, punctuation and white space)"
        f"{between}, such as {known[first].example_id} and {known[other].example_id}: no score can "
        "tell these apart. Leave them out, or give both one label."
    )
