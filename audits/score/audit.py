"""How inflated is a score? Corrected scores of a benchmark by examples of known membership."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import (
    POSITIVE,
    PROPER_FRACTION,
    Range,
    at_least,
    ranged_field,
    runtime_field,
)
from contamination.core.errors import near_names, require

REVISION = 3
"""Of what stored results mean."""
NAMES = Range(lambda names: len({*names}) == len(names), "give columns, each once.")
CONFIDENCE = Range(lambda level: 0.5 <= level < 1, "give one from 0.5 to below 1, such as 0.95.")
NUMBERS = Range(
    lambda numbers: (
        len(numbers) > 0
        and len({*numbers}) == len(numbers)
        and all(isinstance(n, int) and n >= 2 for n in numbers)
    ),
    "give whole numbers of 2 or more, each once.",
)
ERRORS_FILE = "errors_by_cell.parquet"
OF_TABLE = ("columns", "references", "scores", "chance", "draws")
"""The fields that belong to `items`."""
OF_CELLS = ("spiked", "share", "repeats", "tolerance")
"""The fields that belong to `cells`."""


@dataclass(frozen=True)
class Score(Audit):
    """Corrected scores of a benchmark, or their errors; see conf/audit/score.yaml."""

    kind: ClassVar[str] = "score"

    items: Any = runtime_field(None)
    """A file with one row per item: correct (0, 1 or a probability), score (higher means member)
    and spiked (member, non-member or unknown); perhaps predicted, cluster and id."""
    cells: Any = runtime_field(None)
    """In place of `items`, to measure the errors of corrected scores: a report's folder, or a list
    of cells, each {corpus: …, model: …, clean: …, contaminated: …}. Cells without copies
    (occurrences.count=0) are the clean twins of the others, and have the truth."""
    columns: dict[str, str] = field(default_factory=dict)
    """The columns of correct, score, spiked, predicted, cluster or id that have other names:
    {correct: acc}."""
    references: list[str] = ranged_field([], NAMES)
    """The columns with the correctness of reference models that are not contaminated."""
    scores: Any = runtime_field(None)
    """A folder of scores, which are joined by the items' ids; null: the column score."""
    method: str = "loss"
    """The method whose scores are read from `scores`, or from the cells."""
    prevalence: float | None = ranged_field(None, PROPER_FRACTION)
    """The share of members among the items of unknown membership that the corrections are told;
    null: they estimate it."""
    chance: float | None = ranged_field(None, PROPER_FRACTION)
    """The accuracy of guessing, such as 0.25 with four options; null: unknown."""
    draws: int = ranged_field(1000, at_least(100))
    """The draws of the bootstrap."""
    spiked: list[int] = ranged_field([2, 5, 10, 20, 40], NUMBERS)
    """With `cells`: the numbers of spiked members, and of as many spiked non-members, of each
    benchmark. Those that a benchmark does not allow are left out."""
    share: float = ranged_field(0.3, PROPER_FRACTION)
    """With `cells`: the share of members in the benchmark that is corrected."""
    repeats: int = ranged_field(200, at_least(10))
    """With `cells`: how often spiked examples and a benchmark are drawn, for each cell and
    benchmark."""
    tolerance: float = ranged_field(1.0, POSITIVE)
    """With `cells`: by how many points the RMSE may be above that with the most spiked examples,
    where fewer are said to suffice."""
    confidence: float = ranged_field(0.95, CONFIDENCE)
    """The confidence of the intervals."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give one of audit.items (a table of yours) and audit.cells (a report's folder)."
        self.require(self.items is not None or self.cells is not None, "items", remedy)
        self.require(self.items is None or self.cells is None, "items", remedy)
        others, chosen = (OF_CELLS, "items") if self.cells is None else (OF_TABLE, "cells")
        for name in others:
            remedy = f"leave it out, because it has no meaning with audit.{chosen}."
            self.require(getattr(self, name) == _default(name), name, remedy)

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the table and the scores, or opens the cells.

        The cells' models answer the questions when the audit is conducted.

        Raises:
            UserError: they can't be used.
        """
        return self._prepare_table(stage) if self.cells is None else self._prepare_cells(stage)

    def _prepare_table(self, stage: AuditStage) -> PreparedAudit:
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
        table_fields = inputs.TableFields(self.columns, self.references, self.scores, self.method)
        items = inputs.read_items(file, table_fields)
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

    def _prepare_cells(self, stage: AuditStage) -> PreparedAudit:
        from contamination.audits.cells import named_apart, open_cells
        from contamination.audits.inflation.inputs import read_groups, split_into_families
        from contamination.audits.score.testbed.cases import cells_without_twin, read_cases
        from contamination.audits.score.testbed.findings import Spiking, measure_errors
        from contamination.audits.score.testbed.report import report

        cells = named_apart(open_cells("audit.cells", self.cells))
        split_into_families("audit.cells", cells)
        for cell in cells:
            cell.scores("audit.method", self.method)

        def conduct(folder: Path) -> AuditResult:
            groups = read_groups("audit.cells", stage, cells)
            cases = read_cases("audit.method", groups, self.method)
            spiking = Spiking(self.spiked, self.share, self.repeats, self.prevalence, stage.seed)
            findings = measure_errors(cases, spiking, self.tolerance, self.confidence)
            findings.by_cell.to_parquet(folder / ERRORS_FILE, index=False)
            warnings = [
                f"Left out: {name}, because its seed has no clean twin."
                for name in cells_without_twin(groups)
            ]
            if all(case.references is None for case in cases):
                warnings.append(
                    "**One clean twin only**: there are no reference models, so imputation, the "
                    "combined score and ConStat are left out. Add seeds to the sweep."
                )
            facts = {
                "contaminated cells": str(sum(len(group.cells) for group in groups)),
                "clean twins": str(
                    len({cell.name for group in groups for cell in group.family.cells})
                ),
                "membership": self.method,
                "share of members": f"{self.share:g} in the benchmarks; the corrections "
                + ("estimate it" if self.prevalence is None else f"are told {self.prevalence:g}"),
                "repetitions": f"{self.repeats} for each cell and benchmark",
                "benchmarks": "corrected one by one, each with spiked examples of its own",
            }
            counts = {"cells": len(cells), "conditions": len(groups)}
            return AuditResult(report(findings, facts, warnings), counts, [ERRORS_FILE])

        settings = {"revision": REVISION, "detection": stage.detection.pass_settings}
        digests = {name: digest for cell in cells for name, digest in cell.digests.items()}
        return PreparedAudit(cells[0].cell.model, digests, conduct, settings)


def _default(name: str) -> Any:
    (declared,) = (entry for entry in fields(Score) if entry.name == name)
    return declared.default if declared.default_factory is MISSING else declared.default_factory()
