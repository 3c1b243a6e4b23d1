"""What the audit says: conclusions, warnings, tables, and what it can't prove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from contamination.audits.findings import Findings, Table
from contamination.audits.unlearning import tables
from contamination.audits.unlearning.charts import charts
from contamination.audits.unlearning.inputs import Models
from contamination.audits.unlearning.quantities import Quantity
from contamination.audits.unlearning.tables import interval_words, number

if TYPE_CHECKING:
    from contamination.audits.unlearning.audit import Unlearning

LIMITS = (
    "That a text is forgotten. The audit finds what is still there; what it does not find, another "
    "method, prompt or threshold may.",
    "That the screen is right. A chunk that was never known is scored alike before and after, as "
    "one that was kept: the ratio can't tell them apart.",
    "That all twins are alike. The clean twin is one training of one seed; the intervals resample "
    "texts, not trainings.",
)
NO_TWIN = (
    "How far the unlearned model is from one that was never trained on the texts: there is no "
    "clean twin (audit.clean)."
)
NO_LABELS = (
    "Who was a member: the texts have no labels of both kinds, so no rate of the screen is known, "
    "and there is no control."
)
HARM = 0.05  # nats a token: a rise of the loss that is said in red


@dataclass(frozen=True)
class Found:
    """All figures.

    Attributes:
        models: the audited models.
        main: the scores that the screen reads.
        scores: all scores.
        screens: see `comparison.screens`.
        ways: see `comparison.ways`; None: no twin, or no members.
        membership: see `comparison.membership`; None: no labels of both kinds.
        completions: see `comparison.groups`; empty: none were drawn.
        answers: the same; empty: nothing was asked.
        utility: see `comparison.utility`; None: there is no text for it.
        chunks: a row each.
        compared: how completions were compared beside ROUGE-L.
        audit: what the audit was told.
    """

    models: Models
    main: Quantity
    scores: Sequence[Quantity]
    screens: pd.DataFrame
    ways: pd.DataFrame | None
    membership: pd.DataFrame | None
    completions: pd.DataFrame
    answers: pd.DataFrame
    utility: pd.DataFrame | None
    chunks: pd.DataFrame
    compared: Sequence[str]
    audit: Unlearning

    @property
    def names(self) -> list[str]:
        """The unlearned models'."""
        return [model.name for model in self.models.unlearned]


def findings(found: Found, files: Sequence[str]) -> Findings:
    """The findings, with the names of the files that are written already."""
    audit, labelled = found.audit, found.membership is not None
    limits = [*LIMITS]
    limits += [] if found.models.clean else [NO_TWIN]
    limits += [] if labelled else [NO_LABELS]
    members = found.chunks["member"]
    return Findings(
        title=f"What is left after unlearning: {', '.join(found.names)}",
        conclusions=[f"**{name}**. {' '.join(_conclusions(found, name))}" for name in found.names],
        warnings=[*_warnings(found)],
        tables=[*_tables(found)],
        charts=[*charts(found.models, found.main, found.ways)],
        limits=limits,
        facts={
            **{model.name: model.source.path for model in found.models},
            "texts": str(audit.texts),
            "chunks": f"{len(found.chunks)}, of {found.chunks['text_id'].nunique()} texts",
            "members": f"{int(members.fillna(False).sum())} chunks",
            "non-members": f"{int((~members.fillna(True)).sum())} chunks",
            "screen": f"{audit.screen}, ratio {audit.ratio:g}",
            "completions": f"{audit.completions} a chunk, compared by "
            + ", ".join(["ROUGE-L", *found.compared]),
        },
        counts={"chunks": len(found.chunks), "unlearned": len(found.names)},
        files=files,
    )


def _tables(found: Found) -> Iterator[Table]:
    if found.ways is not None:
        yield tables.ways(found.ways)
    if found.membership is not None:
        yield tables.membership(found.membership)
    yield tables.screens(found.screens, found.audit.screen, found.audit.ratio)
    if not found.completions.empty:
        yield tables.groups(found.completions, "completions", found.audit.completions)
    if not found.answers.empty:
        yield tables.groups(found.answers, "answers", 0)
    if found.utility is not None:
        yield tables.utility(found.utility, of_validation=found.audit.validation is not None)


