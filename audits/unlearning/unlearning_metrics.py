"""The metrics of TOFU, MUSE and open-unlearning for all models of an audit, in one table.

Each equation is in the file that is named after it; here models are read and rows are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.answer_sets import (
    AnsweredQuestion,
    AnswerSet,
    AnswerStats,
    read_answers,
)
from contamination.audits.unlearning.comparison import estimate_columns
from contamination.audits.unlearning.exact_memorization import exact_memorization
from contamination.audits.unlearning.extraction_strength import extraction_strength
from contamination.audits.unlearning.forget_quality import forget_quality
from contamination.audits.unlearning.inputs import AuditedModel, AuditedModels
from contamination.audits.unlearning.model_utility import answer_probability, model_utility
from contamination.audits.unlearning.privleak import (
    MOST_RETRAINED,
    privleak,
    privleak_interval,
)
from contamination.audits.unlearning.quantities import (
    ANSWERS,
    Quantity,
    answer_recall_quantity,
    make_quantity,
)
from contamination.audits.unlearning.truth_ratio import (
    mean_closeness_to_1,
    mean_preference_for_truth,
)
from contamination.core.statistics.bootstrap import Scores
from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.data.texts import Texts
from contamination.detection.evaluation import CONFIDENCE
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import ORIGINAL

STRENGTH, MEMORIZATION = "extraction strength", "exact memorization"
TOKEN_METRICS: Mapping[str, Callable[[NDArray[np.bool_]], float]] = {
    STRENGTH: extraction_strength,
    MEMORIZATION: exact_memorization,
}
"""The metrics that need to know which tokens are the most probable ones, by name."""


def token_quantities(
    stage: AuditStage, models: AuditedModels, texts: Texts, chunks: pd.DataFrame
) -> list[Quantity]:
    """Returns extraction strength and exact memorization of the chunks.

    The list is empty if a model is behind a server that does not name the most probable token.
    """
    if not all("top_id" in model.source.provides for model in models):
        return []
    tables: dict[str, dict[str, pd.DataFrame]] = {name: {} for name in TOKEN_METRICS}
    for model in models:
        masks = [*_iter_greedy_masks(stage, model, texts)]
        units = chunks.rename(columns={"chunk": "unit"})
        for name, metric in TOKEN_METRICS.items():
            tables[name][model.name] = units.assign(value=[metric(mask) for mask in masks])
    return [make_quantity(name, by_model, stage.seed) for name, by_model in tables.items()]


def _iter_greedy_masks(
    stage: AuditStage, model: AuditedModel, texts: Texts
) -> Iterator[NDArray[np.bool_]]:
    """Yields whether each token of a text but the first is the most probable one."""
    models = {"target": model.source}
    collector = Collector(Path(stage.runs), models, texts, stage.detection)
    stats_by_text = collector.collect([ORIGINAL])[ORIGINAL]
    tokenizer = model.source.tokenizer()
    for text in texts:
        (stats,) = stats_by_text[text.sha256]
        ids = tokenizer(text.text, verbose=False)["input_ids"]
        yield np.asarray(stats.top_id == np.array(ids[1 : 1 + len(stats)]))


@dataclass(frozen=True)
class AnswerSets:
    """The questions of the metrics.

    Attributes:
        forget: about what is to be forgotten, perhaps with non-members; None: there are none.
        utility: about other things, by name.
    """

    forget: AnswerSet | None
    utility: Mapping[str, AnswerSet]


def metric_table(
    stage: AuditStage,
    models: AuditedModels,
    token_metrics: Sequence[Quantity],
    score: Quantity,
    sets: AnswerSets,
    answers: Sequence[Quantity],
) -> pd.DataFrame:
    """Returns a row of metrics per model.

    Args:
        stage: the stage.
        models: the models.
        token_metrics: what `token_quantities` returned.
        score: the scores whose AUROC PrivLeak compares.
        sets: the questions.
        answers: the audit's answers, among them the recall of a corpus's own questions.
    """
    ratios = {} if sets.forget is None else _truth_ratios(stage, models, sets.forget)
    utilities = _utilities(stage, models, sets, answers)
    clean = models.clean.name if models.clean else None
    rows: list[dict[str, Any]] = []
    for model in models:
        row: dict[str, Any] = {"model": model.name}
        for quantity in token_metrics:
            row |= estimate_columns(quantity.name, _mean_to_forget(quantity, model.name))
        if score.units.has_both_labels:
            row |= _privleak_columns(score, model.name, clean)
        if ratios:
            row["truth_ratio"] = mean_closeness_to_1(ratios[model.name])
            if clean is not None:
                same = model.name == clean
                row["forget_quality"] = (
                    np.nan if same else forget_quality(ratios[model.name], ratios[clean])
                )
        if utilities:
            row["model_utility"] = utilities[model.name]
        rows.append(row)
    return pd.DataFrame(rows)


def _mean_to_forget(quantity: Quantity, model: str) -> Estimate | None:
    """Returns the mean over the members, or over all units if none has a label."""
    members = quantity.units.sides[True]
    mask = members if members.any() else np.ones(len(members), bool)
    return quantity.units.mean_in_mask(quantity.values[model], mask, "members")


def _privleak_columns(score: Quantity, model: str, clean: str | None) -> dict[str, Any]:
    """Returns PrivLeak and its 95% interval, or why it is not defined (`privleak_why`).

    Beside a twin the interval is that of paired draws. Where a draw of the model's AUROC is 0 or 1
    these vary too little, so that it also includes what the ends of both AUROCs' intervals allow.
    """
    unlearned = score.units.auroc(score.values[model])
    ends = confidence_interval(unlearned, CONFIDENCE)
    if clean is None:
        return _interval_columns(privleak(unlearned.value), *privleak_interval(ends))
    twin = score.units.auroc(score.values[clean])
    twin_ends = confidence_interval(twin, CONFIDENCE)
    if twin_ends[1] > MOST_RETRAINED:
        why = (
            f"the AUROC of the twin, which did not read the members, is {twin.value:.3f} "
            f"[{twin_ends[0]:.3f}, {twin_ends[1]:.3f}]: members and non-members differ in "
            "themselves. Audit texts that were drawn at random"
        )
        return {**_interval_columns(np.nan, np.nan, np.nan), "privleak_why": why}
    if model == clean:
        return _interval_columns(0.0, 0.0, 0.0)
    pairs = zip(unlearned.draws, np.minimum(twin.draws, MOST_RETRAINED), strict=True)
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = map(float, np.quantile([privleak(*pair) for pair in pairs], tails))
    if unlearned.draws.min() <= 0 or unlearned.draws.max() >= 1:
        widest = privleak_interval(ends, twin_ends)
        low, high = min(low, widest[0]), max(high, widest[1])
    return _interval_columns(privleak(unlearned.value, twin.value), low, high)


def _interval_columns(value: float, low: float, high: float) -> dict[str, float]:
    return {"privleak": value, "privleak_low": low, "privleak_high": high}


def _truth_ratios(stage: AuditStage, models: AuditedModels, forget: AnswerSet) -> dict[str, Scores]:
    """Returns the truth ratios of the questions to be forgotten by model; none without any."""
    questions = [q for q in forget.questions if q.member is not False and q.wrong]
    if not questions:
        return {}
    return {
        model.name: np.array([s.truth_ratio for s in read_answers(stage, model, questions)])
        for model in models
    }


def _utilities(
    stage: AuditStage, models: AuditedModels, sets: AnswerSets, answers: Sequence[Quantity]
) -> dict[str, float]:
    """Returns the models' utility: on the given sets, or else on the non-members' questions."""
    values: dict[str, list[float]] = {model.name: [] for model in models}
    for _, (questions, recalls) in _iter_utility_sets(stage, models, sets, answers):
        multiple_choice = AnswerSet(questions).is_multiple_choice
        for model in models:
            stats = read_answers(stage, model, questions)
            recall = float(recalls[model.name].mean())
            values[model.name] += [*_utility_parts(stats, multiple_choice=multiple_choice), recall]
    return {model: model_utility(parts) for model, parts in values.items() if parts}


def _utility_parts(stats: Sequence[AnswerStats], *, multiple_choice: bool) -> tuple[float, float]:
    """Returns the mean probability of the right answers, and the mean preference for the truth."""
    probabilities = [
        answer_probability(one.answer, one.wrong, multiple_choice=multiple_choice) for one in stats
    ]
    ratios = np.array([one.truth_ratio for one in stats])
    return float(np.mean(probabilities)), mean_preference_for_truth(ratios)


Recalls = Mapping[str, Scores]


def _iter_utility_sets(
    stage: AuditStage, models: AuditedModels, sets: AnswerSets, answers: Sequence[Quantity]
) -> Iterator[tuple[str, tuple[Sequence[AnsweredQuestion], Recalls]]]:
    """Yields each set's name, questions, and ROUGE-L recalls by model."""
    for name, answer_set in sets.utility.items():
        assert answer_set.file is not None, "it was read from a file"
        recalls = answer_recall_quantity(stage, models, answer_set.file, stage.seed)
        yield name, (answer_set.questions, recalls.values)
    recall = next((quantity for quantity in answers if quantity.name == ANSWERS), None)
    if sets.utility or sets.forget is None or recall is None:
        return
    place_by_unit = {unit: place for place, unit in enumerate(recall.units.table["unit"])}
    questions = [
        q
        for q in sets.forget.questions
        if q.member is False and q.wrong and q.unit in place_by_unit
    ]
    if questions:
        places = [place_by_unit[q.unit] for q in questions]
        yield (
            "non-members",
            (questions, {model: values[places] for model, values in recall.values.items()}),
        )
