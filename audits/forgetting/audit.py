"""How fast are members forgotten? Cells whose members were seen early, scored along the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import Range, at_least, ranged_field, runtime_field

REVISION = 4
"""Of what stored results mean."""
TASK_NAMES = ("accuracy", "extraction")
METHODS = Range(
    lambda names: bool(names) and len({*names}) == len(names),
    "name methods, each once, such as [loss, min_k].",
)
TASKS = Range(
    lambda names: {*names} <= {*TASK_NAMES} and len({*names}) == len(names),
    f"choose from {', '.join(TASK_NAMES)}, each once, or give [].",
)


@dataclass(frozen=True)
class Forgetting(Audit):
    """Forgetting in cells with exports; see conf/audit/forgetting.yaml."""

    kind: ClassVar[str] = "forgetting"
    needed: ClassVar[Sequence[str]] = ("cells",)

    cells: Any = runtime_field(None)
    """The folder of a report, a list of such folders, or a list of cells, each {corpus: …, model:
    …, clean: …, contaminated: …, exports: […]}. Their models were exported after the last member
    was seen."""
    methods: list[str] = ranged_field(["min_k", "loss"], METHODS)
    """The methods whose d′ is followed. The conclusions are about the first, named in advance."""
    tasks: list[str] = ranged_field([*TASK_NAMES], TASKS)
    """What else is measured with each model: accuracy, extraction. It runs the models."""
    extraction_tokens: int = ranged_field(10, at_least(1))
    """How many last tokens of an example are to be returned."""
    extraction_prefix: int = ranged_field(25, at_least(1))
    """The number of tokens before them in the prompt."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the cells and their scores.

        Raises:
            UserError: a cell can't be used, or has too few scored exports.
        """
        from contamination.audits.cells import named_apart, open_cells
        from contamination.audits.forgetting import curves, effects
        from contamination.audits.forgetting.inputs import read_cells
        from contamination.audits.forgetting.report import FEWEST_SEEDS, Findings, report
        from contamination.audits.forgetting.tasks import tasks_table
        from contamination.core.table_files import write_csv
        from contamination.detection.tasks.config import ExtractionConfig

        cells = read_cells("audit.cells", named_apart(open_cells("audit.cells", self.cells)))
        means = curves.means_table(cells, self.methods)

        def conduct(folder: Path) -> AuditResult:
            points = curves.points_table(cells, self.methods)
            fits = curves.fits_table(points)
            detectable = curves.detectable_fits(fits, means)
            half_lives = curves.half_life_table(detectable)
            factors = effects.factor_table(cells)
            found_effects, problems = effects.effects_table(detectable, factors)
            extraction = ExtractionConfig(
                tokens=self.extraction_tokens, prefix_tokens=[self.extraction_prefix]
            )
            tasks = tasks_table(stage, cells, self.tasks, extraction)
            seeds = min(map(len, curves.by_condition(cells).values()))
            few = (
                f"A condition has {seeds} seed{'s' * (seeds > 1)}. With fewer than {FEWEST_SEEDS} "
                "a half-life's interval is missing or very wide.",
            )
            facts = {
                "cells": str(len(cells)),
                "method": f"{self.methods[0]}, named in advance",
                "scored models left out": (
                    f"{sum(cell.steps_before for cell in cells)}, from before the last exposure"
                ),
            }
            findings = Findings(
                self.methods[0], points, means, fits, half_lives, found_effects, factors, tasks,
                (
                    *problems, *(few if seeds < FEWEST_SEEDS else ()),
                    *curves.limit_warnings(detectable),
                ),
                effects.largest_correlation(factors), facts,
            )  # fmt: skip
            further = {"points.csv": points, "fits.csv": fits, "factors.csv": factors}
            for name, table in further.items():
                write_csv(folder / name, table)
            return AuditResult(report(findings), {"cells": len(cells)}, [*further])

        inputs = {name: digest for cell in cells for name, digest in cell.cell.digests.items()}
        for cell in cells:
            for scored in cell.steps:
                inputs[f"{cell.cell.name}/step {scored.step}"] = scored.digest
        return PreparedAudit(cells[0].cell.cell.model, inputs, conduct, {"revision": REVISION})
