"""Measures within a few seconds whether a part of a corpus has enough tokens.

Documents are read and tokenized in order, as for packing, until there are enough tokens. After a
time limit, the remaining tokens are estimated: first from the characters of further documents,
which are only read, and then from the size of the corpus's files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from contamination.core.config import instantiate_node
from contamination.data.readers import Document
from contamination.data.readers.rows import group_by_size
from contamination.injection.config import InjectionStage
from contamination.injection.run import documents_of_part, hash_range_of_part
from contamination.injection.shared_text_search import PoolSearch
from contamination.injection.token_stream import Tokenizer

MEASURING_SECONDS = 4.0
"""The time limit for tokenizing documents, and then for reading further documents."""
GROUP_CHARACTERS = 500_000
ENOUGH_MARGIN = 1.1
"""Reading stops once the estimate is this many times the wanted number of tokens."""


@dataclass(frozen=True)
class TokenSupply:
    """The tokens of a part of a corpus."""

    tokens: int | None
    """Counted or estimated; None: unknown, since the files are compressed or a mixture."""
    counted: int
    """Tokens that were counted."""
    documents: int
    """Documents whose tokens were counted."""
    is_whole: bool
    """Whether these are all documents of the part."""

    def is_enough(self, wanted_tokens: int) -> bool | None:
        """Returns whether there are, at least probably, enough tokens; None if unknown."""
        if self.counted >= wanted_tokens:
            return True
        return None if self.tokens is None else self.tokens >= wanted_tokens

    def is_surely_short(self, wanted_tokens: int) -> bool:
        """Returns whether all tokens were counted and there are fewer than wanted."""
        return self.is_whole and self.counted < wanted_tokens

    def describe(self, wanted_tokens: int) -> str:
        """Returns a description of the number of tokens and of how it was determined."""
        if self.is_whole:
            return f"{self.counted:,} tokens (counted)"
        if self.counted >= wanted_tokens:
            return f"at least {self.counted:,} tokens (counted)"
        sample = f"the first {self.documents:,} documents, {self.counted:,} tokens"
        if self.tokens is None:
            return f"not known how many tokens, besides {sample}"
        return f"about {_round_to_digits(self.tokens):,} tokens (an estimate from {sample})"


def measure_supply(
    stage: InjectionStage,
    tokenizer: Tokenizer,
    wanted_tokens: int,
    dropped_texts: Mapping[str, Sequence[str]] | None = None,
    seconds: float = MEASURING_SECONDS,
) -> TokenSupply:
    """Returns the number of tokens of the documents that the stage would pack.

    Args:
        stage: names the corpus and the part of it.
        tokenizer: the tokenizer of the packed corpus.
        wanted_tokens: the number of tokens at which counting stops.
        dropped_texts: texts of the pool by example, if documents that share text with one are left
            out (injection.decontamination=drop).
        seconds: the time limit for tokenizing, and again for reading.

    Raises:
        DataError: a document can't be read, and the corpus stops at it.
    """
    search = _make_document_filter(dropped_texts, tokenizer)
    source = instantiate_node("corpus", stage.corpus)
    groups = _group_documents(documents_of_part(stage, source))
    tokens = characters = documents = 0
    end = time.monotonic() + seconds
    for group in groups:
        texts = search(group)
        tokens += sum(map(len, tokenizer.encode_documents(texts)))
        characters += sum(len(document.text) for document in group)
        documents += len(group)
        if tokens >= wanted_tokens:
            return TokenSupply(tokens, tokens, documents, is_whole=False)
        if time.monotonic() > end:
            break
    else:
        return TokenSupply(tokens, tokens, documents, is_whole=True)
    per_character, end = tokens / characters, time.monotonic() + seconds
    read_characters = characters
    for group in groups:
        read_characters += sum(len(document.text) for document in group)
        is_clearly_enough = per_character * read_characters > ENOUGH_MARGIN * wanted_tokens
        if is_clearly_enough or time.monotonic() > end:
            low, high = hash_range_of_part(stage)
            file_bytes = _file_bytes(source)
            by_size = file_bytes and round(per_character * file_bytes * (high - low))
            estimate = round(per_character * read_characters) if is_clearly_enough else by_size
            return TokenSupply(estimate, tokens, documents, is_whole=False)
    return TokenSupply(round(per_character * read_characters), tokens, documents, is_whole=False)


def _group_documents(documents: Iterator[Document]) -> Iterator[list[Document]]:
    return group_by_size(documents, lambda document: len(document.text), GROUP_CHARACTERS)


def _make_document_filter(
    dropped_texts: Mapping[str, Sequence[str]] | None, tokenizer: Tokenizer
) -> Callable[[Sequence[Document]], list[str]]:
    """Returns a function that returns the texts of the documents that are not dropped."""
    if not dropped_texts:
        return lambda group: [document.text for document in group]
    pool = {example_id: tuple(texts) for example_id, texts in dropped_texts.items()}
    search = PoolSearch(pool, tokenizer.apply_normalizer, parts=True)

    def kept_texts(group: Sequence[Document]) -> list[str]:
        texts = [document.text for document in group]
        return [text for text, matches in zip(texts, search(texts), strict=True) if not matches]

    return kept_texts


def _file_bytes(source: object) -> int | None:
    """Returns an upper bound of the bytes of all documents, or None if unknown."""
    if getattr(source, "weights", None):  # a mixture ends with its first subset
        return None
    file_bytes: int | None = getattr(source, "max_text_bytes", lambda: None)()
    return file_bytes


def _round_to_digits(number: int, digits: int = 3) -> int:
    return int(float(f"{number:.{digits}g}"))
