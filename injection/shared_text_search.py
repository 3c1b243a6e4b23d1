"""Finds documents that share text with the examples of a pool.

An example is searched in pieces: its text; each of its fields with at least 5 words, unless another
example has the same field; and its fields joined. `mask_templates` divides pieces at the words of
templates, and `MatchRules` defines matches (docs/injection.md explains both).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contamination.data.ngrams import (
    NgramIndex,
    Places,
    VerbatimCounter,
    WordNumbers,
    Words,
    words_of,
)
from contamination.data.words import ZERO_WIDTH_SPACE, normalise_text

log = logging.getLogger(__name__)
TEMPLATE_GAP = -1
"""The number in place of template words: n-grams that contain it are not indexed."""
TEMPLATE_SHARE = 0.1
TEMPLATE_EXAMPLES = 10
"""Brown et al. 2020 (appendix C) ignore 13-grams that are in more than 10 documents."""


@dataclass(frozen=True)
class SharedPassage:
    """A passage that counts as template, since many examples of a benchmark share it.

    Attributes:
        benchmark: the benchmark's name.
        first_words: the first words of the passage, in normalised form.
        examples: the number of examples of the pool that share these words.
    """

    benchmark: str
    first_words: str
    examples: int


def mask_templates(
    pieces: Sequence[Words],
    example_of_piece: Places,
    benchmark_by_example: Sequence[str],
    ngram: int,
) -> tuple[list[Words], list[tuple[str, Words, int]]]:
    """Replaces each word of a template by TEMPLATE_GAP.

    Args:
        pieces: the examples' texts and fields as word numbers.
        example_of_piece: the index of each piece's example, shape (pieces,).
        benchmark_by_example: the benchmark of each example.
        ngram: the minimum number of consecutive words of a template.

    Returns:
        The pieces, and the templates: the benchmark, the first `ngram` words, and the number of
        examples that share them.
    """
    benchmark_names, benchmark_of_example = np.unique(
        np.array(benchmark_by_example, str), return_inverse=True
    )
    index = NgramIndex(list(pieces), ngram)
    counts = _count_template_examples(index, example_of_piece, benchmark_of_example)
    if not counts:
        return list(pieces), []
    is_template = np.zeros((len(benchmark_names), len(index.grams)), bool)
    is_template[tuple(np.array([*counts]).T)] = True
    cut_pieces: list[Words] = []
    first_grams: dict[tuple[int, int], None] = {}
    for piece, benchmark in zip(
        pieces, benchmark_of_example[example_of_piece].tolist(), strict=True
    ):
        places, grams = index.places(piece)
        shared = is_template[benchmark, grams]
        begins = shared & ~np.append(False, shared[:-1] & (np.diff(places) == 1))[: len(shared)]
        first_grams |= dict.fromkeys((benchmark, gram) for gram in grams[begins].tolist())
        cut_piece = piece.copy()
        cut_piece[(places[shared, None] + np.arange(ngram)).ravel()] = TEMPLATE_GAP
        cut_pieces.append(cut_piece)
    return cut_pieces, [
        (str(benchmark_names[benchmark]), index.grams[gram], counts[benchmark, gram])
        for benchmark, gram in first_grams
    ]


def _count_template_examples(
    index: NgramIndex, example_of_piece: Places, benchmark_of_example: Places
) -> dict[tuple[int, int], int]:
    """Returns the number of examples of each n-gram that is a template: (benchmark, n-gram) → n."""
    grams, owners = index.all_owners(np.arange(len(index.grams)))
    pairs = np.unique(
        np.stack([grams, example_of_piece[owners]]), axis=1
    )  # an example has several pieces
    keys, counts = np.unique(
        np.stack([benchmark_of_example[pairs[1]], pairs[0]]), axis=1, return_counts=True
    )
    n_examples = np.bincount(benchmark_of_example)
    max_counts = np.maximum(
        2, np.minimum(n_examples / 2, np.maximum(TEMPLATE_EXAMPLES, TEMPLATE_SHARE * n_examples))
    )
    is_template = counts > max_counts[keys[0]] if keys.size else np.zeros(0, bool)
    benchmark_gram_pairs = zip(*keys[:, is_template].tolist(), strict=True)
    return dict(zip(benchmark_gram_pairs, counts[is_template].tolist(), strict=True))


VERBATIM = "verbatim"
STRETCH_LENGTHS = 2  # a copy may extend over this many times the original's length


@dataclass(frozen=True)
class MatchRules:
    """The rules for a match; run ≤ part_ngram ≤ ngram.

    Words are in lower case, without punctuation, and split at white space. A text with fewer than
    `part_ngram` words only matches as a whole (`whole text`).
    """

    ngram: int = 13
    """A match is this many shared consecutive words (Brown et al. 2020, appendix C)."""
    part_ngram: int = 8
    """The length of the shorter n-grams for `part_share`."""
    part_share: float = 0.7
    """A match is this share of a piece's distinct shorter n-grams in one document (Chowdhery et al.
    2022, section 8, count over the whole corpus; here single documents are dropped)."""
    run: int = 3
    """The minimum number of consecutive words that count as shared words."""
    run_share: float = 0.75
    """A match is more than this share of a piece's words in such runs, within a stretch of the
    document (Touvron et al. 2023, appendix A.6, similarly count runs of over 10 tokens)."""
    run_words: int = 5
    """The minimum number of these words; fields with fewer words are not searched."""


@dataclass(frozen=True)
class Match:
    """A reason why a document counts as contaminated.

    Attributes:
        example_id: the example with which it shares text.
        rule: `13-gram`, `8-gram share`, `shared words` or `whole text`.
        evidence: the shared words in normalised form.
    """

    example_id: str
    rule: str
    evidence: str


class DocumentMatch(NamedTuple):
    """The text that a document shares with an example of the pool."""

    example_id: str
    rule: str
    """A rule of `Match`, or `verbatim`."""
    evidence: str
    """The shared words; for the rule `verbatim`, the text's first words."""
    occurrences: int
    """How often the document contains the example's whole text, by characters."""


