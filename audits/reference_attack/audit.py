"""How much more could be known? K models that differ in their members alone judge one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.audits.one_run_bound.audit import DELTA
from contamination.audits.reference_attack.attacks import ATTACKS, BAVARIA, usable_attacks
from contamination.core.config import Range, one_of, ranged_field, runtime_field
from contamination.core.errors import ConfigError

REVISION = 1
"""Of what stored results mean."""
AUROC = Range(lambda auroc: 0.5 < auroc < 1, "give an AUROC above 0.5 and below 1, such as 0.55.")
RATES = Range(
    lambda rates: len({*rates}) == len(rates) and all(0 < rate < 1 for rate in rates),
    "give rates above 0 and below 1, each once.",
)


@dataclass(frozen=True)
class ReferenceAttack(Audit):
    """The strong reference attack on K cells; see conf/audit/reference_attack.yaml."""

    kind: ClassVar[str] = "reference_attack"
    needed: ClassVar[Sequence[str]] = ("cells",)

    cells: Any = runtime_field(None)
    """A report's folder, or a list of cells, each {corpus: …, model: …, clean: …, contaminated: …}.
    The cells of a condition differ in their seeds alone."""
    reference: str = ranged_field(BAVARIA, one_of(ATTACKS))
    """The attack with which the others are compared, named in advance: bavaria, multivariate_lira,
    lira_online, lira_offline and their _pooled and _shrunk variants, rmia, single_reference."""
    share_above: float = ranged_field(0.55, AUROC)
    """Shares of the reference's advantage are shown only if its AUROC is surely at least this."""
    fpr: list[float] = ranged_field([0.001, 0.01], RATES)
    """False-positive rates at which true-positive rates are reported, if there are enough
    non-members."""
    delta: float = ranged_field(1e-5, DELTA)
    """The δ of the one-run bounds."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the cells' stored scores and passes; no model is run.

        Raises:
            UserError: a cell can't be used, or the cells are no references for one another.
        """
        from contamination.audits.cells import named_apart, open_cells
        from contamination.audits.reference_attack.findings import ConditionFindings
        from contamination.audits.reference_attack.inputs import read_conditions
        from contamination.audits.reference_attack.report import report
        from contamination.injection.membership import check_membership

        cells = named_apart(open_cells("audit.cells", self.cells))
        conditions = read_conditions("audit.cells", cells)
        for condition in conditions:
            if self.reference not in usable_attacks(condition.references):
                raise ConfigError(
                    f"audit.reference is {self.reference!r}: it needs the cells' stored passes, "
                    f"which {condition.name} lacks. Choose another, or score the cells again."
                )
            for cell in condition.cells if condition.has_coins else ():
                check_membership("audit.cells", cell.corpus)

        def conduct(folder: Path) -> AuditResult:
            findings = [
                ConditionFindings(
                    condition, self.reference, self.share_above, tuple(self.fpr), self.delta
                )
                for condition in conditions
            ]
            facts = {
                "cells": str(len(cells)),
                "examples": str(len(conditions[0].examples)),
                "reference": f"{self.reference}, named in advance",
            }
            return AuditResult(report(findings, facts), {"cells": len(cells)})

        has_tokens = all(condition.references.tokens for condition in conditions)
        return PreparedAudit(
            conditions[0].cells[0].cell.model,
            {name: digest for cell in cells for name, digest in cell.digests.items()},
            conduct,
            {"revision": REVISION, "tokens": has_tokens},
        )
