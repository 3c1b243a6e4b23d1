"""How inflated is a score? Members' answers against those of clean twins, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import Range, ranged_field, runtime_field
from contamination.core.errors import ConfigError

REVISION = 2
"""Of what stored results mean."""
CONFIDENCE = Range(lambda level: 0.5 <= level < 1, "give one from 0.5 to below 1, such as 0.95.")
ITEMS_FILE = "items.parquet"


@dataclass(frozen=True)
class Inflation(Audit):
    """Direct effect and spillover of contamination on scores; see conf/audit/inflation.yaml."""

    kind: ClassVar[str] = "inflation"
    needed: ClassVar[Sequence[str]] = ("cells",)

    cells: Any = runtime_field(None)
    """A report's folder, or a list of cells, each {corpus: …, model: …, clean: …, contaminated: …}.
    Cells without copies (occurrences.count=0) are the clean twins of the others."""
    confidence: float = ranged_field(0.95, CONFIDENCE)
    """The confidence of the intervals."""
    choose_seed: int | None = None
    """The seed on whose cells candidates for blind spots are chosen; null: the lowest. The other
    seeds confirm them."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Opens the cells; their models answer the questions when the audit is conducted.

        Raises:
            UserError: a cell can't be used, or contaminated cells have no clean twin.
        """
        from contamination.audits.cells import named_apart, open_cells
        from contamination.audits.inflation import inputs
        from contamination.audits.inflation.findings import InflationFindings
        from contamination.audits.inflation.report import report

        cells = named_apart(open_cells("audit.cells", self.cells, members_in_finetuning=True))
        inputs.split_into_families("audit.cells", cells)
        seeds = sorted({cell.cell.seed for cell in cells})
        if self.choose_seed is not None and self.choose_seed not in seeds:
            seed_names = ", ".join(map(str, seeds))
            raise ConfigError(
                f"audit.choose_seed is {self.choose_seed}: no cell has this seed. Choose from "
                f"{seed_names}."
            )

        def conduct(folder: Path) -> AuditResult:
            groups = inputs.read_groups("audit.cells", stage, cells)
            inputs.items_table(groups).to_parquet(folder / ITEMS_FILE, index=False)
            findings = InflationFindings(groups, self.confidence, self.choose_seed)
            facts = {
                "contaminated cells": str(sum(len(group.cells) for group in groups)),
                "clean twins": str(sum(len(family.seeds) for family in findings.families)),
                "items": str(max(len(family.items) for family in findings.families)),
            }
            counts = {"cells": len(cells), "conditions": len(groups)}
            return AuditResult(report(findings, facts), counts, [ITEMS_FILE])

        settings = {"revision": REVISION, "detection": stage.detection.pass_settings}
        digests = {name: digest for cell in cells for name, digest in cell.digests.items()}
        return PreparedAudit(cells[0].cell.model, digests, conduct, settings)
