"""Searches the first documents of a corpus before it is built, for decontamination=off.

A document that contains a whole text of the pool is then an error. This search finds it before
other work of the cell, such as building the base corpus. Tokenization finds what this search
misses.
"""

from __future__ import annotations

from pathlib import Path

from contamination.core.config import instantiate_node
from contamination.data.readers import Document
from contamination.data.readers.rows import group_by_size
from contamination.injection.config import WHOLE_TEXT, InjectionStage
from contamination.injection.copies import make_copies
from contamination.injection.finished_corpus_search import texts_by_example
from contamination.injection.pool import draw_pool
from contamination.injection.run import check_and_read_candidates, documents_of_part
from contamination.injection.shared_text_search import PoolSearch
from contamination.injection.token_stream import Tokenizer
from contamination.injection.tokenization import TokenizationSettings, check_no_whole_text

EXACT_REWORDING = "contamination.data.perturbation.word_edits.Exact"
MAX_CHARACTERS = 20_000_000
CHARACTERS_PER_TOKEN = 8
"""An upper bound that few texts exceed on average."""


def check_first_documents_contain_no_example(stage: InjectionStage, tokenizer: Tokenizer) -> None:
    """Searches the documents that the stage packs with this tokenizer.

    Nothing is searched if copies are reworded, since their length is not yet known, or if the tasks
    of a cluster search their own files.

    Raises:
        DataError: a document contains the whole text of an example.
    """
    stage, config = stage.resolved(), stage.injection
    exact = stage.rewording.get("_target_", EXACT_REWORDING) == EXACT_REWORDING
    exact = exact and config.form == WHOLE_TEXT
    if config.decontamination != "off" or not exact or stage.cluster.kind != "local":
        return
    examples = draw_pool(stage, check_and_read_candidates(stage), tokenizer).examples
    wanted_tokens = config.packed_tokens - make_copies(stage, examples, tokenizer).total_tokens
    pool = texts_by_example(examples)
    search = PoolSearch(pool, tokenizer.apply_normalizer, parts=False)
    settings = TokenizationSettings(Path(), Path(), pool, whole=True)
    characters, earlier_texts = 0, list[str]()
    documents = documents_of_part(stage, instantiate_node("corpus", stage.corpus))
    for group in group_by_size(documents, _count_characters, config.shard_characters):
        matches_by_document = search([document.text for document in group])
        for document, matches in zip(group, matches_by_document, strict=True):
            if matches and _count_tokens(earlier_texts, tokenizer, wanted_tokens) < wanted_tokens:
                check_no_whole_text([[document.document_id, *match] for match in matches], settings)
            if matches:  # this document and all later ones are beyond the budget
                return
            earlier_texts.append(document.text)
            characters += _count_characters(document)
        if characters > min(MAX_CHARACTERS, CHARACTERS_PER_TOKEN * wanted_tokens):
            return


def _count_characters(document: Document) -> int:
    return len(document.text)


def _count_tokens(texts: list[str], tokenizer: Tokenizer, stop_at: int) -> int:
    tokens = 0
    for group in group_by_size(iter(texts), len, 1_000_000):
        tokens += sum(map(len, tokenizer.encode_documents(group)))
        if tokens >= stop_at:
            break
    return tokens
