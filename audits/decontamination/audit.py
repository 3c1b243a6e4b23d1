"""Does decontamination help? Rules judged by what remains in models that were trained again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import Range, ranged_field, runtime_field

REVISION = 3
"""Of what stored results mean."""
CONFIDENCE = Range(lambda level: 0.5 <= level < 1, "give one from 0.5 to below 1, such as 0.95.")


@dataclass(frozen=True)
class Decontamination(Audit):
    """Rules of decontamination × forms of leaks; see conf/audit/decontamination.yaml."""

    kind: ClassVar[str] = "decontamination"
    needed: ClassVar[Sequence[str]] = ("cells",)

    cells: Any = runtime_field(None)
    """A report's folder, or a list of cells, each {corpus: …, model: …, clean: …, contaminated: …}.
    They differ in leak, rewording, matcher and seed alone; each form of leak has cells with
    matcher=none and matcher=oracle."""
    method: str = "loss"
    """The method whose AUROC is reported."""
    confidence: float = ranged_field(0.95, CONFIDENCE)
    """The confidence of the intervals."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the cells' stored scores and the records of their corpora; no model is run.

        Raises:
            UserError: a cell can't be used, or no form has cells to compare with.
        """
        from contamination.audits.cells import open_cells
        from contamination.audits.decontamination.findings import find_all
        from contamination.audits.decontamination.inputs import read_study
        from contamination.audits.decontamination.report import report

        cells = open_cells("audit.cells", self.cells)
        study = read_study("audit.cells", cells, self.method)

        def conduct(folder: Path) -> AuditResult:
            findings = find_all(study, self.confidence)
            facts = {
                "cells": str(len(cells)),
                "models": f"{study.models} distinct: cells with equal corpora share one",
                "seeds": ", ".join(map(str, study.seeds)),
                "members": f"{study.members_per_cell:g} per cell, of {study.examples} examples",
                "method": self.method,
            }
            counts = {"cells": len(cells), "models": study.models}
            return AuditResult(report(findings, study, facts, self.confidence), counts)

        return PreparedAudit(cells[0].cell.model, study.digests, conduct, {"revision": REVISION})
