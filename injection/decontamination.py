"""Corpus documents that already hold a pool example, found as the documents stream by.

What is looked for are an example's pieces: its formatted text; each of its template's fields that
has 5 words or more; and its fields joined, as they may stand in another template. A field whose
words another example has as well ("Yes", "Which of the following is true?") names no example and is
no piece. Words of a template that many examples share are not compared (`without_templates`):
they break a piece, and are none of its words in what follows. Four rules, over words (lowercased,
punctuation stripped, split at whitespace):

- `13-gram`: document and piece share 13 words in a row (Brown et al. 2020, appendix C).
- `8-gram share`: at least 70% of the piece's distinct 8-grams are in the document (Chowdhery et
  al. 2022, section 8, who count over the whole corpus; here one document at a time, since one
  document is what is dropped). It adds pieces of 8 to 12 words, and longer ones whose parts lie
  apart.
- `shared words`: more than 75% of the piece's words, and 5 or more, stand in runs of 3 or more
  within one stretch of the document, at most twice as long as the piece. Llama 2's authors count
  so (Touvron et al. 2023, appendix A.6), in runs of over 10 tokens. It adds pieces of 5 to 7
  words, and copies in which a word here and there was changed, left out or put in.
- `whole text`: a text of under 8 words has no 8-gram; all its words in a row are the match. A
  one-word text thus matches wherever its word stands. One without any word matches nothing.

Whole formatted texts are also counted by their characters (`data.ngrams`). Such a natural
occurrence that no rule above finds, since it begins or ends within a word, is a match by the rule
`verbatim`.

A tokenizer may rewrite text first (Unicode's NFKC, lower case), and texts that differ then have
equal tokens. So examples and documents are compared as it rewrites them, too.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contamination.data.ngrams import Index, Numbers, Places, Verbatim, Words, words_of
from contamination.data.text import ZERO_WIDTH_SPACE, normalised

log = logging.getLogger(__name__)
GAP = -1
"""Stands for a word of the template: no n-gram over it is indexed."""
SHARE = 0.1
FEW = 10
"""As Brown et al. 2020 (appendix C) do with 13-grams that stand in more than 10 documents."""


@dataclass(frozen=True)
class SharedPassage:
    """Words in a row that so many examples of a benchmark share that they are not compared.

    Attributes:
        benchmark: the benchmark's name.
        first_words: the first words of the shared passage, as they are compared.
        examples: how many examples of the pool share these words.
    """

    benchmark: str
    first_words: str
    examples: int


def without_templates(
    pieces: Sequence[Words], example: Places, benchmarks: Sequence[str], n: int
) -> tuple[list[Words], list[tuple[str, Words, int]]]:
    """The pieces with a GAP in place of each word of their benchmark's templates.

    Args:
        pieces: the examples' texts and fields, as word numbers.
        example: the number of each piece's example.
        benchmarks: each example's benchmark.
        n: words in a row that a template has.

    Returns:
        The pieces, and the templates: benchmark, first n words, and number of examples.
    """
    names, group = np.unique(np.array(benchmarks, str), return_inverse=True)
    index = Index(list(pieces), n)
    counts = _count_shared(index, example, group)
    if not counts:
        return list(pieces), []
    is_template = np.zeros((len(names), len(index.grams)), bool)
    is_template[tuple(np.array([*counts]).T)] = True
    cut_pieces: list[Words] = []
    first_grams: dict[tuple[int, int], None] = {}
    for piece, benchmark in zip(pieces, group[example].tolist(), strict=True):
        places, grams = index.places(piece)
        shared = is_template[benchmark, grams]
        begins = shared & ~np.append(False, shared[:-1] & (np.diff(places) == 1))[: len(shared)]
        first_grams |= dict.fromkeys((benchmark, gram) for gram in grams[begins].tolist())
        cut_piece = piece.copy()
        cut_piece[(places[shared, None] + np.arange(n)).ravel()] = GAP
        cut_pieces.append(cut_piece)
    return cut_pieces, [
        (str(names[benchmark]), index.grams[gram], counts[benchmark, gram])
        for benchmark, gram in first_grams
    ]


def _count_shared(index: Index, example: Places, group: Places) -> dict[tuple[int, int], int]:
    """The templates' n-grams: benchmark and n-gram → examples of the benchmark that have it."""
    grams, owners = index.all_owners(np.arange(len(index.grams)))
    pairs = np.unique(np.stack([grams, example[owners]]), axis=1)  # an example has several pieces
    keys, counts = np.unique(np.stack([group[pairs[1]], pairs[0]]), axis=1, return_counts=True)
    examples = np.bincount(group)
    limits = np.maximum(2, np.minimum(examples / 2, np.maximum(FEW, SHARE * examples)))
    above = counts > limits[keys[0]] if keys.size else np.zeros(0, bool)
    benchmark_and_gram = zip(*keys[:, above].tolist(), strict=True)
    return dict(zip(benchmark_and_gram, counts[above].tolist(), strict=True))


