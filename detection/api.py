"""Detection from Python: texts and a model in, data frames out.

::

    from detection import evaluate, score

    scores = score(texts, "runs/model/tiny-llama-…", labels=labels)
    evaluate(scores, texts, labels=labels)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import yaml
from datasets import Dataset

from core.errors import ConfigError, DataError, near_names, require
from core.metrics import chosen_metrics
from core.ranges import PART
from detection.config import (
    METHODS,
    DetectionConfig,
    DetectionStage,
    ExamplesConfig,
    MaskedLMConfig,
    PrefixConfig,
    ReferenceConfig,
    ScoredModelConfig,
)
from detection.evaluation import by_method, evaluated, ranked_texts, tidy
from detection.examples import named_labels, open_examples
from detection.export import described, exported
from detection.model.held_model import HeldModel
from detection.texts import Texts

FIELDS = ("id", "text", "label", "benchmark")
DEFAULT = ("loss", "zlib", "min_k", "min_k_plus_plus")


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
    **settings: Any,
) -> pd.DataFrame:
    """Score texts by membership-inference methods; a higher score means member.

    Args:
        texts: strings; a pandas DataFrame or a `datasets.Dataset` with `text` and perhaps `id`,
            `label`, `benchmark`; or the path of a file, a corpus folder or a hub data set.
        model: a folder, a GGUF file or a hub id; or a loaded `PreTrainedModel`, with `tokenizer`.
        methods: names of conf/method, "all" (those for which all is given), or a mapping of names
            to hyperparameters, such as `{"min_k": {"k": [0.1, 0.2]}}`.
        labels: of the texts: 1, True or "member"; 0, False or "non-member"; None where unknown.
        tokenizer: of a loaded model.
        reference: a model that has not seen the texts, as `model`; for `reference`.
        reference_tokenizer: of a loaded reference.
        masked_lm: a masked language model, a folder or a hub id; for `neighbor`.
        prefix: a file of non-member texts; for `recall`.
        folder: keeps the passes and scores, to score again without a forward; None: nothing stays.
        seed: for views that draw at random.
        with_text: add the texts.
        **settings: of `DetectionConfig`, such as `batch_tokens=4096`.

    Returns:
        One row a text, method and variant, in the order of the texts: example_id, method, variant,
        checkpoint_step, default, score, flag, ranked, benchmark, label, p_value and perhaps text.
        See `detection.scores.Scores.table` and `detection.export.p_values`.

    Raises:
        ConfigError: a method, a hyperparameter, a setting or a model that there isn't.
        DataError: a text or a label that can't be used.
    """
    from detection.run import run  # here, since it loads torch
    from detection.scores import open_scores

    with ExitStack() as stack:
        place = Path(folder or stack.enter_context(TemporaryDirectory(prefix="contamination-")))
        kept = folder is not None
        examples = ExamplesConfig(_examples(texts, labels, stack))
        target, other = _path(model, tokenizer, "model", stack, kept), None
        if reference is not None:
            other = _path(reference, reference_tokenizer, "reference", stack, kept)
        stage = DetectionStage(
            runs=str(place),
            seed=seed,
            examples=examples,
            model=ScoredModelConfig(target),
            reference=ReferenceConfig(other),
            masked_lm=MaskedLMConfig(masked_lm),
            prefix=PrefixConfig(prefix),
            method=_nodes(methods),
            detection=_settings(settings),
        )
        own = described(open_examples(examples), with_text)
        tables = [exported(table, own) for table in open_scores(run(stage).path).tables()]
    return pd.concat(tables, ignore_index=True)


def evaluate(
    scores: pd.DataFrame,
    texts: Any,
    *,
    labels: Sequence[Any] | None = None,
    fpr: Sequence[float] = (0.05,),
    tpr: Sequence[float] = (0.95,),
    blind: bool = True,
) -> pd.DataFrame:
    """How well scores tell members from non-members, with 95% bootstrap intervals.

    Args:
        scores: what `score` gave for these texts.
        texts: as for `score`: the same ones in the same order; where they have ids, also some.
        labels: as for `score`.
        fpr: false-positive rates at which the true-positive rate is given.
        tpr: true-positive rates at which the false-positive rate is given.
        blind: add the blind baseline, a text classifier that never sees the model.

    Returns:
        One row a benchmark (`all` is the mean over several, `pooled` all texts together), method,
        variant and metric; see `detection.evaluation.tidy`.

    Raises:
        DataError: there are no members, or no non-members; or a text has no score under its id.
    """
    with ExitStack() as stack:
        examples = open_examples(ExamplesConfig(_examples(texts, labels, stack)))
    own = {"example_id": scores["example_id"].astype(str), "variant": scores["variant"].fillna("")}
    scores = scores.assign(**own)
    _check_same(scores, examples)
    shown = ranked_texts(examples, scores.drop_duplicates("example_id"))
    if not {True, False} <= set(shown.column("label").unique().to_pylist()):
        raise DataError("labels: give members and non-members, such as labels=[1, 0, …].")
    for name, rates in (("fpr", fpr), ("tpr", tpr)):
        good = isinstance(rates, Sequence) and all(PART.holds(rate) for rate in rates)
        require(good, name, rates, "give rates above 0 and below 1, such as (0.05,).")
    parts = [rows for _, rows in scores.groupby(["method", "variant"], sort=False)]
    return tidy(evaluated(lambda: by_method(parts), shown, blind, chosen_metrics(fpr, tpr)))


def _check_same(scores: pd.DataFrame, examples: Texts) -> None:
    """Raise a DataError unless each example was scored under its id, and as the same text."""
    known = dict(zip(scores["example_id"], scores.get("sha256", scores["example_id"]), strict=True))
    with_text = "sha256" in scores
    for one in examples:
        if known.get(one.example_id) != (one.sha256 if with_text else one.example_id):
            raise DataError(
                f"texts: {one.example_id!r} ({one.text[:40]!r}) is not the text that was scored by "
                "this id. Give the same texts in the same order, or an `id` to each when you score."
            )


def _examples(texts: Any, labels: Sequence[Any] | None, stack: ExitStack) -> str:
    """The path of the texts: their own, or that of a file which lasts as long as the stack."""
    if isinstance(texts, str | Path):
        if labels is not None:
            raise ConfigError("labels: a file or a data set has its own, in its column label.")
        return str(texts)
    rows = list(_rows(texts))
    if labels is not None:
        labels = list(labels)
        if len(labels) != len(rows):
            raise DataError(f"labels: there are {len(labels)} for {len(rows)} texts: give as many.")
        rows = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    place = Path(stack.enter_context(TemporaryDirectory(prefix="contamination-"))) / "texts.jsonl"
    lines = (json.dumps(row, default=_plain) + "\n" for row in rows)
    place.write_text("".join(lines))
    return str(place)


def _rows(texts: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(texts, Mapping):
        kind = type(texts).__name__
        raise DataError(
            f"texts is a {kind}: give strings, a data frame, or one split of a data set."
        )
    if isinstance(texts, pd.DataFrame):
        columns = [name for name in FIELDS if name in texts]
        frame = texts[columns].astype(object)
        texts = frame.where(frame.notna(), None).to_dict("records")
    if isinstance(texts, Dataset):
        texts = named_labels(texts)
    rows = [{"text": row} if isinstance(row, str) else row for row in texts]
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"texts: {row!r}, number {number} from 0, is no string: leave it out.")
    return [{name: row[name] for name in FIELDS if name in row} for row in rows]


def _plain(value: Any) -> Any:
    """A NumPy number as Python's own."""
    return value.item() if hasattr(value, "item") else str(value)


