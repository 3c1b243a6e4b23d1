"""The models and the texts of an audit, read and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from contamination.core.errors import ConfigError, DataError, UserError, near_names
from contamination.core.seeds import derive, unit_hash
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.data.text import NON_BLANK_RUN
from contamination.data.texts import Text, Texts
from contamination.detection.config import ScoredModelConfig
from contamination.detection.examples import open_examples
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle

ORIGINAL, CLEAN = "original", "clean"
"""Two of the models, as tables name them."""
NODE = {field.name for field in fields(ScoredModelConfig)}


@dataclass(frozen=True)
class AuditedModel:
    """One of the audit's models.

    Attributes:
        name: as tables name it.
        node: where it is.
        source: the model, not yet loaded.
    """

    name: str
    node: ScoredModelConfig
    source: ModelHandle


@dataclass(frozen=True)
class Models:
    """The model before, those after, and the twin that was never trained on the texts, if any."""

    original: AuditedModel
    unlearned: Sequence[AuditedModel]
    clean: AuditedModel | None

    def __iter__(self) -> Iterator[AuditedModel]:
        """All of them, in the tables' order."""
        yield from (self.original, *self.unlearned, *([self.clean] if self.clean else []))


def open_models(original: Any, unlearned: Any, clean: Any, runs: str) -> Models:
    """The models, each a path or a mapping of `ScoredModelConfig`'s fields.

    Args:
        original: the model before.
        unlearned: the model after; several as a list, or as a mapping of names to models.
        clean: the twin, or None.
        runs: the folder of all artefacts.

    Raises:
        ConfigError: a model that there isn't, or two that are one.
    """
    after = [
        _opened(f"audit.unlearned{at}", name, given, runs)
        for at, name, given in _several(unlearned)
    ]
    twin = None if clean is None else _opened("audit.clean", CLEAN, clean, runs)
    found = Models(_opened("audit.original", ORIGINAL, original, runs), after, twin)
    _check_names(after)
    _check_different(found)
    return found


def texts_at(field: str, path: str) -> Texts:
    """The examples of a file or a corpus folder; errors name the audit's field.

    Raises:
        UserError: see `open_examples`.
    """
    with naming(field):
        return open_examples(ExamplesConfig(path))


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Within it an error about `examples.path` names the audit's own field."""
    try:
        yield
    except UserError as error:
        error.args = (str(error).replace("examples.path", field),)
        raise


def check_tokens(models: Models, texts: Sequence[Text]) -> None:
    """See that all models read the same tokens.

    Raises:
        ConfigError: one does not: its scores are about other tokens.
    """
    own = [text.text for text in texts]
    wanted, *others = models
    tokenizers: dict[str, Any] = {wanted.source.tokenizer_digest: wanted.source.tokenizer()}
    ids = tokenizers[wanted.source.tokenizer_digest](own, verbose=False)["input_ids"]
    for other in others:
        digest = other.source.tokenizer_digest
        if digest in tokenizers:
            continue
        tokenizers[digest] = other.source.tokenizer()
        if tokenizers[digest](own, verbose=False)["input_ids"] != ids:
            raise ConfigError(
                f"{other.source.field} is {other.node.given!r}: its tokenizer divides the texts in "
                f"another way than that of audit.original ({wanted.node.given!r}), so their scores "
                "are about other tokens and can't be compared. Give models of one tokenizer."
            )


def _several(given: Any) -> list[tuple[str, str | None, Any]]:
    """What follows the field's name, the model's name if it has one, and the model."""
    if isinstance(given, Mapping) and not NODE & given.keys():
        return [(f".{name}", str(name), one) for name, one in given.items()]
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [(f".{place}", None, one) for place, one in enumerate(given)]
    return [("", None, given)]


def _opened(field: str, name: str | None, given: Any, runs: str) -> AuditedModel:
    node = as_node(field, given)
    source = open_model(field, node, runs)
    return AuditedModel(name or source.slug, node, source)


