"""Reads and checks the models and the texts of the unlearning audit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from contamination.core.errors import ConfigError, DataError, UserError, near_names
from contamination.core.seeds import derive_seed, unit_hash
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.data.texts import Text, Texts
from contamination.data.words import NON_BLANK_RUN
from contamination.detection.config import ScoredModelConfig
from contamination.detection.examples import open_examples
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle

ORIGINAL, CLEAN = "original", "clean"
"""The names of two of the models in tables."""
MODEL_FIELDS = {field.name for field in fields(ScoredModelConfig)}


@dataclass(frozen=True)
class AuditedModel:
    """One of the audit's models.

    Attributes:
        name: its name in tables.
        node: its configuration.
        source: the handle of the model, which is not loaded yet.
    """

    name: str
    node: ScoredModelConfig
    source: ModelHandle


@dataclass(frozen=True)
class AuditedModels:
    """The models of an audit.

    Attributes:
        original: the model before unlearning.
        unlearned: the models after unlearning.
        clean: a twin of the original that was never trained on the texts, or None.
    """

    original: AuditedModel
    unlearned: Sequence[AuditedModel]
    clean: AuditedModel | None

    def __iter__(self) -> Iterator[AuditedModel]:
        """Iterates over all models in the order of the tables."""
        yield from (self.original, *self.unlearned, *([self.clean] if self.clean else []))


def open_audited_models(original: Any, unlearned: Any, clean: Any, runs: str) -> AuditedModels:
    """Opens the models, each given as a path or as a mapping of `ScoredModelConfig`'s fields.

    Args:
        original: the model before unlearning.
        unlearned: the model after unlearning; several as a list, or as a mapping of names to
            models.
        clean: the clean twin, or None.
        runs: the folder of all artefacts.

    Raises:
        ConfigError: a model does not exist, or two models are the same.
    """
    unlearned_models = [
        _open_audited_model(f"audit.unlearned{suffix}", name, model, runs)
        for suffix, name, model in _list_models(unlearned)
    ]
    twin = None if clean is None else _open_audited_model("audit.clean", CLEAN, clean, runs)
    original_model = _open_audited_model("audit.original", ORIGINAL, original, runs)
    models = AuditedModels(original_model, unlearned_models, twin)
    _check_names_differ(unlearned_models)
    _check_weights_differ(models)
    return models


def read_texts_of_field(field: str, path: str) -> Texts:
    """Reads the examples of a file or a corpus folder; errors name the audit's field.

    Raises:
        UserError: see `open_examples`.
    """
    with rename_field_in_errors(field):
        return open_examples(ExamplesConfig(path))


@contextmanager
def rename_field_in_errors(field: str) -> Iterator[None]:
    """A context in which errors about `examples.path` name the audit's own field instead."""
    try:
        yield
    except UserError as error:
        error.args = (str(error).replace("examples.path", field),)
        raise


def check_same_tokens(models: AuditedModels, texts: Sequence[Text]) -> None:
    """Checks that all models divide the texts into the same tokens.

    Raises:
        ConfigError: a model has other tokens, so that its scores can't be compared.
    """
    plain_texts = [text.text for text in texts]
    original, *compared_models = models
    ids = original.source.tokenizer()(plain_texts, verbose=False)["input_ids"]
    checked_tokenizers = {original.source.tokenizer_digest}
    for model in compared_models:
        if model.source.tokenizer_digest in checked_tokenizers:
            continue
        checked_tokenizers.add(model.source.tokenizer_digest)
        if model.source.tokenizer()(plain_texts, verbose=False)["input_ids"] != ids:
            raise ConfigError(
                f"{model.source.field} is {model.node.given!r}: its tokenizer divides the texts "
                f"into other tokens than that of audit.original ({original.node.given!r}), so "
                "their scores can't be compared. Give models with the same tokenizer."
            )


def _list_models(models: Any) -> list[tuple[str, str | None, Any]]:
    """Returns each model with the suffix of its field's name, and with its name or None."""
    if isinstance(models, Mapping) and not MODEL_FIELDS & models.keys():
        return [(f".{name}", str(name), model) for name, model in models.items()]
    if isinstance(models, Sequence) and not isinstance(models, str):
        return [(f".{index}", None, model) for index, model in enumerate(models)]
    return [("", None, models)]


def _open_audited_model(field: str, model_name: str | None, model: Any, runs: str) -> AuditedModel:
    node = parse_model_node(field, model)
    source = open_model(field, node, runs)
    return AuditedModel(model_name or source.slug, node, source)