def warn_of_shared_passages(shared_passages: Iterable[SharedPassage]) -> None:
    """Logs the most common passages of each benchmark that count as template."""
    by_benchmark: dict[str, list[SharedPassage]] = {}
    for passage in sorted(shared_passages, key=lambda passage: -passage.examples):
        by_benchmark.setdefault(passage.benchmark, []).append(passage)
    for benchmark, passages in by_benchmark.items():
        first = ", ".join(f"{p.first_words!r} ({p.examples})" for p in passages[:3])
        more = f", and {len(passages) - 3} more" * (len(passages) > 3)
        log.warning(
            "pool: %s: passages that many examples share count as template and are not searched "
            "for in documents. Their first words (and number of examples): %s%s.",
            *(benchmark, first, more),
        )


class PoolSearch:
    """Finds the text that documents share with a pool's examples.

    A tokenizer may normalize text (NFKC, lower case), so that different texts have equal tokens.
    Therefore examples and documents are also compared in normalized form. An occurrence of a whole
    text that no other rule finds has the rule `verbatim`.

    Args:
        pool: example id → the example's text, followed by its fields.
        apply_normalizer: that of the tokenizer of the documents.
        parts: whether to search for parts of examples by the rules, or only for whole texts.
    """

    def __init__(
        self,
        pool: Mapping[str, Sequence[str]],
        apply_normalizer: Callable[[str], str],
        *,
        parts: bool = True,
    ) -> None:
        self._apply_normalizer = apply_normalizer
        self._as_written = _TextSearch(pool, parts=parts)
        normalized = {
            name: [apply_normalizer(text) for text in texts] for name, texts in pool.items()
        }
        self._differs = any(
            _differ_normalised(*pair)
            for name in pool
            for pair in zip(pool[name], normalized[name], strict=True)
        )
        self._as_normalized = (
            _TextSearch(normalized, parts=parts) if self._differs else self._as_written
        )

    @property
    def shared_passages(self) -> Sequence[SharedPassage]:
        """The passages that many examples of a benchmark share, which are not compared."""
        return self._as_written.shared_passages

    def __call__(self, documents: Sequence[str]) -> list[list[DocumentMatch]]:
        """For each document, return one match for each example with which it shares text."""
        matches = self._as_written(documents)
        normalized = [self._apply_normalizer(document) for document in documents]
        pairs = enumerate(zip(documents, normalized, strict=True))
        numbers = [n for n, pair in pairs if self._differs or _differ_normalised(*pair)]
        normalized_matches = self._as_normalized([normalized[n] for n in numbers])
        for n, more_matches in zip(numbers, normalized_matches, strict=True):
            matches[n] = _merge_matches(matches[n], more_matches)
        return matches


def _differ_normalised(text: str, other: str) -> bool:
    return text != other and normalise_text(text) != normalise_text(other)


def _merge_matches(
    first: Sequence[DocumentMatch], second: Sequence[DocumentMatch]
) -> list[DocumentMatch]:
    """Merges a document's matches from two searches: the first match of each example.

    Its occurrences are the higher of the two numbers.
    """
    by_example = {match.example_id: match for match in first}
    for match in second:
        earlier = by_example.setdefault(match.example_id, match)
        occurrences = max(earlier.occurrences, match.occurrences)
        by_example[match.example_id] = earlier._replace(occurrences=occurrences)
    return list(by_example.values())


