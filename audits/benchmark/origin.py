"""Where the two sets come from: equal texts, near-copies across the sides, membership by lot.

A copy of a question on the other side leaks with it, so that nothing can be seen. And only a draw
makes the two sets alike for certain: the audit's verdict says "leaked" without a condition if the
record `drawn.json` of `contamination audit fresh` shows that the files are those it drew, with a
seed drawn at random.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from contamination.audits.benchmark.exchangeability import Design, Numbers, merged_clusters
from contamination.core.errors import DataError
from contamination.core.files import verified_json
from contamination.core.hashing import file_digest
from contamination.data.near_duplicates import (
    NGRAM_WORDS,
    ComparedItem,
    NearDuplicateHasher,
    normalised_words,
)
from contamination.data.texts import Texts
from contamination.detection.baselines.blind import number_equal_texts

RECORD, FILES, SEED_DRAWN = "drawn.json", "files", "seed_drawn"
"""The record's name, its entry with the SHA-256 of each file by name, and its entry that is true if
the seed was drawn at random rather than given."""
SHARED = "they share 13 words in a row, or all words but for a typing error in one"
"""What near-copies have in common."""
FORM = 0.1
"""Words in a row that more than this share of the texts have (and more than FEW) are a form."""
FEW = 4
TOLERATED = 0.05
"""The share of comparison texts that may be near-copies, such as those with a common answer."""
LONG_WORD = 4
"""The fewest letters of a word in which a typing error is one: "in" and "on" are two words."""
SHOWN = 60


def with_merged_clusters(texts: Texts) -> Texts:
    """Returns the texts with equal ones in one cluster.

    Texts are equal if they differ only in case, white space or punctuation, or one begins the
    other. The copies of a text have one score, so they count as one.
    """
    design = design_of(texts)
    merged = merged_clusters(design.cluster, number_equal_texts(texts.column("text").to_pylist()))
    size = np.bincount(merged)
    return Texts.of(
        replace(text, cluster=f"cluster {number}" if size[number] > 1 else "")
        for text, number in zip(texts, merged.tolist(), strict=True)
    )


def shared_clusters(texts: Texts) -> list[str]:
    """Returns the names of clusters that have questions and other texts of one benchmark."""
    names = {True: set[tuple[str, str]](), False: set[tuple[str, str]]()}
    for text in texts:
        if text.cluster:
            names[bool(text.label)].add((text.benchmark, text.cluster))
    return sorted({cluster for _, cluster in names[True] & names[False]})


def shared_clusters_note(clusters: Sequence[str]) -> str:
    """Returns what it means that questions and fresh questions share clusters."""
    numbers = (
        " They look like row numbers."
        if all(name.lstrip("-").isdigit() for name in clusters) else ""
    )  # fmt: skip
    return (
        f"{len(clusters)} clusters, such as {clusters[0]!r}, are named on both sides, so questions "
        f"are compared with the fresh questions of their own cluster (paired).{numbers} If equal "
        "names do not mean that texts belong together, give the two files distinct ones, or leave "
        "the column `cluster` out."
    )


def design_of(texts: Texts) -> Design:
    """Returns which texts are questions, and their clusters; a text without one is its own."""
    ids, clusters = texts.column("example_id").to_pylist(), texts.column("cluster").to_pylist()
    names = [cluster or f"\0{name}" for cluster, name in zip(clusters, ids, strict=True)]
    labels = texts.column("label").to_numpy(zero_copy_only=False).astype(bool)
    return Design(labels, np.unique(names, return_inverse=True)[1])


def check_near_copies(texts: Texts) -> int:
    """Returns how many comparison texts are near-copies of a question.

    They share 13 words in a row with it, or all words but for a typing error in one of them. Texts
    of one cluster may, and so may forms that many texts share.

    Raises:
        DataError: a text differs from a question only in case, punctuation or blanks, or more than
            the share TOLERATED of them are near-copies; the error names an example.
    """
    others = len(texts) - int(design_of(texts).is_question.sum())
    copies, similar = _near_copies(texts)
    if copies:
        said = "they differ in case, punctuation or blanks at most"
        raise DataError(_refusal(texts, copies, "the same as questions", said))
    number = len({other for _, other in similar})
    if number > TOLERATED * others:
        raise DataError(
            _refusal(texts, similar, "near-copies of questions", SHARED)
            + " If they belong together, name what they share in a column `cluster`."
        )
    return number


def _refusal(texts: Texts, pairs: Sequence[tuple[int, int]], what: str, said: str) -> str:
    strings, ids = texts.column("text").to_pylist(), texts.column("example_id").to_pylist()
    question, other = pairs[0]
    return (
        f"audit.fresh: {len({place for _, place in pairs})} of its texts are {what}, such as "
        f"{ids[other]} ({_beginning(strings[other])}) and {ids[question]} "
        f"({_beginning(strings[question])}): {said}, so they would leak together. Leave them out."
    )


def _near_copies(texts: Texts) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Returns pairs of a question and another text that are equal, and that are nearly so."""
    design = design_of(texts)
    strings, names = texts.column("text").to_pylist(), texts.column("benchmark").to_pylist()
    items = [ComparedItem([text], [text], name) for text, name in zip(strings, names, strict=True)]
    hasher, wholes = NearDuplicateHasher(items), NearDuplicateHasher()
    by_whole = _pairs([wholes.of(replace(item, parts=[])) for item in items], design, len(items))
    form = int(max(FEW, FORM * len(items)))
    by_words = _pairs([hasher.of(item) for item in items], design, form)
    by_words |= _pairs_with_a_typo([normalised_words(text) for text in strings], design, form)
    return sorted(by_whole), sorted(by_words - by_whole)


