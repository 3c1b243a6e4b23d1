"""Turns candidates into balanced sets of labelled texts, cut to lengths in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from contamination.core.errors import DataError
from contamination.core.progress import progress_bar
from contamination.data.near_duplicates import (
    ComparedItem,
    NearDuplicateHasher,
    duplicates_on_other_side,
)
from contamination.data.perturbation.base import Rewording
from contamination.data.words import first_words, has_words, separate_words
from contamination.detection.building.candidates import KeyedDocument
from contamination.detection.building.dates import MEMBER, NONMEMBER, CutOffs, DatedDocument
from contamination.detection.building.sources import Source, import_optional

ORIGINAL = "original"


@dataclass(frozen=True)
class SelectedDocument:
    """A document of a benchmark, with the beginning of its text up to the longest length."""

    document: DatedDocument
    key: int
    longest: str
    member: bool

    def first_words(self, length: int) -> str:
        """Returns its first words (see `data.words`), with single spaces."""
        return first_words(self.longest, length)


Groups = Mapping[str, Sequence[SelectedDocument]]
"""Selected documents by group: the members, and the non-members, perhaps of each month."""


@dataclass(frozen=True)
class LabelledSet:
    """Equally many members and non-members, all of one length.

    Attributes:
        length: the length of the texts in words.
        slice: the month in which the non-members were created; "" if they are of all months.
        setting: `original`, or the name of the rewording.
        rows: the lines of its file.
    """

    length: int
    slice: str
    setting: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """A unique name, such as length32-2023-01-swap."""
        setting = "" if self.setting == ORIGINAL else self.setting
        return "-".join(filter(None, [f"length{self.length}", self.slice, setting]))


@dataclass
class CandidateCounts:
    """The numbers of candidates by group and outcome."""

    looked_at: Counter[str] = field(default_factory=Counter)
    too_short: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    """Candidates with truncated HTML."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Candidates with the same words as a text that was selected before."""
    across: Counter[str] = field(default_factory=Counter)
    """Repeated candidates whose text was selected with the other label."""


def select_documents(
    source: Source,
    groups: Mapping[str, Sequence[KeyedDocument]],
    max_per_group: int,
    min_words: int,
) -> tuple[dict[str, list[SelectedDocument]], CandidateCounts]:
    """Selects the first documents of each group that are long enough and not repeated.

    Returns:
        Up to `max_per_group` documents of each group, and the counts of the candidates.
    """
    selected_by_group: dict[str, list[SelectedDocument]] = {}
    counts = CandidateCounts()
    label_by_text: dict[str, bool] = {}
    bar = progress_bar(desc="texts", total=max_per_group * len(groups), unit="text")
    with bar:
        for group, candidates in groups.items():
            selected, member = selected_by_group.setdefault(group, []), group == MEMBER
            for key, document in candidates:
                counts.looked_at[group] += 1
                try:
                    text = first_words(source.text(document.raw, min_words), min_words)
                except ValueError:
                    counts.unreadable[group] += 1
                    continue
                if not has_words(text, min_words):
                    counts.too_short[group] += 1
                elif text in label_by_text:
                    counts.repeated[group] += 1
                    counts.across[group] += label_by_text[text] != member
                else:
                    label_by_text[text] = member
                    selected.append(SelectedDocument(document, key, text, member))
                    bar.update()
                if len(selected) == max_per_group:
                    break
    return selected_by_group, counts


def near_duplicates_across_labels(
    selected: Groups,
) -> tuple[list[SelectedDocument], list[SelectedDocument]]:
    """Returns the documents that share all their words, or 13 in a row, with the other label.

    Returns:
        Those that do so without the words that more than half of all texts share (a template);
        and those that share only such words.
    """
    documents = [document for group in selected.values() for document in group]
    members = [document.member for document in documents]
    items = [
        ComparedItem([separate_words(document.longest)], [document.longest])
        for document in documents
    ]
    keys = NearDuplicateHasher(items)
    near = duplicates_on_other_side(items, members, keys)
    with_templates = (
        duplicates_on_other_side(items, members, NearDuplicateHasher())
        if keys.has_templates
        else near
    )
    only_templates = [documents[i] for i in with_templates if i not in near]
    return [documents[i] for i in near], only_templates


def exclude_documents(
    selected: Groups, dropped: Sequence[SelectedDocument]
) -> dict[str, list[SelectedDocument]]:
    """Returns the documents of each group that are not dropped."""
    keys = {document.key for document in dropped}
    return {
        group: [document for document in documents if document.key not in keys]
        for group, documents in selected.items()
    }


def balance_groups(
    selected: Groups, excluded: Sequence[SelectedDocument], max_documents: int
) -> dict[str, list[SelectedDocument]]:
    """Returns the first `max_documents` documents of each group that are not excluded.

    No group of non-members has more documents than there are members, and there are as many
    members as the largest group of non-members has.
    """
    groups = {
        group: docs[:max_documents] for group, docs in exclude_documents(selected, excluded).items()
    }
    members = groups.pop(MEMBER, [])
    nonmembers = {group: documents[: len(members)] for group, documents in groups.items()}
    return {MEMBER: members[: max(map(len, nonmembers.values()))], **nonmembers}