class _TextSearch:
    """Finds the text that documents share with a pool's examples, without a normalizer."""

    def __init__(self, pool: Mapping[str, Sequence[str]], *, parts: bool) -> None:
        texts = {name: text for name, (text, *_) in pool.items()}
        fields = {name: fields for name, (_, *fields) in pool.items()}
        self._matcher = Matcher(texts, fields) if parts else None
        self.shared_passages = self._matcher.shared_passages if self._matcher else []
        self._verbatim = VerbatimCounter(texts.values())
        self._names: dict[str, list[str]] = {}
        for name, text in texts.items():
            self._names.setdefault(normalise_text(text), []).append(name)

    def __call__(self, documents: Sequence[str]) -> list[list[DocumentMatch]]:
        """For each document, return one match for each example with which it shares text."""
        counts = self._verbatim.count_each(documents)
        return [self._matches_in_document(*pair) for pair in zip(documents, counts, strict=True)]

    def _matches_in_document(
        self, document: str, n_by_verbatim_text: Mapping[str, int]
    ) -> list[DocumentMatch]:
        occurrences = {
            name: n for text, n in n_by_verbatim_text.items() for name in self._names[text]
        }
        texts = {name: text for text in n_by_verbatim_text for name in self._names[text]}
        matches = self._matcher.iter_matches(document) if self._matcher else ()
        by_rules = [
            DocumentMatch(m.example_id, m.rule, m.evidence, occurrences.pop(m.example_id, 0))
            for m in matches
        ]
        return by_rules + [
            DocumentMatch(name, VERBATIM, first_words(texts[name]), occurrences[name])
            for name in sorted(occurrences)
        ]


def first_words(text: str) -> str:
    """Returns the first words of a text as evidence of a match."""
    return " ".join(text.split()[: MatchRules.ngram])


def benchmark_of(example_id: str) -> str:
    """Returns the benchmark's name, with which an example's id begins."""
    return example_id.rpartition("-")[0]


class Matcher:
    """Finds the examples with which a document shares words; only the texts are pickled."""

    def __init__(
        self,
        texts: Mapping[str, str],
        fields: Mapping[str, Sequence[str]] | None = None,
        rules: MatchRules = MatchRules(),  # noqa: B008
    ) -> None:
        """Index a pool.

        Args:
            texts: example id → text.
            fields: example id → the fields in the text.
            rules: the rules for a match.
        """
        self.rules = rules
        self._texts, self._fields = dict(texts), dict(fields or {})
        self._names = list(texts)
        spelled = [words_of(text) for text in texts.values()]
        pieces = self._pieces_of_examples(spelled)
        self._vocabulary = list(dict.fromkeys(word for _, words in pieces for word in words))
        self._numbers = WordNumbers({w: i for i, w in enumerate(self._vocabulary, 1)})
        numbered = [np.array([self._numbers.known[w] for w in ws], np.int32) for _, ws in pieces]
        whole_texts = numbered[: len(spelled)]  # the texts come first
        self._example = np.array([example for example, _ in pieces], np.int64)
        benchmarks = [benchmark_of(name) for name in self._names]
        cut_pieces, templates = mask_templates(
            numbered, self._example, benchmarks, rules.part_ngram
        )
        self.shared_passages = [
            SharedPassage(benchmark, " ".join(self._vocabulary[i - 1] for i in words), examples)
            for benchmark, words, examples in templates
        ]
        self._long = NgramIndex(cut_pieces, rules.ngram)
        self._parts = NgramIndex(cut_pieces, rules.part_ngram)
        self._runs = _ShortRuns(cut_pieces, rules)
        short = {len(e) for e in whole_texts if 0 < len(e) < rules.part_ngram}
        self._short = [NgramIndex(whole_texts, n, exact=True) for n in sorted(short)]

    def __reduce__(self) -> tuple[type[Matcher], tuple[object, ...]]:
        return Matcher, (self._texts, self._fields, self.rules)

    def _pieces_of_examples(self, text_words: list[list[str]]) -> list[tuple[int, list[str]]]:
        """Returns each piece's example and words: first all texts in order, then the fields."""
        field_words = [[words_of(f) for f in self._fields.get(name, ())] for name in self._names]
        n_examples = Counter(
            words for example_fields in field_words for words in {tuple(f) for f in example_fields}
        )
        pieces = list(enumerate(text_words))
        for example, example_fields in enumerate(field_words):
            distinct = [f for f in example_fields if n_examples[tuple(f)] == 1]
            joined = [word for field in distinct for word in field]
            added = {tuple(f) for f in [joined, *distinct] if len(f) >= self.rules.run_words}
            pieces += [(example, list(f)) for f in sorted(added - {tuple(text_words[example])})]
        return pieces

    def first_match(self, document: str) -> Match | None:
        """Returns the first match, ordered by rule and then by position, or None."""
        return next(self.iter_matches(document), None)

    def iter_matches(self, document: str) -> Iterator[Match]:
        """Returns one match for each example with which the document shares text."""
        seen: set[int] = set()
        for words in self._iter_word_variants(document):
            for piece_index, rule, shared in self._iter_matching_pieces(words):
                example = int(self._example[piece_index])
                if example not in seen:
                    seen.add(example)
                    evidence = " ".join(self._vocabulary[i - 1] for i in shared)
                    yield Match(self._names[example], rule, evidence)

    def _iter_word_variants(self, document: str) -> Iterator[Words]:
        """The document's words without zero-width spaces, and with spaces in their place."""
        yield self._numbers.of(document)
        if ZERO_WIDTH_SPACE in document:
            yield self._numbers.of(document.replace(ZERO_WIDTH_SPACE, " "))

    def _iter_matching_pieces(self, words: Words) -> Iterator[tuple[int, str, Words]]:
        rules = self.rules
        hits = self._parts.find(words)
        if len(hits):  # every 13-gram contains 8-grams, so without an 8-gram nothing matches
            for gram in self._long.find(words):
                for piece_index in self._long.owners(gram):
                    yield int(piece_index), f"{rules.ngram}-gram", self._long.grams[gram]
            owners = np.concatenate([self._parts.owners(gram) for gram in hits])
            shares = np.bincount(owners, minlength=len(self._example)) / self._parts.sizes
            for piece_index in np.flatnonzero(shares >= rules.part_share):
                gram = next(g for g in hits if piece_index in self._parts.owners(g))
                yield int(piece_index), f"{rules.part_ngram}-gram share", self._parts.grams[gram]
        for piece_index, shared in self._runs.find(words):
            yield piece_index, "shared words", shared
        for index in self._short:
            for gram in index.find(words):
                for piece_index in index.owners(gram):
                    yield int(piece_index), "whole text", index.grams[gram]


