"""The audit from Python: takes lists or data frames and a model, returns the findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.audit import LEVEL
from contamination.audits.benchmark.origin import is_drawn
from contamination.audits.benchmark.report import BenchmarkFindings
from contamination.audits.benchmark.verdict import REFERENCE, audit_texts, order_texts
from contamination.core.config import convert_config
from contamination.core.distinct_names import distinctly_named
from contamination.core.errors import ConfigError, require
from contamination.data.examples import RowLayout
from contamination.data.texts import Texts
from contamination.detection.api import (
    make_model_node,
    make_texts,
    naming_arguments_in_errors,
    score,
)
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models import open_model

DEFAULT = ("loss", "zlib", "min_k", "min_k_plus_plus", "gap_k", "surp")
"""Methods that need one forward pass; conf/audit/benchmark.yaml has the same."""


@naming_arguments_in_errors()
def audit_benchmark(
    questions: Any,
    fresh: Any = None,
    model: Any = None,
    *,
    versions: Any = None,
    order: bool = False,
    models: Mapping[str, Any] | Sequence[Any] | None = None,
    tokenizer: Any = None,
    reference: Any = None,
    reference_tokenizer: Any = None,
    methods: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = DEFAULT,
    template: str | None = None,
    columns: Mapping[str, str] | None = None,
    separator: str = " ",
    limit: int | None = None,
    alpha: float = 0.05,
    seed: int = 0,
    folder: str | Path | None = None,
    **settings: Any,
) -> BenchmarkFindings:
    r"""Did the questions leak into the model? A verdict over the set; see docs/audits.md.

    Args:
        questions: strings, a data frame, a list of mappings, or a path; see `score`.
        fresh: questions of the same making that the model cannot have seen.
        model: see `score`.
        versions: other versions of the questions, whose `cluster` is their question's id.
        order: whether the questions are in the published order, and that order is a random one.
        models: several models in the place of `model`, by name, or a list of folders or hub ids.
        tokenizer: the tokenizer of a loaded model.
        reference: a model that has not seen the questions, given like `model`.
        reference_tokenizer: the tokenizer of a loaded reference.
        methods: see `score`.
        template: how a row becomes a text, such as "Question: {question}\nAnswer: {answer}", or
            the name of a benchmark; None: a row has its `text`.
        columns: the columns of `text`, `id`, `benchmark`, `cluster` or another field.
        separator: what stands between a prompt and an output without white space there.
        limit: only the first rows of each side, so many; None: all.
        alpha: the level of the tests.
        seed: of the tests' relabellings.
        folder: stores passes and scores; see `score`.
        **settings: fields of `DetectionConfig`.

    Returns:
        The findings: `verdicts`, the tables `benchmarks`, `questions` and `methods`, and the report
        as `markdown()` or `html()`.

    Raises:
        ConfigError: an invalid argument, or more than one of `fresh`, `versions` and `order`.
        DataError: a text cannot be used.
    """
    given_models = _models_by_name(model, models)
    given = [n for n, v in {"fresh": fresh, "versions": versions}.items() if v is not None]
    require(isinstance(order, bool), "order", order, "give True or False.")
    given += ["order"] * order
    if len(given) > 1:
        raise ConfigError(f"{', '.join(given)}: choose one of fresh, versions and order.")
    remedy = "give a format string, or the name of a benchmark."
    require(isinstance(template, str | None), "template", template, remedy)
    remedy = 'give names of columns by field, such as {"text": "body"}.'
    require(isinstance(columns, Mapping | None), "columns", columns, remedy)
    require(isinstance(separator, str), "separator", separator, "give a text.")
    require(limit is None or _is_whole(limit) and limit >= 1, "limit", limit, "give 1 or more.")
    require(_is_whole(seed), "seed", seed, "give a whole number.")
    require(isinstance(alpha, Real) and LEVEL.allows(alpha), "alpha", alpha, LEVEL.remedy)
    layout = RowLayout(template, dict(columns or {}), separator, limit)

    def read(rows: Any, argument: str) -> Texts:
        with inputs.naming_fields_in_errors(argument):
            return make_texts(rows, None, "stop", layout)

    def score_table(texts: Texts, name: str) -> pd.DataFrame:
        if name == REFERENCE:
            return score(
                texts, reference, _without_reference(methods), tokenizer=reference_tokenizer,
                folder=folder, seed=seed, **settings,
            )  # fmt: skip
        chosen: Any = ["loss"] if order else methods
        if has_reference and "reference" not in methods:
            chosen = (
                {**methods, "reference": {}}
                if isinstance(methods, Mapping)
                else [*([methods] if isinstance(methods, str) else methods), "reference"]
            )
        return score(
            texts, given_models[name], chosen, tokenizer=tokenizer, reference=reference,
            reference_tokenizer=reference_tokenizer, folder=folder, seed=seed, **settings,
        )  # fmt: skip

    has_reference = reference is not None and not order
    texts = read(questions, "questions")
    control = inputs.FRESH
    if versions is not None:
        texts = inputs.questions_and_versions(texts, read(versions, "versions"))
        control = inputs.VERSIONS
    elif fresh is not None:
        texts = inputs.questions_and_fresh(texts, read(fresh, "fresh"))
    elif order:
        control = inputs.ORDER
    else:
        texts = inputs.questions_alone(texts)
    texts, notes = inputs.without_empty_texts(texts, control)
    if order:
        first = next(iter(given_models.values()))
        texts, unused = order_texts(texts, *_tokenizer_and_context(first, tokenizer), seed)
        notes += unused
    return audit_texts(
        texts, [*given_models], score_table, control, seed, alpha,
        reference=has_reference,
        drawn=is_drawn(questions, versions if fresh is None else fresh), notes=notes,
    )  # fmt: skip


def _without_reference(methods: Any) -> Any:
    """Returns the methods but `reference`, which compares a model with another one."""
    if isinstance(methods, Mapping):
        return {name: fields for name, fields in methods.items() if name != "reference"}
    return [
        name for name in ([methods] if isinstance(methods, str) else methods) if name != "reference"
    ]


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _models_by_name(model: Any, models: Any) -> dict[str, Any]:
    """Returns the models by name; those of a list are named by the last part of their path."""
    if (model is None) == (models is None):
        raise ConfigError("model: give one model, or several by name as models={…}.")
    if models is None:
        return {"model": model}
    is_collection = isinstance(models, Mapping | list | tuple)
    remedy = 'give one or more, such as {"base": "DIR", "chat": "DIR"} or a list of folders.'
    require(is_collection and bool(models), "models", models, remedy)
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    names = [
        Path(model).name if isinstance(model, str | Path) else f"model {number}"
        for number, model in enumerate(models, 1)
    ]
    distinct = distinctly_named(names, [f" ({number})" for number in range(1, len(names) + 1)])
    return dict(zip(distinct, models, strict=True))


def _tokenizer_and_context(model: Any, tokenizer: Any) -> tuple[Any, int | None]:
    with ExitStack() as stack:
        node = make_model_node(model, tokenizer, "model", stack, stored=False)
        config: ScoredModelConfig = convert_config(OmegaConf.create(node), ScoredModelConfig)
        handle = open_model("model", config, "runs")
        return handle.tokenizer(), handle.context
