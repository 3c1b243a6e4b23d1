"""Finds documents that share text with the examples of a pool.

An example is searched for in pieces: its text; each of its fields of 5 words or more, unless
another example has it as well; and its fields joined. `mask_templates` divides pieces at the words
of templates, and `MatchRules` says what counts as a match (docs/injection.md explains both).
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
from contamination.data.text import ZERO_WIDTH_SPACE, normalise_text

log = logging.getLogger(__name__)
GAP = -1
"""In place of a word of a template: no n-gram with it is indexed."""
TEMPLATE_SHARE = 0.1
TEMPLATE_EXAMPLES = 10
"""Brown et al. 2020 (appendix C) ignore 13-grams that are in more than 10 documents."""


@dataclass(frozen=True)
class SharedPassage:
    """Words in a row that count as template, since many examples of a benchmark share them.

    Attributes:
        benchmark: the benchmark's name.
        first_words: the first words of the shared passage, as they are compared.
        examples: how many examples of the pool share these words.
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
    """Put a GAP in place of each word of a template.

    Args:
        pieces: the examples' texts and fields, as numbers of words.
        example_of_piece: the number of each piece's example, shape (pieces,).
        benchmark_by_example: each example's benchmark.
        ngram: the least number of words in a row that make a template.

    Returns:
        The pieces, and the templates: the benchmark, the first `ngram` words, and how many
        examples share them.
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
        cut_piece[(places[shared, None] + np.arange(ngram)).ravel()] = GAP
        cut_pieces.append(cut_piece)
    return cut_pieces, [
        (str(benchmark_names[benchmark]), index.grams[gram], counts[benchmark, gram])
        for benchmark, gram in first_grams
    ]


def _count_template_examples(
    index: NgramIndex, example_of_piece: Places, benchmark_of_example: Places
) -> dict[tuple[int, int], int]:
    """For each n-gram of a template (benchmark, n-gram), count the examples that have it."""
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
STRETCH = 2  # length of the stretch of a document that a copy may take, in lengths of its original


@dataclass(frozen=True)
class MatchRules:
    """The lengths (run ≤ part_ngram ≤ ngram) and the shares of the rules.

    Words are in lower case, without punctuation, and split at white space. A text of fewer than
    `part_ngram` words matches as a whole (`whole text`).
    """

    ngram: int = 13
    """This many shared words in a row are a match (Brown et al. 2020, appendix C)."""
    part_ngram: int = 8
    """Length of the shorter n-grams, a share of which is a match."""
    part_share: float = 0.7
    """This share of a piece's distinct shorter n-grams is a match (Chowdhery et al. 2022, section
    8, who count over the whole corpus; here in one document, since a document is dropped)."""
    run: int = 3
    """This many words in a row count as shared words."""
    run_share: float = 0.75
    """More than this share of a piece's words, in such runs within a stretch of the document, is a
    match (as Touvron et al. 2023, appendix A.6, count runs of over 10 tokens)."""
    run_words: int = 5
    """The least number of these words; a field of fewer words is no piece."""


@dataclass(frozen=True)
class Match:
    """Why a document counts as contaminated.

    Attributes:
        example_id: the example with which it shares text.
        rule: `13-gram`, `8-gram share`, `shared words` or `whole text`.
        evidence: the shared words, as they were compared.
    """

    example_id: str
    rule: str
    evidence: str


class DocumentMatch(NamedTuple):
    """What one document shares with one example of the pool."""

    example_id: str
    rule: str
    """A rule of `Match`, or `verbatim`."""
    evidence: str
    """The shared words; for the rule `verbatim`, the text's first words."""
    occurrences: int
    """How often the document contains the example's whole text, by its characters."""


