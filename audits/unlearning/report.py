"""The report of the unlearning audit: conclusions, warnings, tables, charts and limitations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from contamination.audits.base import AuditResult
from contamination.audits.unlearning import tables
from contamination.audits.unlearning.inputs import AuditedModels
from contamination.audits.unlearning.metric_report import over_unlearning_warnings, render_metrics
from contamination.audits.unlearning.quantities import Quantity
from contamination.audits.unlearning.tables import format_decimals, format_estimate
from contamination.core.report.charts import (
    INK,
    MEMBER,
    NONMEMBER,
    SERIES,
    InlineChart,
    page_figure,
)
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import Table


@dataclass(frozen=True)
class UnlearningFigures:
    """All results of the audit, and the settings that its report names.

    Attributes:
        models: the audited models.
        screened: the scores that the screen compares.
        screens: see `comparison.screen_table`.
        ratios: see `comparison.forget_ratio_table`; None without a twin or without members.
        metrics: see `unlearning_metrics.metric_table`.
        membership: see `comparison.membership_table`; None without labels of both kinds.
        completions: see `comparison.group_mean_table`; empty if none were sampled.
        answers: see `comparison.group_mean_table`; empty if there are no questions.
        utility: see `comparison.utility_table`; None if there is no text to measure the loss on.
        chunks: one row per chunk.
        texts: the file or corpus folder of the texts.
        of_validation: whether the loss is on validation text, and not on the non-members.
        method: the method whose scores the screen compares.
        ratio: the maximum ratio of the screen.
        completions_per_chunk: the number of completions per chunk.
        similarities: the names of the measures of completions besides ROUGE-L.
    """

    models: AuditedModels
    screened: Quantity
    screens: pd.DataFrame
    ratios: pd.DataFrame | None
    metrics: pd.DataFrame
    membership: pd.DataFrame | None
    completions: pd.DataFrame
    answers: pd.DataFrame
    utility: pd.DataFrame | None
    chunks: pd.DataFrame
    texts: str
    of_validation: bool
    method: str
    ratio: float
    completions_per_chunk: int
    similarities: Sequence[str]

    @property
    def unlearned_names(self) -> list[str]:
        """The names of the unlearned models."""
        return [model.name for model in self.models.unlearned]


def build_report(figures: UnlearningFigures, files: Sequence[str]) -> AuditResult:
    """Returns the report: the results in sentences, tables and charts.

    Args:
        figures: the results.
        files: the names of the files that the audit has written.
    """
    labelled = figures.membership is not None
    limits = [*LIMITS]
    limits += [] if figures.models.clean else [NO_TWIN]
    limits += [] if labelled else [NO_LABELS]
    members = figures.chunks["member"]
    content = ReportContent(
        title=f"What is left after unlearning: {', '.join(figures.unlearned_names)}",
        conclusions=[
            f"**{name}**. {' '.join(_conclusions(figures, name))}"
            for name in figures.unlearned_names
        ],
        warnings=[*_warnings(figures)],
        tables=[*_tables(figures)],
        charts=[*iter_charts(figures.models, figures.screened, figures.ratios)],
        limits=limits,
        facts={
            **{model.name: model.source.path for model in figures.models},
            "texts": figures.texts,
            "chunks": f"{len(figures.chunks)}, of {figures.chunks['text_id'].nunique()} texts",
            "members": f"{int(members.fillna(False).sum())} chunks",
            "non-members": f"{int((~members.fillna(True)).sum())} chunks",
            "screen": f"{figures.method}, ratio {figures.ratio:g}",
            "completions": f"{figures.completions_per_chunk} per chunk, compared by "
            + ", ".join(["ROUGE-L", *figures.similarities]),
        },
    )
    counts = {"chunks": len(figures.chunks), "unlearned": len(figures.unlearned_names)}
    return AuditResult(content, counts, files)


LIMITS = (
    "That a text is forgotten. The audit finds what is still there; another method, prompt or "
    "threshold may find more.",
    "That the screen is right. A chunk that was never known has similar scores before and after, "
    "like one that is still known: the ratio can't tell them apart.",
    "That all twins are alike. The clean twin is one training of one seed; the intervals resample "
    "texts, not trainings.",
)
NO_TWIN = (
    "How far the unlearned model is from one that was never trained on the texts: there is no "
    "clean twin (audit.clean)."
)
NO_LABELS = (
    "Which texts were members: there are no labels of both kinds, so no rate of the screen is "
    "known, and there is no control."
)


def _tables(figures: UnlearningFigures) -> Iterator[Table]:
    if figures.ratios is not None:
        yield tables.render_forget_ratios(figures.ratios)
    yield render_metrics(figures.metrics)
    if figures.membership is not None:
        yield tables.render_membership(figures.membership)
    yield tables.render_screens(figures.screens, figures.method, figures.ratio)
    if not figures.completions.empty:
        yield tables.render_groups(
            figures.completions, "completions", figures.completions_per_chunk
        )
    if not figures.answers.empty:
        yield tables.render_groups(figures.answers, "answers", 0)
    if figures.utility is not None:
        yield tables.render_utility(figures.utility, of_validation=figures.of_validation)


def _conclusions(figures: UnlearningFigures, unlearned_name: str) -> Iterator[str]:
    if figures.membership is not None:
        yield _membership_sentence(figures, unlearned_name)
    if figures.ratios is not None:
        yield _ratio_sentence(figures, unlearned_name)
    yield _screen_sentence(figures, unlearned_name)


def _membership_sentence(figures: UnlearningFigures, unlearned_name: str) -> str:
    assert figures.membership is not None
    rows = figures.membership[figures.membership["method"] == figures.screened.name]
    rows = rows.set_index("model")
    before, after = rows.loc[figures.models.original.name], rows.loc[unlearned_name]
    twin = (
        f" (clean twin {format_decimals(rows.loc['clean', 'auroc'])})"
        if figures.models.clean
        else ""
    )
    sentence = (
        f"Members against non-members by {figures.screened.name}: AUROC "
        f"{format_decimals(before['auroc'])} before, {format_estimate(after, 'auroc')} after{twin}."
    )
    if after["auroc_high"] < 0.5:
        return (
            f"{sentence} **Forgotten too well**: its members score below non-members, which itself "
            "shows who was a member."
        )
    if after["auroc_low"] > 0.5:
        return f"{sentence} Its members can still be told from non-members."
    return f"{sentence} This score does not tell its members from non-members."


def _ratio_sentence(figures: UnlearningFigures, unlearned_name: str) -> str:
    assert figures.ratios is not None
    rows = figures.ratios[figures.ratios["unlearned"] == unlearned_name].set_index("quantity")
    if figures.screened.name not in rows.index:
        return "No member is left to compare with the clean twin."
    row = rows.loc[figures.screened.name]
    if row["share_why"]:
        return (
            "The forget ratio can't be told: the original and the clean twin score "
            f"the members alike by {figures.screened.name}, so there was nothing to forget."
        )
    sentence = (
        f"The forget ratio of the members' {figures.screened.name} score is "
        f"{format_estimate(row, 'share')} (0: as the original, 1: as the clean twin)"
    )
    if "beyond" in row and pd.notna(row["beyond"]):
        sentence += f"; beyond the change of non-members, {format_estimate(row, 'beyond')}"
    return f"{sentence}."


def _screen_sentence(figures: UnlearningFigures, unlearned_name: str) -> str:
    row = figures.screens.set_index("unlearned").loc[unlearned_name]
    sentence = (
        f"The ratio screen finds {int(row['suspicious'])} of {int(row['chunks'])} chunks suspicious"
    )
    if pd.isna(row["precision"]):
        return (
            f"{sentence}."
            if figures.membership is None
            else f"{sentence}: none, so it has no precision."
        )
    return (
        f"{sentence}: a share of {format_estimate(row, 'precision')} of them are members (all "
        f"chunks: {format_decimals(row['members'])}), and {format_estimate(row, 'recall')} of the "
        f"members are found (of the non-members {format_decimals(row['false_alarms'])})."
    )


def _warnings(figures: UnlearningFigures) -> Iterator[str]:
    if figures.membership is None:
        yield (
            "The texts have no labels of both kinds (1: to be forgotten, 0: never trained on): the "
            "tables show how chunks changed, and not whether members did."
        )
    yield from _equality_warnings(figures)
    clean = figures.models.clean.name if figures.models.clean else None
    yield from over_unlearning_warnings(figures.metrics, figures.unlearned_names, clean)
    if left_out := len(figures.chunks) - len(figures.screened.units.table):
        yield f"{left_out} of {len(figures.chunks)} chunks are too short or blank: not ranked."
    if figures.utility is not None:
        yield from _harm_warnings(figures, figures.utility.set_index("model"))


HARM = 0.05
"""The increase of the loss on other text, in nats per token, above which there is a warning."""


def _harm_warnings(figures: UnlearningFigures, utility: pd.DataFrame) -> Iterator[str]:
    """Yields warnings about models with a higher loss on other text than the original."""
    harmed = [name for name in figures.unlearned_names if utility.loc[name, "change_low"] > HARM]
    if harmed:
        rises = (f"{name} by {utility.loc[name, 'change']:.3f}" for name in harmed)
        yield (
            "Harmed by unlearning: the loss on other text is above the original's: "
            f"{', '.join(rises)} nats per token. What such a model no longer knows may be the "
            "result of damage, and not of forgetting."
        )
    twin = figures.models.clean
    if twin is not None and utility.loc[twin.name, "change_low"] > HARM:
        yield (
            "The clean twin is worse than the original on other text too, by "
            f"{utility.loc[twin.name, 'change']:.3f} nats per token: it lacks more than the "
            "members, such as their format. See the forget ratio beyond non-members."
        )


def _equality_warnings(figures: UnlearningFigures) -> Iterator[str]:
    before = figures.screened.values[figures.models.original.name]
    for name in figures.unlearned_names:
        if (figures.screened.values[name] == before).all():
            yield f"{name} scores every chunk as the original does: they may be one model."


WIDTH = 9.0
DASHES = ("-", "--", ":", "-.")


def iter_charts(
    models: AuditedModels, score: Quantity, ratios: pd.DataFrame | None
) -> Iterator[InlineChart]:
    """Yields the charts of one method's scores.

    Args:
        models: the audited models.
        score: the scores that the screen compares.
        ratios: see `comparison.forget_ratio_table`; None or without a ratio: no chart of ratios.
    """
    yield _score_chart(models, score)
    if ratios is not None and len(estimated := _rows_with_ratio(ratios, score.name)):
        yield _ratio_chart(models, estimated)


def _score_chart(models: AuditedModels, score: Quantity) -> InlineChart:
    """Draws the distribution functions of the members' scores, one line per model."""
    is_shown = score.units.sides[True]
    unit_word = "members" if is_shown.any() else "chunks"
    is_shown = is_shown if is_shown.any() else np.ones(len(is_shown), bool)
    with page_figure(WIDTH, 3.6) as (figure, axes):
        for model in models:
            sorted_scores = np.sort(score.values[model.name][is_shown])
            shares = np.arange(1, len(sorted_scores) + 1) / len(sorted_scores)
            style = _line_style(models, model.name)
            axes.step(sorted_scores, shares, where="post", label=model.name, **style)
        axes.set_xlabel(f"score by {score.name}; higher: more like a member")
        axes.set_ylabel(f"share of the {unit_word}")
        figure.legend(loc="outside right upper")
        title = f"Scores of the {unit_word}"
        label = f"{title} by {score.name}, a line per model"
    caption = "The share of scores up to the value on the horizontal axis."
    if models.clean is not None:
        caption += (
            " A model that forgot lies on the clean twin's line. One that lies there need not have "
            "forgotten: the scores of non-members may have moved as far."
        )
    return InlineChart("scores", title, figure, label, caption)


