"""What a Python caller gives to `score` and `evaluate`, as the stage takes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from core.config import convert
from core.errors import ConfigError, DataError, UserError, near_names, require
from core.stored import read_yaml
from detection.config import METHODS, DetectionStage, ExamplesConfig
from detection.examples import open_examples, texts_of
from detection.model.held_model import HeldModel
from detection.rows import folded, with_class_names
from detection.texts import Texts
from injection.sources.reading import Row, Shard
from injection.sources.tally import Tally

WORDS = {
    r"\bexamples\.path\b": "texts",
    r"\b(?:examples\.)?on_error=skip\b": 'on_error="skip"',
    r"\b(model|reference|masked_lm|prefix)\.path\b": r"\1",
    r"\bdetection\.(?=\w+(?: is|:|=))": "",
    r"^method(?= is )|\bmethod(?==|\.\w)": "methods",
    r" See the options with --cfg job\.": "",
}
"""What the command calls its fields → what the functions call their arguments."""


@contextmanager
def in_arguments() -> Iterator[None]:
    """Within it errors name arguments, as a Python caller knows them, not fields."""
    try:
        yield
    except UserError as error:
        words = str(error)
        for field, argument in WORDS.items():
            words = re.sub(field, argument, words)
        error.args = (words,)
        raise


class GivenRow(Row):
    """A row that the caller holds."""

    @property
    def where(self) -> str:
        """Its place, from 0 as Python counts."""
        return f"{self.shard.name}[{self.number - 1}]"


def given_texts(texts: Any, labels: Iterable[Any] | None, on_error: str) -> Texts:
    """The texts, of a path or at hand.

    Raises:
        ConfigError: labels beside a path.
        DataError: what can't be read or used.
    """
    if isinstance(texts, str | Path):
        if labels is not None:
            raise ConfigError("labels: a file or a data set has its own, in its column label.")
        return open_examples(ExamplesConfig(str(texts), on_error=on_error))
    rows = _rows(texts)
    if labels is not None:
        ordered = hasattr(labels, "__iter__") and not isinstance(labels, str | Mapping | set)
        require(ordered, "labels", labels, "give one for each text, in a list.")
        listed = getattr(labels, "tolist", None)  # of NumPy's and pandas' columns
        rows, labels = list(rows), [*map(_or_none, listed())] if listed else list(labels)
        if len(labels) != len(rows):
            raise DataError(f"labels: there are {len(labels)} for {len(rows)} texts: give as many.")
        rows = [_labelled(row, label) for row, label in zip(rows, labels, strict=True)]
    shard = Shard(Path("texts"), "texts", "rows")
    numbered = (GivenRow(shard, number, row) for number, row in enumerate(rows, 1))
    return texts_of(numbered, Tally(on_error, "on_error"), "texts")


def _rows(texts: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(texts, Mapping | set) or not hasattr(texts, "__iter__"):
        kind = type(texts).__name__
        remedy = "give strings, a data frame, or one split of a data set."
        raise DataError(f"texts is a {kind}: {remedy}")
    if isinstance(texts, pd.DataFrame):
        if twice := [*texts.columns[texts.columns.duplicated()]]:
            raise DataError(f"texts: the column {twice[0]!r} is there twice. Leave one out.")
        return (
            dict(zip(texts.columns, map(_or_none, row), strict=True))
            for row in texts.itertuples(index=False, name=None)
        )
    if hasattr(texts, "features"):  # a data set, streamed or not
        return with_class_names(texts.with_format(None))
    return (row if isinstance(row, Mapping) else {"text": row} for row in texts)


def _or_none(value: Any) -> Any:
    """The value; None where NumPy and pandas write NaN for a missing one."""
    return None if isinstance(value, float) and value != value else value


def _labelled(row: Mapping[str, Any], label: Any) -> Mapping[str, Any]:
    """The row with this label in place of its own."""
    return {**{name: row[name] for name in row if folded(name) != "label"}, "label": label}


def given_model(
    model: Any, tokenizer: Any, name: str, stack: ExitStack, kept: bool
) -> dict[str, Any]:
    """The model's config node; a loaded one is held until the stack ends.

    Args:
        model: a path, a loaded model, or the fields of a served one.
        tokenizer: of a loaded model.
        name: the argument that gives the model.
        stack: what lets the model go.
        kept: whether scores are kept, which the model's weights then name.
    """
    if model is None or isinstance(model, str | Path):
        remedy = f"it is that of a loaded model, but {name} is {model!r}: load it, or leave it out."
        require(tokenizer is None, f"the tokenizer of {name}", type(tokenizer).__name__, remedy)
        return {"path": None if model is None else str(model)}
    if isinstance(model, Mapping):
        return dict(model)
    if not hasattr(model, "state_dict") or not hasattr(model, "config"):
        remedy = "give a path, a hub id or a loaded PreTrainedModel."
        raise ConfigError(f"{name} is a {type(model).__name__}: {remedy}")
    if tokenizer is None:
        raise ConfigError(f"{name}: a loaded model needs its tokenizer: give one beside it.")
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        remedy = "load it, such as by AutoTokenizer.from_pretrained."
        raise ConfigError(f"{name}: its tokenizer is a {type(tokenizer).__name__}: {remedy}")
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ConfigError(f"{name}: its tokenizer is a slow one: give a fast one (use_fast=True).")
    held = HeldModel.of(model, tokenizer, f"{name}.path", kept=kept)
    stack.callback(held.release)
    return {"path": held.hold()}


def given_methods(methods: str | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Each method's config node, with the hyperparameters that are given.

    Raises:
        ConfigError: a method that there isn't, or what is no mapping of hyperparameters.
    """
    known = {path.stem: path for path in METHODS.glob("*.yaml")}
    require(isinstance(methods, Iterable), "methods", methods, 'give names, such as ["loss"].')
    names = [methods] if isinstance(methods, str) else [*methods]
    names = sorted(known) if names == ["all"] else names
    given = methods if isinstance(methods, Mapping) else {}
    nodes = {}
    for name in names:
        own = given.get(name) or {}
        remedy = 'give its hyperparameters by name, such as {"k": 0.2}.'
        require(isinstance(own, Mapping), f"method.{name}", own, remedy)
        if name not in known and "_target_" not in own:  # which a method of one's own has
            raise ConfigError(f"method={name}: unknown method. {near_names(str(name), known)}")
        usual = read_yaml(known[name])[name] if name in known else {}
        nodes[name] = {**usual, **own}
    return nodes


def given_stage(nodes: Mapping[str, Any]) -> DetectionStage:
    """The stage's configuration, of checked types and ranges.

    Raises:
        ConfigError: a field that there isn't, or a value that it can't have.
    """
    try:
        return convert(OmegaConf.create(_plain(nodes)), DetectionStage)
    except OmegaConfBaseException as error:
        said = str(error.msg or error).splitlines()[0]
        raise ConfigError(f"{error.full_key}: {said}.") from error


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, torch's types and devices and other values as YAML has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, range | Path):
        return [*value] if isinstance(value, range) else str(value)
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    return value.tolist() if hasattr(value, "tolist") else value
