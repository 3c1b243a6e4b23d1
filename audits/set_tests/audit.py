"""Which tests tell that a model saw a set? All set tests on cells whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import PROPER_FRACTION, Range, at_least, ranged_field, runtime_field
from contamination.core.errors import DataError, near_names
from contamination.detection.config import METHODS_FOLDER

REVISION = 2
"""Of what stored results mean."""
SIZES = Range(
    lambda sizes: len({*sizes}) == len(sizes) and all(size >= 2 for size in sizes),
    "give numbers of examples, 2 or more, each once.",
)


@dataclass(frozen=True)
class SetTests(Audit):
    """All set tests on the cells of a sweep; see conf/audit/set_tests.yaml."""

    kind: ClassVar[str] = "set_tests"
    needed: ClassVar[Sequence[str]] = ("cells",)

    cells: Any = runtime_field(None)
    """A report's folder, or a list of cells, each {corpus: …, model: …, clean: …, contaminated: …}.
    What their corpora were given (versions, an order, backdoors) decides on the tests."""
    sizes: list[int] = ranged_field([20, 50, 100, 200], SIZES)
    """The numbers of examples of the parts that are tested beside whole sets."""
    draws: int = ranged_field(20, at_least(0))
    """How often the draw on which a test rests is made anew, for each set and size: the test
    without contamination."""
    alpha: float = ranged_field(0.05, PROPER_FRACTION)
    """The level of the tests."""
    item_level: float = ranged_field(0.1, PROPER_FRACTION)
    """The share of wrong ones that lists of single items may have."""
    version_method: str = "loss"
    """The method that scores the versions of an item."""
    context: bool = True
    """Whether the models are run for CoDeC, which takes two further passes."""
    blind: bool = True
    """Whether the texts of members and held-out examples are compared without a model."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Opens the cells; their texts are scored when the audit is conducted.

        Raises:
            UserError: a cell can't be used, or no test can be applied.
        """
        from contamination.audits.cells import named_apart, open_cells
        from contamination.audits.set_tests import inputs
        from contamination.audits.set_tests.findings import SetFindings, blind_p_values
        from contamination.audits.set_tests.outcomes import run_tests
        from contamination.audits.set_tests.procedures import FEWEST_ITEMS
        from contamination.audits.set_tests.report import report

        names = sorted(path.stem for path in METHODS_FOLDER.glob("*.yaml"))
        hint = near_names(self.version_method, names)
        self.require(self.version_method in names, "version_method", hint)
        cells = named_apart(open_cells("audit.cells", self.cells))

        def conduct(folder: Path) -> AuditResult:
            known_drops: dict[Any, Any] = {}
            options = self.version_method, self.context, None, known_drops
            sets = [scored for cell in cells for scored in inputs.read_sets(stage, cell, *options)]
            outcomes = run_tests(sets, self.sizes, self.draws, stage.seed)
            if outcomes.empty:
                raise DataError(
                    "audit.cells: no test can be applied to any set. Give cells with "
                    f"{FEWEST_ITEMS} or more members of a benchmark and as many held-out examples, "
                    "or versions of so many items."
                )
            blind_p = blind_p_values(sets, stage.seed) if self.blind else {}
            findings = SetFindings(sets, outcomes, blind_p, self.alpha, self.item_level, stage.seed)
            facts = {
                "cells": str(len(cells)),
                "sets": str(len(sets)),
                "draws": f"{self.draws} for each set and size",
                "versions scored by": self.version_method,
            }
            counts = {"cells": len(cells), "p_values": len(outcomes)}
            return AuditResult(report(findings, facts), counts)

        settings = {"revision": REVISION, "detection": stage.detection.pass_settings}
        return PreparedAudit(cells[0].cell.model, inputs.all_digests(cells), conduct, settings)