def iter_labelled_sets(
    selected: Groups, lengths: Sequence[int], source_name: str
) -> Iterator[LabelledSet]:
    """Yields a set per slice and length; shorter texts are the beginnings of longer ones."""
    for group, nonmembers in selected.items():
        if group != MEMBER and nonmembers:
            month = group.partition(" ")[2]
            members = selected[MEMBER][: len(nonmembers)]
            documents = sorted([*members, *nonmembers], key=lambda document: document.key)
            benchmark = "-".join(filter(None, [source_name, month]))
            for length in lengths:
                rows = [_labelled_row(document, length, benchmark) for document in documents]
                yield LabelledSet(length, month, ORIGINAL, rows)


def count_shared_texts(
    selected: Groups,
    dropped: Sequence[SelectedDocument],
    counts: CandidateCounts,
    words_per_text: int,
) -> dict[str, Any]:
    """Returns the numbers of texts that share 13 words with a text of the other label.

    They are the dropped texts if there are any, else those that were kept.
    """
    near_duplicates, only_templates = near_duplicates_across_labels(selected)
    near_duplicates = list(dropped) or near_duplicates
    return {
        "words_of_a_text": words_per_text,
        "members_that_share_13_words_with_a_non-member": sum(d.member for d in near_duplicates),
        "non-members_that_share_13_words_with_a_member": sum(not d.member for d in near_duplicates),
        "these_are": "dropped" if dropped else "kept",
        "others_that_share_only_what_more_than_half_of_the_texts_share": len(only_templates),
        "left_out_since_they_repeat_a_text_of_the_other_side": counts.across.total(),
    }


def count_edited(members: Sequence[SelectedDocument], cut_offs: CutOffs) -> dict[str, int]:
    """Returns how many of the members were edited after the cut-off or have no creation date."""
    changed = [member.document.changed for member in members]
    edited_later = [at for at in changed if at is not None and at >= cut_offs.members_before]
    undated = sum(member.document.created is None for member in members)
    return {
        "members": len(members),
        "edited_after_members_before": len(edited_later),
        "dated_by_an_edit_before_it_since_their_creation_is_not_known": undated,
    }


def year_rows(counts_by_month: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns the documents of each label per year, from counts by names like "member 2015-03"."""
    counts_by_year: dict[str, dict[str, int]] = {}
    for label_and_month, count in counts_by_month.items():
        label, _, month = label_and_month.rpartition(" ")
        counts = counts_by_year.setdefault(month[:4], {MEMBER: 0, NONMEMBER: 0})
        counts[label] += count
    return [{"year": year, **counts} for year, counts in sorted(counts_by_year.items())]


def _labelled_row(selected: SelectedDocument, length: int, benchmark: str) -> dict[str, Any]:
    """Returns a line of the file, with the columns that `examples=jsonl` reads."""
    document = selected.document
    dates = (document.created, document.changed)
    created, changed = (None if date is None else date.isoformat() for date in dates)
    return {
        "id": document.id,
        "text": selected.first_words(length),
        "label": int(selected.member),
        "benchmark": benchmark,
        "length": length,
        "setting": ORIGINAL,
        "title": document.title,
        "created": created,
        "changed": changed,
    }


MAX_TRIES = 10


def sentence_bleu(text: str, original: str) -> float:
    """Returns sentence BLEU in 0–1 by sacrebleu's defaults (Papineni et al. 2002; Post 2018)."""
    score = import_optional("sacrebleu", "a rewording").sentence_bleu(text, [original]).score
    return float(score) / 100


def reword_set(
    originals: LabelledSet, setting: str, rewording: Rewording, least_bleu: float, seed: int
) -> LabelledSet:
    """Returns the set in other words; each text is reworded until its BLEU is above the bound.

    Texts that fail MAX_TRIES times are left out, and equally many of the other label.

    Raises:
        DataError: no member or no non-member is left.
    """
    new_texts: dict[int, str] = {}
    best_bleu = 0.0
    for attempt in range(MAX_TRIES):
        remaining = [index for index in range(len(originals.rows)) if index not in new_texts]
        if not remaining:
            break
        texts = [originals.rows[index]["text"] for index in remaining]
        keys = [(originals.rows[index]["id"], originals.length, attempt) for index in remaining]
        rewordings = rewording.reword(texts, keys, seed)
        for index, old, new in zip(remaining, texts, rewordings, strict=True):
            bleu = sentence_bleu(new, old)
            best_bleu = max(best_bleu, bleu)
            if bleu > least_bleu and new != old:
                new_texts[index] = new
    rows = _balance_rows(
        [
            {**originals.rows[index], "text": new_texts[index], "setting": setting}
            for index in sorted(new_texts)
        ]
    )
    if not rows:
        raise DataError(
            f"rewording={setting}: no member or no non-member of {originals.name} has a BLEU above "
            f"build.least_bleu={least_bleu:g} in {MAX_TRIES} tries (the best has {best_bleu:.2f}). "
            "Change fewer words, such as by rewording.share=0.05, or lower the bound."
        )
    return replace(originals, setting=setting, rows=rows)


def _balance_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the first members and as many first non-members, in the rows' order."""
    rows_per_label = min(sum(row["label"] for row in rows), sum(1 - row["label"] for row in rows))
    balanced_rows, counts = [], [0, 0]
    for row in rows:
        counts[row["label"]] += 1
        if counts[row["label"]] <= rows_per_label:
            balanced_rows.append(row)
    return balanced_rows