VERBATIM = "verbatim"
STRETCH = 2  # a copy's stretch of a document, in lengths of what is copied


@dataclass(frozen=True)
class Rules:
    """The lengths (run ≤ part_ngram ≤ ngram) and the shares of the rules."""

    ngram: int = 13
    """Words in a row that are a match by themselves."""
    part_ngram: int = 8
    """Words of the shorter n-gram, of which a share is a match."""
    part_share: float = 0.7
    """Share of a piece's distinct shorter n-grams that is a match."""
    run: int = 3
    """Words in a row that count as shared."""
    run_share: float = 0.75
    """More than this share of a piece's words, standing in such runs, is a match."""
    run_words: int = 5
    """Least number of these words; a field of fewer words is no piece."""


@dataclass(frozen=True)
class Match:
    """Why a document counts as contaminated.

    Attributes:
        example_id: the example that it shares text with.
        rule: `13-gram`, `8-gram share`, `shared words` or `whole text`.
        evidence: words that both have, as they were compared.
    """

    example_id: str
    rule: str
    evidence: str


class Shared(NamedTuple):
    """What one document shares with one example of the pool."""

    example_id: str
    rule: str
    """As `Match`, or `verbatim`."""
    evidence: str
    """Words that both have; of a text that only stands verbatim, its first words."""
    occurrences: int
    """How often the example's whole text stands in the document, by its characters."""


def warn_of_shared_passages(shared_passages: Iterable[SharedPassage]) -> None:
    """Log the passages that are not compared, most shared first, some of each benchmark."""
    by_benchmark: dict[str, list[SharedPassage]] = {}
    for passage in sorted(shared_passages, key=lambda passage: -passage.examples):
        by_benchmark.setdefault(passage.benchmark, []).append(passage)
    for benchmark, passages in by_benchmark.items():
        first = ", ".join(f"{p.first_words!r} ({p.examples})" for p in passages[:3])
        more = f", and {len(passages) - 3} more" * (len(passages) > 3)
        log.warning(
            "pool: %s: many examples share a passage, which counts as template and is not "
            "looked for in documents. It begins with (number of examples): %s%s.",
            *(benchmark, first, more),
        )


class PoolSearch:
    """Finds what documents share with a pool's examples.

    Args:
        pool: example id → its text, followed by the fields that the text was made of.
        spelled: `Tokenizer.spelled` of the tokenizer that reads the documents.
        parts: whether parts of examples are looked for, by the rules; else only whole texts.
    """

    def __init__(
        self,
        pool: Mapping[str, Sequence[str]],
        spelled: Callable[[str], str],
        *,
        parts: bool = True,
    ) -> None:
        self._spelled = spelled
        self._as_written = _Search(pool, parts=parts)
        respelled = {name: [spelled(text) for text in texts] for name, texts in pool.items()}
        self._differs = any(
            _differ(*pair)
            for name in pool
            for pair in zip(pool[name], respelled[name], strict=True)
        )
        self._as_spelled = _Search(respelled, parts=parts) if self._differs else self._as_written

    @property
    def shared_passages(self) -> Sequence[SharedPassage]:
        """Passages that many examples of a benchmark share, and that are not compared."""
        return self._as_written.shared_passages

    def __call__(self, documents: Sequence[str]) -> list[list[Shared]]:
        """For each document all examples that it shares text with, each once."""
        found = self._as_written(documents)
        respelled = [self._spelled(document) for document in documents]
        pairs = enumerate(zip(documents, respelled, strict=True))
        again = [n for n, pair in pairs if self._differs or _differ(*pair)]
        for n, shared in zip(again, self._as_spelled([respelled[n] for n in again]), strict=True):
            found[n] = _joined(found[n], shared)
        return found