def _path(model: Any, tokenizer: Any, name: str, stack: ExitStack, kept: bool) -> str:
    """The model's path; a loaded one is held until the stack ends."""
    if isinstance(model, str | Path):
        return str(model)
    if tokenizer is None:
        raise ConfigError(f"{name}: a loaded model needs its tokenizer: give one beside it.")
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ConfigError(f"{name}: its tokenizer is a slow one: give a fast one (use_fast=True).")
    held = HeldModel.of(model, tokenizer, f"{name}.path", kept=kept)
    stack.callback(held.release)
    return held.hold()


def _nodes(methods: str | Sequence[str] | Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Each method's config node, with the hyperparameters that are given."""
    known = {path.stem: path for path in METHODS.glob("*.yaml")}
    names = known if methods == "all" else [methods] if isinstance(methods, str) else methods
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"method={unknown[0]}: unknown method. {near_names(unknown[0], known)}")
    nodes = {name: yaml.safe_load(known[name].read_text())[name] for name in names}
    given = methods if isinstance(methods, Mapping) else {}
    return {name: {**node, **(given.get(name) or {})} for name, node in nodes.items()}


def _settings(given: Mapping[str, Any]) -> DetectionConfig:
    """Raises a ConfigError where there is no such setting."""
    known = [f.name for f in fields(DetectionConfig)]
    if unknown := [name for name in given if name not in known]:
        raise ConfigError(f"{unknown[0]}: unknown setting. {near_names(unknown[0], known)}")
    return DetectionConfig(**given)
