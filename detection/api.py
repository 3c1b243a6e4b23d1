"""Detection from Python: takes texts and a model, returns data frames.

::

    from contamination.detection.api import evaluate, score

    scores = score(texts, "runs/model/tiny-llama-…", labels=labels)
    evaluate(scores, texts, labels=labels)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from contamination.core.config import PROPER_FRACTION, convert_config
from contamination.core.errors import ConfigError, DataError, UserError, near_names, require
from contamination.core.output_paths import disk_errors_as_data_errors
from contamination.core.statistics.metrics import chosen_metrics
from contamination.core.stored_files import read_yaml
from contamination.core.tokenizer_panics import tokenizer_panics_as_config_errors
from contamination.data.config import ExamplesConfig
from contamination.data.examples import DEFAULT_LAYOUT, RowLayout, texts_of_rows
from contamination.data.readers.rows import Row, Shard, Tally
from contamination.data.rows import fold_name, with_class_names
from contamination.data.texts import Texts
from contamination.detection.config import METHODS_FOLDER, DetectionStage
from contamination.detection.evaluation import (
    estimate_benchmarks_and_all,
    group_by_method,
    ranked_texts,
    tidy_estimates,
)
from contamination.detection.examples import open_examples
from contamination.detection.models.hf_model import InMemoryModel
from contamination.detection.summary import example_columns, with_example_columns

ARGUMENT_NAMES = {
    r"; examples\.template='.*' would make a text of these": "",
    r"\bexamples\.path\b": "texts",
    r"\b(?:examples\.)?on_error=skip\b": 'on_error="skip"',
    r"\b(model|reference|masked_lm|prefix)\.path\b": r"\1",
    r"\baudit\.(?=(?:questions|fresh|versions|order|models|alpha|template|columns|limit)\b)": "",
    r"\bdetection\.(?=\w+(?: is|:|=))": "",
    r"^method(?= is )|\bmethod(?==|\.\w)": "methods",
    r" See the options with --cfg job\.": "",
}
"""Patterns of the command's field names, with the names of the functions' arguments."""


@contextmanager
def naming_arguments_in_errors() -> Iterator[None]:
    """Makes errors name the functions' arguments instead of configuration fields."""
    try:
        yield
    except UserError as error:
        message = str(error)
        for field, argument in ARGUMENT_NAMES.items():
            message = re.sub(field, argument, message)
        error.args = (message,)
        raise


class InMemoryRow(Row):
    """A row in the caller's memory."""

    @property
    def where(self) -> str:
        """The row's place for errors, counted from 0 as in Python."""
        return f"{self.shard.name}[{self.number - 1}]"


def make_texts(
    texts: Any, labels: Iterable[Any] | None, on_error: str, layout: RowLayout = DEFAULT_LAYOUT
) -> Texts:
    """Makes texts from a path or from texts in memory; `Texts` are returned as they are.

    Raises:
        ConfigError: there are labels and a path.
        DataError: texts or labels cannot be read or used.
    """
    if isinstance(texts, Texts):
        return texts
    if isinstance(texts, str | Path):
        if labels is not None:
            raise ConfigError("labels: a file or a data set has its own, in its column label.")
        examples = ExamplesConfig(
            str(texts), on_error=on_error, template=layout.template,
            columns=dict(layout.columns), separator=layout.separator, limit=layout.limit,
        )  # fmt: skip
        return open_examples(examples)
    rows = _iter_rows_in_memory(texts)
    if labels is not None:
        is_sequence = hasattr(labels, "__iter__") and not isinstance(labels, str | Mapping | set)
        require(is_sequence, "labels", labels, "give one for each text, in a list.")
        to_list = getattr(labels, "tolist", None)  # a method of NumPy's and pandas' columns
        rows, labels = list(rows), [*map(_nan_to_none, to_list())] if to_list else list(labels)
        if len(labels) != len(rows):
            raise DataError(
                f"labels: there are {len(labels)} for {len(rows)} texts: give one per text."
            )
        rows = [_with_label(row, label) for row, label in zip(rows, labels, strict=True)]
    shard = Shard(Path("texts"), "texts", "rows")
    numbered = (InMemoryRow(shard, number, row) for number, row in enumerate(rows, 1))
    return texts_of_rows(numbered, Tally(on_error, "on_error"), "texts", layout)