def as_node(field: str, given: Any) -> ScoredModelConfig:
    """The model, given as a path or as a mapping.

    Raises:
        ConfigError: it is neither, or has a field that there isn't.
    """
    if isinstance(given, str):
        return ScoredModelConfig(path=given)
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{field} is {given!r}: give a model folder, a hub id, or {{url: …, tokenizer: …}} for "
            "a model behind a server."
        )
    for name in given.keys() - NODE:
        raise ConfigError(f"{field}.{name}: unknown field. {near_names(str(name), NODE)}")
    return ScoredModelConfig(**given)


def _check_names(after: Sequence[AuditedModel]) -> None:
    names = [model.name for model in after]
    for model in after:
        if names.count(model.name) > 1 or model.name in (ORIGINAL, CLEAN):
            raise ConfigError(
                f"{model.source.field} is {model.node.given!r}: two of the models would be called "
                f"{model.name!r}. Name them, such as audit.unlearned={{ascent: …, npo: …}}."
            )
    if not after:
        raise ConfigError("audit.unlearned is empty: give at least one model.")


def _check_different(models: Models) -> None:
    """Raise a ConfigError where a model is another one's copy; a perfect one may be the twin's."""
    seen: dict[str, AuditedModel] = {}
    for model in models:
        other = seen.setdefault(model.source.digest, model)
        if other is not model and (model is not models.clean or other is models.original):
            raise ConfigError(
                f"{model.source.field} is {model.node.given!r}: it has the very weights of "
                f"{other.source.field} ({other.node.given!r}), so there is nothing to compare. "
                "Give the model before, a model after it, and a twin of the model before that was "
                "never trained on the texts."
            )


BETWEEN = "#"
"""What stands between a text's id and its chunk's number."""


def chunks_of(texts: Iterable[Text], words: int) -> tuple[Texts, pd.DataFrame]:
    """The chunks as texts, and a row each: chunk, text_id, benchmark, member (None: unknown).

    Only the last chunk of a text has fewer words; one of fewer than half of them joins the chunk
    before, so that none is a scrap.

    Raises:
        DataError: two chunks would have one id.
    """
    found, rows = [], []
    for text in texts:
        parts = cut(text.text, words)
        for number, part in enumerate(parts):
            name = text.example_id if len(parts) == 1 else f"{text.example_id}{BETWEEN}{number}"
            found.append(make_text(name, part, text.label, text.benchmark))
            rows.append((name, text.example_id, text.benchmark, text.label))
    columns = ["chunk", "text_id", "benchmark", "member"]
    table = pd.DataFrame(rows, columns=columns).astype({"member": "boolean"})
    if (twice := table["chunk"].duplicated()).any():
        raise DataError(
            f"audit.texts: {table['chunk'][twice].iloc[0]!r} names two chunks, one of them a part "
            f"of a longer text. Give ids without {BETWEEN}."
        )
    return Texts.of(found), table


def cut(text: str, words: int) -> list[str]:
    """The text's chunks; what stands between two of them is dropped."""
    found = [match.span() for match in NON_BLANK_RUN.finditer(text)]
    if len(found) <= words:
        return [text]
    starts = [*range(0, len(found), words)]
    if len(found) - starts[-1] < words / 2:
        starts.pop()
    ends = [*starts[1:], len(found)]
    return [text[found[a][0] : found[b - 1][1]] for a, b in zip(starts, ends, strict=True)]


def drawn(table: pd.DataFrame, most: int, seed: int) -> Sequence[int]:
    """The places of at most so many chunks, drawn evenly from members, non-members and others.

    A chunk's draw follows from the seed and its name alone.
    """
    number = derive(seed, "completed")
    order = table["chunk"].map(lambda name: unit_hash(f"{number} {name}"))
    kinds = table["member"].astype(str).where(table["member"].notna(), "")
    rank = order.groupby(kinds).rank(method="first")  # 1, 2, … within a kind
    first = pd.DataFrame({"rank": rank, "order": order}).sort_values(["rank", "order"])
    return sorted(first.index[:most].tolist())
