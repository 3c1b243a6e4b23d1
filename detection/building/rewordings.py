"""Reworded texts that stay near to the original: BLEU above a bound, as StackMIA's are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.errors import DataError
from core.rewording import Rewording
from detection.building.sets import LabelledSet
from detection.building.sources import needed

TRIES = 10


def bleu(text: str, original: str) -> float:
    """Sentence BLEU between 0 and 1, by sacrebleu's defaults (Papineni et al. 2002; Post 2018)."""
    score = needed("sacrebleu", "a rewording").sentence_bleu(text, [original]).score
    return float(score) / 100


def reworded(
    own: LabelledSet, setting: str, rewording: Rewording, least_bleu: float, seed: int
) -> LabelledSet:
    """The set in other words; a text is tried again until its BLEU is above the bound.

    Those that fail TRIES times are left out, and then as many of the other label.

    Raises:
        DataError: no member, or no non-member, is left.
    """
    found: dict[int, str] = {}
    best = 0.0
    for attempt in range(TRIES):
        left = [place for place in range(len(own.rows)) if place not in found]
        if not left:
            break
        texts = [own.rows[place]["text"] for place in left]
        keys = [(own.rows[place]["id"], own.length, attempt) for place in left]
        for place, old, new in zip(left, texts, rewording.reword(texts, keys, seed), strict=True):
            score = bleu(new, old)
            best = max(best, score)
            if score > least_bleu and new != old:
                found[place] = new
    rows = _equal([{**own.rows[p], "text": found[p], "setting": setting} for p in sorted(found)])
    if not rows:
        raise DataError(
            f"rewording={setting}: no member or no non-member of {own.name} has a BLEU above "
            f"build.least_bleu={least_bleu:g} in {TRIES} tries (the best has {best:.2f}). Change "
            "fewer words, such as by rewording.share=0.05, or lower the bound."
        )
    return replace(own, setting=setting, rows=rows)


def _equal(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """As many members as non-members, the first of each."""
    size = min(sum(row["label"] for row in rows), sum(1 - row["label"] for row in rows))
    kept, counts = [], [0, 0]
    for row in rows:
        counts[row["label"]] += 1
        if counts[row["label"]] <= size:
            kept.append(row)
    return kept