def warn_of_shared_passages(shared_passages: Iterable[SharedPassage]) -> None:
    """Log the passages that count as template, for each benchmark the most common ones."""
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
    """Finds what documents share with a pool's examples.

    A tokenizer may rewrite text first (Unicode's NFKC, lower case), so that different texts have
    equal tokens. So examples and documents are also compared in the form that it gives them. An
    occurrence of a whole text that no rule finds has the rule `verbatim`.

    Args:
        pool: each example's text, followed by the fields of which the text was made.
        spelled: `Tokenizer.apply_normalizer` of the tokenizer that reads the documents.
        parts: whether parts of examples are searched for, by the rules; otherwise only whole texts.
    """

    def __init__(
        self,
        pool: Mapping[str, Sequence[str]],
        spelled: Callable[[str], str],
        *,
        parts: bool = True,
    ) -> None:
        self._spelled = spelled
        self._as_written = _TextSearch(pool, parts=parts)
        respelled = {name: [spelled(text) for text in texts] for name, texts in pool.items()}
        self._differs = any(
            _differ_normalised(*pair)
            for name in pool
            for pair in zip(pool[name], respelled[name], strict=True)
        )
        self._as_spelled = (
            _TextSearch(respelled, parts=parts) if self._differs else self._as_written
        )

    @property
    def shared_passages(self) -> Sequence[SharedPassage]:
        """Passages that many examples of a benchmark share, and that are not compared."""
        return self._as_written.shared_passages

    def __call__(self, documents: Sequence[str]) -> list[list[DocumentMatch]]:
        """For each document, return one match for each example with which it shares text."""
        matches = self._as_written(documents)
        respelled = [self._spelled(document) for document in documents]
        pairs = enumerate(zip(documents, respelled, strict=True))
        numbers = [n for n, pair in pairs if self._differs or _differ_normalised(*pair)]
        respelled_matches = self._as_spelled([respelled[n] for n in numbers])
        for n, more_matches in zip(numbers, respelled_matches, strict=True):
            matches[n] = _merge_matches(matches[n], more_matches)
        return matches


def _differ_normalised(text: str, respelled: str) -> bool:
    return text != respelled and normalise_text(text) != normalise_text(respelled)


def _merge_matches(
    first: Sequence[DocumentMatch], second: Sequence[DocumentMatch]
) -> list[DocumentMatch]:
    """Merge one document's matches of two searches: one for each example, the first that there is.

    Its occurrences are the higher number of the two.
    """
    by_example = {match.example_id: match for match in first}
    for match in second:
        earlier = by_example.setdefault(match.example_id, match)
        occurrences = max(earlier.occurrences, match.occurrences)
        by_example[match.example_id] = earlier._replace(occurrences=occurrences)
    return list(by_example.values())


class _TextSearch:
    """Finds what documents share with a pool's examples, both as they are given."""

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
    """Return a text's first words, as evidence of a match."""
    return " ".join(text.split()[: MatchRules.ngram])


def benchmark_of(example_id: str) -> str:
    """Return the name of the benchmark, with which an example's id begins."""
    return example_id.rpartition("-")[0]