def parse_model_node(field: str, model: Any) -> ScoredModelConfig:
    """Returns the configuration of a model that is given as a path or as a mapping.

    Raises:
        ConfigError: it is neither, or has an unknown field.
    """
    if isinstance(model, str):
        return ScoredModelConfig(path=model)
    if not isinstance(model, Mapping):
        raise ConfigError(
            f"{field} is {model!r}: give a model folder, a hub id, or {{url: …, tokenizer: …}} for "
            "a model behind a server."
        )
    for field_name in model.keys() - MODEL_FIELDS:
        raise ConfigError(
            f"{field}.{field_name}: unknown field. {near_names(str(field_name), MODEL_FIELDS)}"
        )
    return ScoredModelConfig(**model)


def _check_names_differ(unlearned: Sequence[AuditedModel]) -> None:
    names = [model.name for model in unlearned]
    for model in unlearned:
        if names.count(model.name) > 1 or model.name in (ORIGINAL, CLEAN):
            raise ConfigError(
                f"{model.source.field} is {model.node.given!r}: two of the models would be called "
                f"{model.name!r}. Name them, such as audit.unlearned={{ascent: …, npo: …}}."
            )
    if not unlearned:
        raise ConfigError("audit.unlearned is empty: give at least one model.")


def _check_weights_differ(models: AuditedModels) -> None:
    """Raises a ConfigError if two models have equal weights, except an unlearned and the twin."""
    first_by_digest: dict[str, AuditedModel] = {}
    for model in models:
        first_with_weights = first_by_digest.setdefault(model.source.digest, model)
        if first_with_weights is not model and (
            model is not models.clean or first_with_weights is models.original
        ):
            raise ConfigError(
                f"{model.source.field} is {model.node.given!r}: it has the same weights as "
                f"{first_with_weights.source.field} ({first_with_weights.node.given!r}), so there "
                "is nothing to compare. Give the model before, a model after it, and a twin of the "
                "model before that was never trained on the texts."
            )


SEPARATOR = "#"
"""The separator between a text's id and the number of its chunk."""


def divide_into_chunks(texts: Iterable[Text], chunk_words: int) -> tuple[Texts, pd.DataFrame]:
    """Divides texts into chunks of `chunk_words` words.

    The last chunk of a text may have fewer words. If it has less than half as many, it is joined to
    the chunk before it.

    Returns:
        The chunks as texts, and a table with one row per chunk: chunk, text_id, benchmark, member
        (<NA> if unknown).

    Raises:
        DataError: two chunks would have the same id.
    """
    chunks, rows = [], []
    for text in texts:
        chunk_texts = cut_into_chunks(text.text, chunk_words)
        for number, chunk_text in enumerate(chunk_texts):
            chunk_id = (
                text.example_id
                if len(chunk_texts) == 1
                else f"{text.example_id}{SEPARATOR}{number}"
            )
            chunks.append(make_text(chunk_id, chunk_text, text.label, text.benchmark))
            rows.append((chunk_id, text.example_id, text.benchmark, text.label))
    columns = ["chunk", "text_id", "benchmark", "member"]
    table = pd.DataFrame(rows, columns=columns).astype({"member": "boolean"})
    if (duplicated := table["chunk"].duplicated()).any():
        raise DataError(
            f"audit.texts: {table['chunk'][duplicated].iloc[0]!r} names two chunks, one of them a "
            f"part of a longer text. Give ids without {SEPARATOR}."
        )
    return Texts.of(chunks), table


def cut_into_chunks(text: str, chunk_words: int) -> list[str]:
    """Returns the text's chunks, without the white space between them."""
    word_spans = [match.span() for match in NON_BLANK_RUN.finditer(text)]
    if len(word_spans) <= chunk_words:
        return [text]
    first_words = [*range(0, len(word_spans), chunk_words)]
    if len(word_spans) - first_words[-1] < chunk_words / 2:
        first_words.pop()
    end_words = [*first_words[1:], len(word_spans)]
    return [
        text[word_spans[start][0] : word_spans[end - 1][1]]
        for start, end in zip(first_words, end_words, strict=True)
    ]


def choose_chunk_indices(table: pd.DataFrame, limit: int, seed: int) -> Sequence[int]:
    """Returns the indices of at most `limit` chunks, equally many of each label, if possible.

    Whether a chunk is drawn before another depends only on the seed and their ids.
    """
    chunk_seed = derive_seed(seed, "completed")
    hashes = table["chunk"].map(lambda name: unit_hash(f"{chunk_seed} {name}"))
    label_texts = table["member"].astype(str).where(table["member"].notna(), "")
    rank = hashes.groupby(label_texts).rank(method="first")  # 1, 2, … within a label
    ordered_ranks = pd.DataFrame({"rank": rank, "hash": hashes}).sort_values(["rank", "hash"])
    return sorted(ordered_ranks.index[:limit].tolist())
