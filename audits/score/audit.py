"""How inflated is a score? Corrected scores of a benchmark by examples of known membership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import PROPER_FRACTION, Range, at_least, ranged_field, runtime_field
from contamination.core.errors import near_names, require

REVISION = 2
"""Of what stored results mean."""
NAMES = Range(lambda names: len({*names}) == len(names), "give columns, each once.")
CONFIDENCE = Range(lambda level: 0.5 <= level < 1, "give one from 0.5 to below 1, such as 0.95.")


@dataclass(frozen=True)
class Score(Audit):
    """Corrected scores of a benchmark; see conf/audit/score.yaml."""

    kind: ClassVar[str] = "score"
    needed: ClassVar[Sequence[str]] = ("items",)

    items: Any = runtime_field(None)
    """A file with one row per item: correct (0, 1 or a probability), score (higher means member)
    and spiked (member, non-member or unknown); perhaps predicted, cluster and id."""
    columns: dict[str, str] = field(default_factory=dict)
    """The columns of correct, score, spiked, predicted, cluster or id that have other names:
    {correct: acc}."""
    references: list[str] = ranged_field([], NAMES)
    """The columns with the correctness of reference models that are not contaminated."""
    scores: Any = runtime_field(None)
    """A folder of scores, which are joined by the items' ids; null: the column score."""
    method: str = "loss"
    """The method whose scores are read from `scores`."""
    prevalence: float | None = ranged_field(None, PROPER_FRACTION)
    """The share of members among the items of unknown membership; null: it is estimated."""
    chance: float | None = ranged_field(None, PROPER_FRACTION)
    """The accuracy of guessing, such as 0.25 with four options; null: unknown."""
    draws: int = ranged_field(1000, at_least(100))
    """The draws of the bootstrap."""
    confidence: float = ranged_field(0.95, CONFIDENCE)
    """The confidence of the intervals."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the table and the scores.

        Raises:
            UserError: they can't be used.
        """
        from contamination.audits.score import inputs
        from contamination.audits.score.estimation import ROLES, estimate_scores
        from contamination.audits.score.findings import summarize
        from contamination.audits.score.report import report
        from contamination.core.artifacts import path_part_of
        from contamination.core.hashing import file_digest
        from contamination.detection.scores import open_scores

        for name in self.columns:
            hint = near_names(name, inputs.COLUMNS)
            require(name in inputs.COLUMNS, "audit.columns", name, hint)
        file = inputs.find_table(self.items)
        fields = inputs.TableFields(self.columns, self.references, self.scores, self.method)
        items = inputs.read_items(file, fields)
        digests = {"items": file_digest(file)}
        if self.scores is not None:
            digests["scores"] = open_scores(self.scores).artifact.digest

        def conduct(folder: Path) -> AuditResult:
            estimates = estimate_scores(items, self.draws, stage.seed, self.prevalence)
            findings = summarize(items, estimates, self.confidence, self.chance)
            facts = {
                "items": str(file),
                "membership": "the column score" if self.scores is None else self.method,
                **{f"{role} items": str(items.count(role)) for role in ROLES},
                "share of members": f"{estimates.prevalence:.2f} "
                + ("(estimated)" if self.prevalence is None else "(given)"),
                "draws": str(self.draws),
            }
            counts = {name: float(value) for name, value in estimates.values.items()}
            return AuditResult(report(findings, facts), counts)

        return PreparedAudit(path_part_of(file.stem), digests, conduct, {"revision": REVISION})