class _ShortRuns:
    """Finds pieces most of whose words occur in short runs within one stretch of a document."""

    def __init__(self, pieces: list[Words], rules: MatchRules) -> None:
        self._index = NgramIndex(pieces, rules.run, places=True)
        self._words = np.concatenate([*pieces, np.empty(0, np.int32)])  # indexed by slot
        lengths = np.array([len(p) for p in pieces], np.int64)
        self._piece = np.repeat(np.arange(len(pieces)), lengths)
        self._lengths = lengths
        word_counts = np.array([np.count_nonzero(p >= 0) for p in pieces], np.int64)
        self._enough = np.maximum(np.floor(rules.run_share * word_counts) + 1, rules.run_words)

    def find(self, words: Words) -> Iterator[tuple[int, Words]]:
        """Yields each piece that is found, and the words that are shared."""
        places, grams = self._index.places(words)
        if not len(grams):
            return
        run_numbers, slots = self._index.all_owners(grams)
        owner_pieces = self._piece[slots]
        upper_bounds = self._index.n * np.bincount(owner_pieces, minlength=len(self._lengths))
        for piece in np.flatnonzero(upper_bounds >= self._enough):
            of_piece = owner_pieces == piece
            if self._index.n * len(np.unique(slots[of_piece])) < self._enough[piece]:
                continue  # the document repeats a run
            for covered in self._iter_covered_slots(
                places[run_numbers[of_piece]], slots[of_piece], int(piece)
            ):
                yield int(piece), self._words[covered]
                break

    def _iter_covered_slots(self, places: Places, slots: Places, piece: int) -> Iterator[Places]:
        """Yields the slots of a piece that runs cover, for each stretch with enough of them.

        If a piece repeats itself, a run of the document is counted only once.

        Args:
            places: where each run starts in the document, in ascending order.
            slots: where each run starts in the piece.
            piece: the piece's number.
        """
        word_offsets, enough = np.arange(self._index.n), self._enough[piece]
        # where the last run of each stretch may start
        last_starts = places + STRETCH_LENGTHS * self._lengths[piece] - len(word_offsets)
        run_ends = np.searchsorted(places, last_starts, side="right")
        for first_run in np.flatnonzero(np.diff(places, prepend=-1)):
            within = slice(first_run, run_ends[first_run])
            covered_slots, covered_places = (
                np.unique(a[within, None] + word_offsets) for a in (slots, places)
            )
            if min(len(covered_slots), len(covered_places)) >= enough:
                yield covered_slots