def _differ(text: str, other: str) -> bool:
    return text != other and normalised(text) != normalised(other)


def _joined(shared: Sequence[Shared], others: Sequence[Shared]) -> list[Shared]:
    """What one document shares with the pool by two searches: each example once, by the first."""
    found = {match.example_id: match for match in shared}
    for match in others:
        known = found.setdefault(match.example_id, match)
        most = max(known.occurrences, match.occurrences)
        found[match.example_id] = known._replace(occurrences=most)
    return list(found.values())


class _Search:
    """Finds what documents share with a pool's examples, both as they are written."""

    def __init__(self, pool: Mapping[str, Sequence[str]], *, parts: bool) -> None:
        texts = {name: text for name, (text, *_) in pool.items()}
        fields = {name: own for name, (_, *own) in pool.items()}
        self._matcher = Matcher(texts, fields) if parts else None
        self.shared_passages = self._matcher.shared_passages if self._matcher else []
        self._verbatim = Verbatim(texts.values())
        self._names: dict[str, list[str]] = {}
        for name, text in texts.items():
            self._names.setdefault(normalised(text), []).append(name)

    def __call__(self, documents: Sequence[str]) -> list[list[Shared]]:
        """For each document all examples that it shares text with, each once."""
        counts = self._verbatim.count_each(documents)
        return [self._of(*pair) for pair in zip(documents, counts, strict=True)]

    def _of(self, document: str, counts: Mapping[str, int]) -> list[Shared]:
        whole = {name: (text, n) for text, n in counts.items() for name in self._names[text]}
        found = self._matcher.matches(document) if self._matcher else ()
        shared = [
            Shared(m.example_id, m.rule, m.evidence, whole.pop(m.example_id, ("", 0))[1])
            for m in found
        ]
        rest = sorted(whole.items())
        return shared + [Shared(name, VERBATIM, first_words(text), n) for name, (text, n) in rest]


def first_words(text: str) -> str:
    """A text's first words, as evidence."""
    return " ".join(text.split()[: Rules.ngram])


def benchmark_of(example_id: str) -> str:
    """The benchmark's name, which an example's id begins with."""
    return example_id.rpartition("-")[0]