def _line_style(models: AuditedModels, model_name: str) -> dict[str, Any]:
    if model_name == models.original.name:
        return {"color": MEMBER}
    if models.clean is not None and model_name == models.clean.name:
        return {"color": NONMEMBER}
    model_number = [model.name for model in models.unlearned].index(model_name)
    repetition = model_number // len(SERIES)  # the colours repeat with other dashes
    dashes = DASHES[(model_number + repetition) % len(DASHES)]
    return {"color": SERIES[model_number % len(SERIES)], "linestyle": dashes}


def _rows_with_ratio(ratios: pd.DataFrame, method: str) -> pd.DataFrame:
    """Returns the rows with a ratio, without those of other methods' scores."""
    return ratios[ratios["share"].notna() & ratios["method"].isin([method, ""])]


def _ratio_chart(models: AuditedModels, ratios: pd.DataFrame) -> InlineChart:
    """Draws the forget ratios with their intervals, one row per model and quantity."""
    rows = ratios.iloc[::-1]
    heights = np.arange(len(rows))
    axis_limits = min(-0.5, rows["share"].min() - 0.5), max(1.5, rows["share"].max() + 0.5)
    with page_figure(WIDTH, 1.2 + 0.28 * len(rows)) as (figure, axes):
        for y, (_, row) in zip(heights, rows.iterrows(), strict=True):
            colour = _line_style(models, row["unlearned"])["color"]
            interval_ends = np.clip(row[["share_low", "share_high"]].astype(float), *axis_limits)
            axes.plot(interval_ends, [y] * 2, color=colour)
            axes.plot([row["share"]], [y], "o", color=colour, markersize=4)
        for value, colour in ((0, MEMBER), (1, NONMEMBER)):
            axes.axvline(value, color=colour, linewidth=1.2)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        row_labels = rows["unlearned"] + ": " + rows["quantity"]
        axes.set_yticks(heights, row_labels)
        axes.set_xlabel("forget ratio, from the original (0) to the clean twin (1)")
        axes.set_xlim(axis_limits)
        axes.tick_params(axis="y", colors=INK)
        title = "How far each model went"
        label = f"{title}: forget ratios with intervals"
    caption = (
        "0, orange: as the original; 1, violet: as the clean twin. 95% intervals over texts; one "
        "that ends at the edge continues beyond it."
    )
    return InlineChart("way", title, figure, label, caption)
