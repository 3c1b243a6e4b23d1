"""From candidates to labelled texts: cut to lengths in words, as many members as non-members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from contamination.core.errors import DataError
from contamination.core.progress import progress
from contamination.data.near_duplicates import Item, Keys, across
from contamination.data.perturbation.base import Rewording
from contamination.data.text import first_words, has_words, spaced
from contamination.detection.building.candidates import Keyed
from contamination.detection.building.dates import MEMBER, NONMEMBER, CutOffs, Dated
from contamination.detection.building.sources import Source, needed

ORIGINAL = "original"


@dataclass(frozen=True)
class Taken:
    """A document of a benchmark, with the beginning of its text, as long as the longest length."""

    document: Dated
    key: int
    longest: str
    member: bool

    def text(self, length: int) -> str:
        """Its first words (see `core.words`), with single spaces."""
        return first_words(self.longest, length)


@dataclass(frozen=True)
class LabelledSet:
    """As many members as non-members, all of one length.

    Attributes:
        length: in words.
        slice: the month in which the non-members were created; "": no month is set apart.
        setting: `original`, or what reworded the texts.
        rows: the lines of its file.
    """

    length: int
    slice: str
    setting: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """What tells it apart, such as length32-2023-01-swap."""
        setting = "" if self.setting == ORIGINAL else self.setting
        return "-".join(filter(None, [f"length{self.length}", self.slice, setting]))


@dataclass
class Looks:
    """What became of the candidates: counts of them by group."""

    looked_at: Counter[str] = field(default_factory=Counter)
    too_short: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    """Their HTML is cut off."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Their words are those of a text that was taken before them."""
    across: Counter[str] = field(default_factory=Counter)
    """Of these, of a text on the other side."""


def take(
    source: Source, groups: Mapping[str, Sequence[Keyed]], number: int, longest: int
) -> tuple[dict[str, list[Taken]], Looks]:
    """The first documents of each group that are long enough and repeat no other's text.

    Returns:
        The documents of each group, up to `number`; and what became of the candidates.
    """
    found: dict[str, list[Taken]] = {}
    looks = Looks()
    seen: dict[str, bool] = {}
    bar = progress(desc="texts", total=number * len(groups), unit="text")
    with bar:
        for group, candidates in groups.items():
            own, member = found.setdefault(group, []), group == MEMBER
            for key, document in candidates:
                looks.looked_at[group] += 1
                try:
                    text = first_words(source.text(document.raw, longest), longest)
                except ValueError:
                    looks.unreadable[group] += 1
                    continue
                if not has_words(text, longest):
                    looks.too_short[group] += 1
                elif text in seen:
                    looks.repeated[group] += 1
                    looks.across[group] += seen[text] != member
                else:
                    seen[text] = member
                    own.append(Taken(document, key, text, member))
                    bar.update()
                if len(own) == number:
                    break
    return found, looks


def near_duplicates(found: Mapping[str, Sequence[Taken]]) -> tuple[list[Taken], list[Taken]]:
    """Those that share 13 words in a row, or all, with one on the other side.

    Returns:
        These, without regard to words that more than half of all texts share (a template); and
        those that share such words alone.
    """
    taken = [one for group in found.values() for one in group]
    members = [one.member for one in taken]
    items = [Item([spaced(one.longest)], [one.longest]) for one in taken]
    keys = Keys(items)
    near = across(items, members, keys)
    every = across(items, members, Keys()) if keys.has_templates else near
    return [taken[i] for i in near], [taken[i] for i in every if i not in near]


def kept(found: Mapping[str, Sequence[Taken]], dropped: Sequence[Taken]) -> dict[str, list[Taken]]:
    """Those of each group that are not dropped."""
    gone = {one.key for one in dropped}
    return {group: [one for one in each if one.key not in gone] for group, each in found.items()}


def even(
    found: Mapping[str, Sequence[Taken]], dropped: Sequence[Taken], number: int
) -> dict[str, list[Taken]]:
    """The first `number` of each group that are not dropped, at most as many as members.

    Of the members as many as the largest group of non-members has.
    """
    others = {group: each[:number] for group, each in kept(found, dropped).items()}
    members = others.pop(MEMBER, [])
    others = {group: each[: len(members)] for group, each in others.items()}
    return {MEMBER: members[: max(map(len, others.values()))], **others}


def labelled(
    found: Mapping[str, Sequence[Taken]], lengths: Sequence[int], name: str
) -> Iterator[LabelledSet]:
    """A set of each length and slice; the shorter texts are the beginnings of the longer ones."""
    for group, others in found.items():
        if group != MEMBER and others:
            month = group.partition(" ")[2]
            both = sorted([*found[MEMBER][: len(others)], *others], key=lambda one: one.key)
            for length in lengths:
                rows = [_row(one, length, "-".join(filter(None, [name, month]))) for one in both]
                yield LabelledSet(length, month, ORIGINAL, rows)


def overlap(
    found: Mapping[str, Sequence[Taken]], dropped: Sequence[Taken], looks: Looks, longest: int
) -> dict[str, Any]:
    """How many texts share 13 words with one on the other side: dropped ones, else those kept."""
    near, alike = near_duplicates(found)
    near = list(dropped) or near
    return {
        "words_of_a_text": longest,
        "members_that_share_13_words_with_a_non-member": sum(one.member for one in near),
        "non-members_that_share_13_words_with_a_member": sum(not one.member for one in near),
        "these_are": "dropped" if dropped else "kept",
        "others_that_share_only_what_more_than_half_of_the_texts_share": len(alike),
        "left_out_since_they_repeat_a_text_of_the_other_side": looks.across.total(),
    }


def edited(members: Sequence[Taken], cut_offs: CutOffs) -> dict[str, int]:
    """How many of the members are no longer what they were."""
    changed = [one.document.changed for one in members]
    later = [at for at in changed if at is not None and at >= cut_offs.members_before]
    edits = sum(one.document.created is None for one in members)
    return {
        "members": len(members),
        "edited_after_members_before": len(later),
        "dated_by_an_edit_before_it_since_their_creation_is_not_known": edits,
    }


def by_year(months: Mapping[str, int]) -> list[dict[str, Any]]:
    """Documents of each side by the year of their creation, from counts by "member 2015-03"."""
    found: dict[str, dict[str, int]] = {}
    for name, count in months.items():
        side, _, month = name.rpartition(" ")
        year = found.setdefault(month[:4], {MEMBER: 0, NONMEMBER: 0})
        year[side] += count
    return [{"year": year, **sides} for year, sides in sorted(found.items())]


def _row(one: Taken, length: int, benchmark: str) -> dict[str, Any]:
    """A line of the file, with the columns that `examples=jsonl` reads."""
    own = one.document
    created, changed = (None if at is None else at.isoformat() for at in (own.created, own.changed))
    return {
        "id": own.id,
        "text": one.text(length),
        "label": int(one.member),
        "benchmark": benchmark,
        "length": length,
        "setting": ORIGINAL,
        "title": own.title,
        "created": created,
        "changed": changed,
    }


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
