"""A search of the corpus's first documents before any is packed, for decontamination=off.

A whole text of the pool that stands in a document is an error then. It is found as the documents
are tokenised (`injection.tokenization.check_whole`); here it is found before other work of the cell
that needs no documents of this corpus, such as making the base corpus. What is not found here, is
found there.
"""

from __future__ import annotations

from pathlib import Path

from contamination.core.config import create
from contamination.data.readers import Document
from contamination.data.readers.rows import grouped
from contamination.injection.config import InjectionStage
from contamination.injection.copies import make_copies
from contamination.injection.corpus_search import texts_by_example
from contamination.injection.decontamination import PoolSearch
from contamination.injection.pool import draw_pool
from contamination.injection.run import check, documents_of
from contamination.injection.token_stream import Tokenizer
from contamination.injection.tokenization import Work, check_whole

EXACT = "contamination.data.perturbation.word_edits.Exact"
MOST_CHARACTERS = 20_000_000
CHARACTERS_A_TOKEN = 8
"""Of the budget's tokens: few texts have more on average."""


def refuse_whole_texts(stage: InjectionStage, tokenizer: Tokenizer) -> None:
    """Search the documents that the stage packs with this tokenizer.

    Reworded copies have a length that is not known yet, and tasks of a cluster search their own
    files; in both cases nothing is done.

    Raises:
        DataError: a document holds the whole text of an example.
    """
    stage, config = stage.resolved(), stage.injection
    exact = stage.rewording.get("_target_", EXACT) == EXACT
    if config.decontamination != "off" or not exact or stage.cluster.kind != "local":
        return
    examples = draw_pool(stage, check(stage), tokenizer).examples
    wanted = config.packed_tokens - make_copies(stage, examples, tokenizer).tokens
    pool = texts_by_example(examples)
    search = PoolSearch(pool, tokenizer.spelled, parts=False)
    work = Work(Path(), Path(), pool, whole=True)
    characters, before = 0, list[str]()
    documents = documents_of(stage, create("corpus", stage.corpus))
    for group in grouped(documents, _size, config.shard_characters):
        found = search([document.text for document in group])
        for document, shared in zip(group, found, strict=True):
            if shared and _tokens(before, tokenizer, wanted) < wanted:
                check_whole([[document.document_id, *example] for example in shared], work)
            if shared:  # the first one is behind the budget, and so are all others
                return
            before.append(document.text)
            characters += _size(document)
        if characters > min(MOST_CHARACTERS, CHARACTERS_A_TOKEN * wanted):
            return


def _size(document: Document) -> int:
    return len(document.text)


def _tokens(texts: list[str], tokenizer: Tokenizer, enough: int) -> int:
    """Tokens of the documents, counted no further than there are `enough`."""
    tokens = 0
    for group in grouped(iter(texts), len, 1_000_000):
        tokens += sum(map(len, tokenizer.encode_documents(group)))
        if tokens >= enough:
            break
    return tokens