def _conclusions(found: Found, name: str) -> Iterator[str]:
    """What may be said of one unlearned model."""
    if found.membership is not None:
        yield _auroc(found, name)
    if found.ways is not None:
        yield _way(found, name)
    yield _screen(found, name)


def _auroc(found: Found, name: str) -> str:
    assert found.membership is not None
    own = found.membership[found.membership["method"] == found.main.name].set_index("model")
    before, after = own.loc[found.models.original.name], own.loc[name]
    twin = f" (clean twin {number(own.loc['clean', 'auroc'])})" if found.models.clean else ""
    said = (
        f"Members against non-members by {found.main.name}: AUROC "
        f"{number(before['auroc'])} before, {interval_words(after, 'auroc')} after{twin}."
    )
    if after["auroc_high"] < 0.5:
        return (
            f"{said} **Forgotten too well**: its members score below non-members, which itself "
            "shows who was a member."
        )
    if after["auroc_low"] > 0.5:
        return f"{said} Its members can still be told from non-members."
    return f"{said} This score does not tell its members from non-members."


def _way(found: Found, name: str) -> str:
    assert found.ways is not None
    rows = found.ways[found.ways["unlearned"] == name].set_index("quantity")
    if found.main.name not in rows.index:
        return "No member is left to compare with the clean twin."
    row = rows.loc[found.main.name]
    if row["share_why"]:
        return (
            "How far it went can't be told: the original and the clean twin score "
            f"the members alike by {found.main.name}, so there was nothing to forget."
        )
    said = (
        f"The members' {found.main.name} score went {interval_words(row, 'share')} of "
        "the way from the original to the clean twin (0: unchanged, 1: as if never trained on)"
    )
    if "beyond" in row and pd.notna(row["beyond"]):
        said += f"; beyond what non-members moved, {interval_words(row, 'beyond')}"
    return f"{said}."


def _screen(found: Found, name: str) -> str:
    row = found.screens.set_index("unlearned").loc[name]
    said = (
        f"The ratio screen finds {int(row['suspicious'])} of {int(row['chunks'])} chunks suspicious"
    )
    if pd.isna(row["precision"]):
        return f"{said}." if found.membership is None else f"{said}: none, so it has no precision."
    return (
        f"{said}: a share of {interval_words(row, 'precision')} of them are members (all chunks: "
        f"{number(row['members'])}), and {interval_words(row, 'recall')} of the members are found "
        f"(of the non-members {number(row['false_alarms'])})."
    )


def _warnings(found: Found) -> Iterator[str]:
    yield from _labels(found)
    yield from _same(found)
    if left_out := len(found.chunks) - len(found.main.units.table):
        yield f"{left_out} of {len(found.chunks)} chunks are too short or blank: not ranked."
    if found.utility is not None:
        yield from _harm(found, found.utility.set_index("model"))


def _harm(found: Found, utility: pd.DataFrame) -> Iterator[str]:
    """Models of a higher loss on other text than the original."""
    harmed = [name for name in found.names if utility.loc[name, "change_low"] > HARM]
    if harmed:
        rises = (f"{name} by {utility.loc[name, 'change']:.3f}" for name in harmed)
        yield (
            "Harmed by unlearning: the loss on other text is above the original's: "
            f"{', '.join(rises)} nats a token. What such a model no longer says may be damage, and "
            "not forgetting."
        )
    twin = found.models.clean
    if twin is not None and utility.loc[twin.name, "change_low"] > HARM:
        yield (
            "The clean twin is worse than the original on other text too, by "
            f"{utility.loc[twin.name, 'change']:.3f} nats a token: it lacks more than the members, "
            "such as their format. Read what was travelled beyond non-members."
        )


def _labels(found: Found) -> Iterator[str]:
    if found.membership is None:
        yield (
            "The texts have no labels of both kinds (1: to be forgotten, 0: never trained on): the "
            "tables show how chunks changed, and not whether members did."
        )


def _same(found: Found) -> Iterator[str]:
    before = found.main.values[found.models.original.name]
    for name in found.names:
        if (found.main.values[name] == before).all():
            yield f"{name} scores every chunk as the original does: they may be one model."