def _iter_rows_in_memory(texts: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(texts, Mapping | set) or not hasattr(texts, "__iter__"):
        kind = type(texts).__name__
        remedy = "give strings, a data frame, or one split of a data set."
        raise DataError(f"texts is a {kind}: {remedy}")
    if isinstance(texts, pd.DataFrame):
        if duplicates := [*texts.columns[texts.columns.duplicated()]]:
            raise DataError(f"texts: the column {duplicates[0]!r} occurs twice. Leave one out.")
        return (
            dict(zip(texts.columns, map(_nan_to_none, row), strict=True))
            for row in texts.itertuples(index=False, name=None)
        )
    if hasattr(texts, "features"):  # a data set, streamed or not
        return with_class_names(texts.with_format(None))
    return (row if isinstance(row, Mapping) else {"text": row} for row in texts)


def _nan_to_none(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _with_label(row: Mapping[str, Any], label: Any) -> Mapping[str, Any]:
    return {**{name: row[name] for name in row if fold_name(name) != "label"}, "label": label}


def make_model_node(
    model: Any, tokenizer: Any, name: str, stack: ExitStack, stored: bool
) -> dict[str, Any]:
    """Returns the model's config node. A loaded model is registered until the stack closes.

    Args:
        model: a path, a loaded model, or the fields of a served model.
        tokenizer: the tokenizer of a loaded model.
        name: the name of the argument, for errors.
        stack: releases the model when it closes.
        stored: whether scores are stored, so that the weights must name their folder.
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
        raise ConfigError(f"{name}: a loaded model needs its tokenizer: give one with it.")
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        remedy = "load it, such as by AutoTokenizer.from_pretrained."
        raise ConfigError(f"{name}: its tokenizer is a {type(tokenizer).__name__}: {remedy}")
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ConfigError(f"{name}: its tokenizer is a slow one: give a fast one (use_fast=True).")
    loaded_model = InMemoryModel.from_loaded(
        model, tokenizer, f"{name}.path", scores_are_stored=stored
    )
    stack.callback(loaded_model.release)
    return {"path": loaded_model.register()}


def make_method_nodes(methods: str | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Returns each method's config node, with its default or given hyperparameters.

    Raises:
        ConfigError: a method is unknown, or its hyperparameters are not a mapping.
    """
    config_files = {path.stem: path for path in METHODS_FOLDER.glob("*.yaml")}
    require(isinstance(methods, Iterable), "methods", methods, 'give names, such as ["loss"].')
    names = [methods] if isinstance(methods, str) else [*methods]
    names = sorted(config_files) if names == ["all"] else names
    hyperparameters = methods if isinstance(methods, Mapping) else {}
    nodes = {}
    for name in names:
        overrides = hyperparameters.get(name) or {}
        remedy = 'give its hyperparameters by name, such as {"k": 0.2}.'
        require(isinstance(overrides, Mapping), f"method.{name}", overrides, remedy)
        is_own_class = "_target_" in overrides
        if name not in config_files and not is_own_class:
            raise ConfigError(
                f"method={name}: unknown method. {near_names(str(name), config_files)}"
            )
        defaults = read_yaml(config_files[name])[name] if name in config_files else {}
        nodes[name] = {**defaults, **overrides}
    return nodes


def make_stage(nodes: Mapping[str, Any]) -> DetectionStage:
    """Returns the stage's configuration, with checked types and ranges.

    Raises:
        ConfigError: a field is unknown or its value is invalid.
    """
    try:
        return convert_config(OmegaConf.create(_to_yaml_value(nodes)), DetectionStage)
    except OmegaConfBaseException as error:
        message = str(error.msg or error).splitlines()[0]
        raise ConfigError(f"{error.full_key}: {message}.") from error


def _to_yaml_value(value: Any) -> Any:
    """Converts NumPy's numbers and arrays, torch's types and devices, and paths to YAML's types."""
    if isinstance(value, Mapping):
        return {str(key): _to_yaml_value(inner) for key, inner in value.items()}
    if isinstance(value, range | Path):
        return [*value] if isinstance(value, range) else str(value)
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    return value.tolist() if hasattr(value, "tolist") else value


DEFAULT = ("loss", "zlib", "min_k", "min_k_plus_plus")
IN_MEMORY_PATH = "(texts of a Python program)"
"""Recorded in a stored folder's config.yaml instead of a path."""
SCORE_COLUMNS = ("example_id", "method", "variant", "score", "ranked")
"""The columns of scores that `evaluate` reads."""


@naming_arguments_in_errors()
def score(
    texts: Any,
    model: Any,
    methods: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = DEFAULT,
    *,
    labels: Sequence[Any] | None = None,
    tokenizer: Any = None,
    reference: Any = None,
    reference_tokenizer: Any = None,
    masked_lm: str | None = None,
    prefix: str | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    with_text: bool = False,
    on_error: str = "stop",
    **settings: Any,
) -> pd.DataFrame:
    """Scores texts by membership-inference methods; a higher score means member.

    Args:
        texts: strings; a pandas DataFrame or a `datasets.Dataset` with `text` and optionally `id`,
            `label` and `benchmark`; or the path of a file, a corpus folder or a hub data set.
        model: a folder, a GGUF file or a hub id; a loaded `PreTrainedModel`, with `tokenizer`; or a
            server's model, such as `{"url": "http://localhost:8000/v1", "tokenizer": folder}`.
        methods: names from conf/method; "all" (every method whose needs are given); or a mapping of
            names to hyperparameters, such as `{"min_k": {"k": [0.1, 0.2]}}`. A method of your own
            has its class, as in `{"mine": {"_target_": "my_module.MyMethod"}}`.
        labels: the texts' labels: 1, True or "member"; 0, False or "non-member"; None if unknown.
        tokenizer: the tokenizer of a loaded model.
        reference: a model that has not seen the texts, given like `model`; used by `reference`,
            `wbc`, `ez_mia`, `lt_mia` and `info_rmia`.
        reference_tokenizer: the tokenizer of a loaded reference.
        masked_lm: a masked language model, as a folder or a hub id; used by `neighbor`.
        prefix: a file of non-member texts; used by `recall`, and with members by `con_recall`.
        folder: stores the passes and scores, so that texts can be scored again without a forward;
            None stores nothing.
        seed: the seed of views with random choices.
        with_text: whether to add the texts to the result.
        on_error: what to do with an unusable text: "stop", or "skip" (leave it out and log the
            number of such texts).
        **settings: fields of `DetectionConfig`, such as `batch_tokens=4096`.

    Returns:
        One row per text, method and variant, in the order of the texts, with the columns
        example_id, method, variant, checkpoint_step, default, score, flag, ranked, benchmark,
        label, p_value and optionally text. See `detection.scores.Scores.table` and
        `detection.summary.p_values`.

    Raises:
        ConfigError: an unknown or invalid method, hyperparameter, setting or model.
        DataError: a text or a label cannot be used.
    """
    from contamination.detection.run import run  # here, since it loads torch
    from contamination.detection.scores import open_scores

    with ExitStack() as stack:
        runs = folder or stack.enter_context(TemporaryDirectory(prefix="contamination-"))
        target_node = make_model_node(model, tokenizer, "model", stack, folder is not None)
        reference_node = make_model_node(
            reference, reference_tokenizer, "reference", stack, folder is not None
        )
        stage = make_stage({
            "runs": str(Path(runs).expanduser()),
            "seed": seed,
            "examples": {"path": str(texts) if isinstance(texts, str | Path) else IN_MEMORY_PATH},
            "model": target_node,
            "reference": reference_node,
            "masked_lm": {"path": masked_lm},
            "prefix": {"path": prefix},
            "method": make_method_nodes(methods),
            "detection": settings,
        })  # fmt: skip
        examples = make_texts(texts, labels, on_error)
        columns = example_columns(examples, with_text)
        stack.enter_context(disk_errors_as_data_errors(runs))
        stack.enter_context(tokenizer_panics_as_config_errors())
        scores = open_scores(run(stage, examples=examples).path)
        tables = [with_example_columns(table, columns) for table in scores.tables()]
    return pd.concat(tables, ignore_index=True)


@naming_arguments_in_errors()
def evaluate(
    scores: pd.DataFrame,
    texts: Any,
    *,
    labels: Sequence[Any] | None = None,
    fpr: Sequence[float] = (0.05,),
    tpr: Sequence[float] = (0.95,),
    blind: bool = True,
    on_error: str = "stop",
) -> pd.DataFrame:
    """Estimates how well scores distinguish members from non-members, with 95% intervals.

    Args:
        scores: the result of `score` for these texts.
        texts: see `score`. They must be the same texts in the same order; if they have ids, a
            subset is also allowed.
        labels: see `score`.
        fpr: false-positive rates at which to estimate the true-positive rate.
        tpr: true-positive rates at which to estimate the false-positive rate.
        blind: whether to add the blind baseline, a text classifier that never sees the model.
        on_error: see `score`.

    Returns:
        One row per benchmark (`all` is the mean over several, `pooled` all texts together), method,
        variant and metric; see `detection.evaluation.tidy_estimates`.

    Raises:
        DataError: there are no members or no non-members, or a text has no score under its id or
            by one of the methods.
    """
    examples = make_texts(texts, labels, on_error)
    _check_scores(scores)
    key_columns = {
        "example_id": scores["example_id"].astype(str),
        "variant": scores["variant"].fillna(""),
    }
    scores = scores.assign(**key_columns)
    _check_same_texts(scores, examples)
    ranked = ranked_texts(examples, scores.drop_duplicates("example_id"))
    if not {True, False} <= set(ranked.column("label").unique().to_pylist()):
        raise DataError("labels: give members and non-members, such as labels=[1, 0, …].")
    for name, rates in (("fpr", fpr), ("tpr", tpr)):
        are_rates = isinstance(rates, Sequence) and all(map(_is_rate, rates))
        require(are_rates, name, rates, "give rates above 0 and below 1, such as (0.05,).")
    rows_by_method = [rows for _, rows in scores.groupby(["method", "variant"], sort=False)]
    _check_all_scored(rows_by_method, ranked)
    return tidy_estimates(
        estimate_benchmarks_and_all(
            lambda: group_by_method(rows_by_method), ranked, blind, chosen_metrics(fpr, tpr)
        )
    )


def _is_rate(value: Any) -> bool:
    return isinstance(value, Real) and PROPER_FRACTION.allows(value)


def _check_scores(scores: pd.DataFrame) -> None:
    """Raises a DataError unless these are one model's scores, as returned by `score`."""
    if not isinstance(scores, pd.DataFrame) or not {*SCORE_COLUMNS} <= {*scores.columns}:
        raise DataError(f"scores: give the data frame of `score`, with {', '.join(SCORE_COLUMNS)}.")
    for name, kind, has_kind in (
        ("score", "numbers", is_numeric_dtype),
        ("ranked", "True or False", is_bool_dtype),
    ):
        if not has_kind(scores[name]):
            raise DataError(
                f"scores: its column {name} does not contain {kind} ({scores[name].dtype})."
            )
    duplicates = scores[scores.duplicated(["example_id", "method", "variant"])]
    if len(duplicates):
        duplicate = duplicates.iloc[0]
        raise DataError(
            f"scores: {duplicate['method']!r} has two scores of {duplicate['example_id']!r}. "
            "Evaluate the scores of each model separately."
        )
    if missing := int(scores["score"].isna().sum()):
        raise DataError(f"scores: {missing} scores are missing (NaN): leave their texts out.")


def _check_same_texts(scores: pd.DataFrame, examples: Texts) -> None:
    """Raises a DataError unless each example was scored under its id and as the same text."""
    scored_texts = dict(
        zip(scores["example_id"], scores.get("sha256", scores["example_id"]), strict=True)
    )
    with_text = "sha256" in scores
    for example in examples:
        expected = example.sha256 if with_text else example.example_id
        if scored_texts.get(example.example_id) != expected:
            raise DataError(
                f"texts: {example.example_id!r} ({example.text[:40]!r}) is not the text that was "
                "scored under this id. Give the same texts in the same order, or give each text an "
                "`id` when you score."
            )


def _check_all_scored(rows_by_method: Sequence[pd.DataFrame], ranked: Texts) -> None:
    """Raises a DataError unless each method has a ranked score of each of these texts."""
    for rows in rows_by_method:
        scored = set(rows["example_id"][rows["ranked"]])
        missing = [name for name in ranked.column("example_id").to_pylist() if name not in scored]
        if missing:
            raise DataError(
                f"scores: {rows['method'].iloc[0]!r} has no ranked score of {missing[0]!r}, "
                "but another method has. Give the scores of all methods for the same texts."
            )
