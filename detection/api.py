"""Detection from Python: texts and a model in, data frames out.

::

    from detection import evaluate, score

    scores = score(texts, "runs/model/tiny-llama-…", labels=labels)
    evaluate(scores, texts, labels=labels)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from core.disk import disk_errors
from core.errors import DataError, require
from core.metrics import chosen_metrics
from core.ranges import PART
from detection.arguments import (
    given_methods,
    given_model,
    given_stage,
    given_texts,
    in_arguments,
)
from detection.evaluation import by_method, evaluated, ranked_texts, tidy
from detection.export import described, exported
from detection.texts import Texts

DEFAULT = ("loss", "zlib", "min_k", "min_k_plus_plus")
GIVEN = "(texts of a Python program)"
"""What stands in a kept folder's config.yaml where a path would."""
NEEDED = ("example_id", "method", "variant", "score", "ranked")
"""What `evaluate` reads of the scores."""


@in_arguments()
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
    """Score texts by membership-inference methods; a higher score means member.

    Args:
        texts: strings; a pandas DataFrame or a `datasets.Dataset` with `text` and perhaps `id`,
            `label`, `benchmark`; or the path of a file, a corpus folder or a hub data set.
        model: a folder, a GGUF file or a hub id; a loaded `PreTrainedModel`, with `tokenizer`; or a
            server's model, such as `{"url": "http://localhost:8000/v1", "tokenizer": folder}`.
        methods: names of conf/method, "all" (those for which all is given), or a mapping of names
            to hyperparameters, such as `{"min_k": {"k": [0.1, 0.2]}}`; your own with its class,
            such as `{"mine": {"_target_": "my_module.MyMethod"}}`.
        labels: of the texts: 1, True or "member"; 0, False or "non-member"; None where unknown.
        tokenizer: of a loaded model.
        reference: a model that has not seen the texts, as `model`; for `reference`.
        reference_tokenizer: of a loaded reference.
        masked_lm: a masked language model, a folder or a hub id; for `neighbor`.
        prefix: a file of non-member texts; for `recall`.
        folder: keeps the passes and scores, to score again without a forward; None: nothing stays.
        seed: for views that draw at random.
        with_text: add the texts.
        on_error: at a text that can't be used: "stop", or "skip" (leave it out and log how many).
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
        place = folder or stack.enter_context(TemporaryDirectory(prefix="contamination-"))
        target = given_model(model, tokenizer, "model", stack, folder is not None)
        other = given_model(reference, reference_tokenizer, "reference", stack, folder is not None)
        stage = given_stage({
            "runs": str(Path(place).expanduser()),
            "seed": seed,
            "examples": {"path": str(texts) if isinstance(texts, str | Path) else GIVEN},
            "model": target,
            "reference": other,
            "masked_lm": {"path": masked_lm},
            "prefix": {"path": prefix},
            "method": given_methods(methods),
            "detection": settings,
        })  # fmt: skip
        examples = given_texts(texts, labels, on_error)
        own = described(examples, with_text)
        stack.enter_context(disk_errors(place))
        scores = open_scores(run(stage, examples=examples).path)
        tables = [exported(table, own) for table in scores.tables()]
    return pd.concat(tables, ignore_index=True)


@in_arguments()
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
    """How well scores tell members from non-members, with 95% bootstrap intervals.

    Args:
        scores: what `score` gave for these texts.
        texts: as for `score`: the same ones in the same order; where they have ids, also some.
        labels: as for `score`.
        fpr: false-positive rates at which the true-positive rate is given.
        tpr: true-positive rates at which the false-positive rate is given.
        blind: add the blind baseline, a text classifier that never sees the model.
        on_error: as for `score`.

    Returns:
        One row a benchmark (`all` is the mean over several, `pooled` all texts together), method,
        variant and metric; see `detection.evaluation.tidy`.

    Raises:
        DataError: there are no members, or no non-members; or a text has no score under its id,
            or none by one of the methods.
    """
    examples = given_texts(texts, labels, on_error)
    _check_scores(scores)
    own = {"example_id": scores["example_id"].astype(str), "variant": scores["variant"].fillna("")}
    scores = scores.assign(**own)
    _check_same(scores, examples)
    shown = ranked_texts(examples, scores.drop_duplicates("example_id"))
    if not {True, False} <= set(shown.column("label").unique().to_pylist()):
        raise DataError("labels: give members and non-members, such as labels=[1, 0, …].")
    for name, rates in (("fpr", fpr), ("tpr", tpr)):
        good = isinstance(rates, Sequence) and all(map(_is_rate, rates))
        require(good, name, rates, "give rates above 0 and below 1, such as (0.05,).")
    parts = [rows for _, rows in scores.groupby(["method", "variant"], sort=False)]
    _check_whole(parts, shown)
    return tidy(evaluated(lambda: by_method(parts), shown, blind, chosen_metrics(fpr, tpr)))


def _is_rate(value: Any) -> bool:
    return isinstance(value, Real) and PART.holds(value)


def _check_scores(scores: pd.DataFrame) -> None:
    """Raise a DataError unless these are one model's scores, as `score` gives them."""
    if not isinstance(scores, pd.DataFrame) or not {*NEEDED} <= {*scores.columns}:
        raise DataError(f"scores: give the data frame of `score`, with {', '.join(NEEDED)}.")
    for name, kind, holds in (
        ("score", "numbers", is_numeric_dtype),
        ("ranked", "True or False", is_bool_dtype),
    ):
        if not holds(scores[name]):
            raise DataError(f"scores: its column {name} is no {kind} ({scores[name].dtype}).")
    twice = scores[scores.duplicated(["example_id", "method", "variant"])]
    if len(twice):
        one = twice.iloc[0]
        raise DataError(
            f"scores: {one['method']!r} has two of {one['example_id']!r}. Evaluate the scores of "
            "each model on their own."
        )
    if missing := int(scores["score"].isna().sum()):
        raise DataError(f"scores: {missing} are missing (NaN): leave their texts out.")


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


def _check_whole(parts: Sequence[pd.DataFrame], shown: Texts) -> None:
    """Raise a DataError unless each method's rows have all of these texts, ranked."""
    for rows in parts:
        scored = set(rows["example_id"][rows["ranked"]])
        lacks = [name for name in shown.column("example_id").to_pylist() if name not in scored]
        if lacks:
            raise DataError(
                f"scores: {rows['method'].iloc[0]!r} has none that is ranked of {lacks[0]!r}, "
                "which another method has. Give all methods' scores of the same texts."
            )