class Matcher:
    """Finds the examples with which a document shares words; pickled as only the texts."""

    def __init__(
        self,
        texts: Mapping[str, str],
        fields: Mapping[str, Sequence[str]] | None = None,
        rules: MatchRules = MatchRules(),  # noqa: B008
    ) -> None:
        """Index a pool.

        Args:
            texts: each example's text, by its id.
            fields: the fields of which each text was made.
            rules: what counts as a match.
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
        """Return each piece's example and words: all texts in order, then what the fields add."""
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
        """Return the first match by rule (in their order) and place, or None."""
        return next(self.iter_matches(document), None)

    def iter_matches(self, document: str) -> Iterator[Match]:
        """Return one match for each example with which the document shares text."""
        seen: set[int] = set()
        for words in self._iter_word_variants(document):
            for piece, rule, shared in self._iter_matching_pieces(words):
                example = int(self._example[piece])
                if example not in seen:
                    seen.add(example)
                    evidence = " ".join(self._vocabulary[i - 1] for i in shared)
                    yield Match(self._names[example], rule, evidence)

    def _iter_word_variants(self, document: str) -> Iterator[Words]:
        """The document's words: without zero-width spaces, and with blanks in their place."""
        yield self._numbers.of(document)
        if ZERO_WIDTH_SPACE in document:
            yield self._numbers.of(document.replace(ZERO_WIDTH_SPACE, " "))

    def _iter_matching_pieces(self, words: Words) -> Iterator[tuple[int, str, Words]]:
        rules = self.rules
        hits = self._parts.find(words)
        if len(hits):  # every 13-gram contains 8-grams, so without an 8-gram nothing matches
            for gram in self._long.find(words):
                for piece in self._long.owners(gram):
                    yield int(piece), f"{rules.ngram}-gram", self._long.grams[gram]
            owners = np.concatenate([self._parts.owners(gram) for gram in hits])
            shares = np.bincount(owners, minlength=len(self._example)) / self._parts.sizes
            for piece in np.flatnonzero(shares >= rules.part_share):
                gram = next(g for g in hits if piece in self._parts.owners(g))
                yield int(piece), f"{rules.part_ngram}-gram share", self._parts.grams[gram]
        for piece, shared in self._runs.find(words):
            yield piece, "shared words", shared
        for index in self._short:
            for gram in index.find(words):
                for piece in index.owners(gram):
                    yield int(piece), "whole text", index.grams[gram]


class _ShortRuns:
    """Finds pieces most of whose words are in short runs in one stretch of a document."""

    def __init__(self, pieces: list[Words], rules: MatchRules) -> None:
        self._index = NgramIndex(pieces, rules.run, places=True)
        self._words = np.concatenate([*pieces, np.empty(0, np.int32)])  # a word's slot: its place
        lengths = np.array([len(p) for p in pieces], np.int64)
        self._piece = np.repeat(np.arange(len(pieces)), lengths)
        self._lengths = lengths
        word_counts = np.array([np.count_nonzero(p >= 0) for p in pieces], np.int64)
        self._enough = np.maximum(np.floor(rules.run_share * word_counts) + 1, rules.run_words)

    def find(self, words: Words) -> Iterator[tuple[int, Words]]:
        """Yield each piece that is found, and the words of it that are."""
        places, grams = self._index.places(words)
        run_numbers, slots = self._index.all_owners(grams)
        owners = self._piece[slots]
        upper_bounds = self._index.n * np.bincount(owners, minlength=len(self._lengths))
        for piece in np.flatnonzero(upper_bounds >= self._enough):
            of_piece = owners == piece
            if self._index.n * len(np.unique(slots[of_piece])) < self._enough[piece]:
                continue  # the document repeats a run
            for covered in self._iter_covered_slots(
                places[run_numbers[of_piece]], slots[of_piece], int(piece)
            ):
                yield int(piece), self._words[covered]
                break

    def _iter_covered_slots(self, places: Places, slots: Places, piece: int) -> Iterator[Places]:
        """Yield the slots of a piece that runs cover, for each stretch in which they are enough.

        If a piece repeats itself, a run of the document is counted once.

        Args:
            places: where each run starts in the document, in ascending order.
            slots: where each run starts in the piece.
            piece: the piece's number.
        """
        word_offsets, enough = np.arange(self._index.n), self._enough[piece]
        # where the last run of each stretch may start
        last_starts = places + STRETCH * self._lengths[piece] - len(word_offsets)
        run_ends = np.searchsorted(places, last_starts, side="right")
        for first_run in np.flatnonzero(np.diff(places, prepend=-1)):
            within = slice(first_run, run_ends[first_run])
            covered_slots, covered_places = (
                np.unique(a[within, None] + word_offsets) for a in (slots, places)
            )
            if min(len(covered_slots), len(covered_places)) >= enough:
                yield covered_slots