class Matcher:
    """Tells whether a document shares text with a pool; pickles as the pool's texts alone."""

    def __init__(
        self,
        texts: Mapping[str, str],
        fields: Mapping[str, Sequence[str]] | None = None,
        rules: Rules = Rules(),  # noqa: B008
    ) -> None:
        """Index the pool: example id → text, and → the fields that the text was made of."""
        self.rules = rules
        self._texts, self._fields = dict(texts), dict(fields or {})
        self._names = list(texts)
        spelled = [words_of(text) for text in texts.values()]
        pieces = self._pieces(spelled)
        self._vocabulary = list(dict.fromkeys(word for _, words in pieces for word in words))
        self._numbers = Numbers({w: i for i, w in enumerate(self._vocabulary, 1)})
        numbered = [np.array([self._numbers.known[w] for w in ws], np.int32) for _, ws in pieces]
        whole = numbered[: len(spelled)]  # the texts come first
        self._example = np.array([example for example, _ in pieces], np.int64)
        benchmarks = [benchmark_of(name) for name in self._names]
        own, templates = without_templates(numbered, self._example, benchmarks, rules.part_ngram)
        self.shared_passages = [
            SharedPassage(benchmark, " ".join(self._vocabulary[i - 1] for i in words), examples)
            for benchmark, words, examples in templates
        ]
        self._long = Index(own, rules.ngram)
        self._parts = Index(own, rules.part_ngram)
        self._runs = _Runs(own, rules)
        short = {len(e) for e in whole if 0 < len(e) < rules.part_ngram}
        self._short = [Index(whole, n, exact=True) for n in sorted(short)]

    def __reduce__(self) -> tuple[type[Matcher], tuple[object, ...]]:
        return Matcher, (self._texts, self._fields, self.rules)

    def _pieces(self, texts: list[list[str]]) -> list[tuple[int, list[str]]]:
        """Each piece's example and words: all texts in order, then what the fields add."""
        fields = [[words_of(f) for f in self._fields.get(name, ())] for name in self._names]
        held = Counter(words for each in fields for words in {tuple(f) for f in each})
        pieces = list(enumerate(texts))
        for example, each in enumerate(fields):
            own = [f for f in each if held[tuple(f)] == 1]
            joined = [word for field in own for word in field]
            added = {tuple(f) for f in [joined, *own] if len(f) >= self.rules.run_words}
            pieces += [(example, list(f)) for f in sorted(added - {tuple(texts[example])})]
        return pieces

    def match(self, document: str) -> Match | None:
        """The first match by rule (in their order) and place, or None."""
        return next(self.matches(document), None)

    def matches(self, document: str) -> Iterator[Match]:
        """All examples that the document shares text with, each once."""
        seen: set[int] = set()
        for words in self._readings(document):
            for piece, rule, shared in self._found(words):
                example = int(self._example[piece])
                if example not in seen:
                    seen.add(example)
                    evidence = " ".join(self._vocabulary[i - 1] for i in shared)
                    yield Match(self._names[example], rule, evidence)

    def _readings(self, document: str) -> Iterator[Words]:
        """The document's words: without zero-width spaces, and with blanks in their place."""
        yield self._numbers.of(document)
        if ZERO_WIDTH_SPACE in document:
            yield self._numbers.of(document.replace(ZERO_WIDTH_SPACE, " "))

    def _found(self, words: Words) -> Iterator[tuple[int, str, Words]]:
        rules = self.rules
        hits = self._parts.find(words)
        if len(hits):  # a 13-gram holds 8-grams: without one of these there is no other
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


class _Runs:
    """Finds pieces most of whose words stand in short runs in one stretch of a document."""

    def __init__(self, pieces: list[Words], rules: Rules) -> None:
        self._index = Index(pieces, rules.run, places=True)
        self._words = np.concatenate([*pieces, np.empty(0, np.int32)])  # a word's slot: its place
        lengths = np.array([len(p) for p in pieces], np.int64)
        self._piece = np.repeat(np.arange(len(pieces)), lengths)
        self._lengths = lengths
        own_words = np.array([np.count_nonzero(p >= 0) for p in pieces], np.int64)
        self._enough = np.maximum(np.floor(rules.run_share * own_words) + 1, rules.run_words)

    def find(self, words: Words) -> Iterator[tuple[int, Words]]:
        """Each piece that is found and its words that are."""
        places, grams = self._index.places(words)
        of, slots = self._index.all_owners(grams)
        owners = self._piece[slots]
        most = self._index.n * np.bincount(owners, minlength=len(self._lengths))
        for piece in np.flatnonzero(most >= self._enough):
            mine = owners == piece
            for covered in self._stretches(places[of[mine]], slots[mine], int(piece)):
                yield int(piece), self._words[covered]
                break

    def _stretches(self, places: Places, slots: Places, piece: int) -> Iterator[Places]:
        """The piece's slots that runs cover, for each stretch of the document where it's enough.

        A piece that repeats itself does not count one run of the document twice.

        Args:
            places: where in the document each run starts, in ascending order.
            slots: where each starts in the piece.
            piece: which piece.
        """
        run, enough = np.arange(self._index.n), self._enough[piece]
        last = places + STRETCH * self._lengths[piece] - len(run)  # where a stretch's runs start
        ends = np.searchsorted(places, last, side="right")
        for first in np.flatnonzero(np.diff(places, prepend=-1)):
            within = slice(first, ends[first])
            covered, used = (np.unique(a[within, None] + run) for a in (slots, places))
            if min(len(covered), len(used)) >= enough:
                yield covered