def _pairs_with_a_typo(
    words: Sequence[Sequence[str]], design: Design, most: int
) -> set[tuple[int, int]]:
    """Returns pairs of a question and another text whose words are equal but for a typing error.

    Only texts of few words are compared, because others still share 13 words in a row.

    Args:
        words: of each text.
        design: the labels and clusters.
        most: more texts with the same other words share a form.
    """
    texts_by_rest: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    for text, of_text in enumerate(words):
        if len(of_text) <= 2 * NGRAM_WORDS:
            for place in range(len(of_text)):
                texts_by_rest[place, (*of_text[:place], *of_text[place + 1 :])].append(text)
    return {
        (question, other)
        for (place, _), texts in texts_by_rest.items()
        if 2 <= len(texts) <= most
        for question, other in product(texts, texts)
        if design.is_question[question] and not design.is_question[other]
        and design.cluster[question] != design.cluster[other]
        and _differ_by_a_typo(words[question][place], words[other][place])
    }  # fmt: skip


def _differ_by_a_typo(first: str, second: str) -> bool:
    """Returns whether words differ in one letter, or two that are swapped (Damerau 1964)."""
    if not (first + second).isalpha() or min(len(first), len(second)) < LONG_WORD:
        return False
    while first and second and first[0] == second[0]:
        first, second = first[1:], second[1:]
    while first and second and first[-1] == second[-1]:
        first, second = first[:-1], second[:-1]
    return max(len(first), len(second)) <= 1 or len(first) == 2 and first == second[::-1]


def _pairs(keys: Sequence[Any], design: Design, most: int) -> set[tuple[int, int]]:
    """Returns the first question of each key with the other texts of it, if at most `most` have it.

    Args:
        keys: of each text.
        design: the labels and clusters.
        most: more texts with a key share a form.
    """
    ordered, owners = _sorted_keys(keys)
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    found: set[tuple[int, int]] = set()
    for start, end in pairwise([*starts.tolist(), len(ordered)]):
        if not 2 <= end - start <= most:
            continue
        sharing = owners[start:end]
        questions = sharing[design.is_question[sharing]]
        others = sharing[~design.is_question[sharing]]
        found |= {
            (int(question), int(other))
            for question in questions[:1]
            for other in others
            if design.cluster[question] != design.cluster[other]
        }
    return found


def _sorted_keys(keys: Sequence[Any]) -> tuple[Any, Numbers]:
    """Returns all keys in ascending order, and the text of each."""
    flat = np.concatenate(keys) if keys else np.empty(0, np.uint64)
    owners = np.repeat(np.arange(len(keys)), [len(k) for k in keys])
    order = np.argsort(flat, kind="stable")
    return flat[order], owners[order]


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…")


def is_drawn(questions: Any, others: Any) -> bool:
    """Returns whether both are files of one draw, unchanged, by the record beside them.

    The seed must have been drawn at random: with one of their own, somebody could try seeds until
    the sides differ. The record is the user's own word; nobody else has signed it.
    """
    if not all(isinstance(given, str | Path) for given in (questions, others)):
        return False
    paths = [Path(given).expanduser() for given in (questions, others)]
    record = paths[1].parent / RECORD
    if not all(path.is_file() for path in (*paths, record)):
        return False
    try:
        entries = verified_json(record.read_text(encoding="utf-8"))
    except ValueError:
        return False
    files = entries.get(FILES)
    if (
        entries.get(SEED_DRAWN) is not True
        or not isinstance(files, dict)
        or paths[1].name not in files
    ):
        return False
    digests = [file_digest(path) for path in paths]
    return digests[0] in files.values() and digests[1] == files[paths[1].name] != digests[0]
