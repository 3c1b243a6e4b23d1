"""Which tests tell that a model saw a set? All set tests on cells whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.audits.benchmark.blind import cached_blind_tests
from contamination.audits.cells import named_apart, open_cells
from contamination.audits.set_tests.findings import SetFindings
from contamination.audits.set_tests.inputs import all_digests, read_sets
from contamination.audits.set_tests.outcomes import run_tests
from contamination.audits.set_tests.procedures import FEWEST_ITEMS, RELABELLED
from contamination.audits.set_tests.report import report
from contamination.audits.set_tests.sets import ScoredExamples, ScoredSet, SetName
from contamination.core.config import PROPER_FRACTION, Range, at_least, ranged_field, runtime_field
from contamination.core.errors import DataError, near_names
from contamination.core.statistics.bootstrap import Scores
from contamination.data.examples import make_text
from contamination.data.texts import Texts
from contamination.detection.config import METHODS_FOLDER

REVISION = 1
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
        names = sorted(path.stem for path in METHODS_FOLDER.glob("*.yaml"))
        hint = near_names(self.version_method, names)
        self.require(self.version_method in names, "version_method", hint)
        cells = named_apart(open_cells("audit.cells", self.cells))

        def conduct(folder: Path) -> AuditResult:
            known_drops: dict[Any, Scores] = {}
            options = self.version_method, self.context, None, known_drops
            sets = [scored for cell in cells for scored in read_sets(stage, cell, *options)]
            outcomes = run_tests(sets, self.sizes, self.draws, stage.seed)
            if outcomes.empty:
                raise DataError(
                    "audit.cells: no test can be applied to any set. Give cells with "
                    f"{FEWEST_ITEMS} or more members of a benchmark and as many held-out examples, "
                    "or versions of so many items."
                )
            blind_p = self._blind_p_values(sets, stage.seed)
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
        return PreparedAudit(cells[0].cell.model, all_digests(cells), conduct, settings)

    def _blind_p_values(self, sets: Sequence[ScoredSet], seed: int) -> dict[SetName, float]:
        """Returns the blind p-value of each set that has held-out examples, by its name."""
        if not self.blind:
            return {}
        tests = cached_blind_tests(seed)
        p_values = {
            s.name: tests(labelled_texts(s.examples)).p_value
            for s in sets
            if s.examples is not None and RELABELLED.units(s)
        }
        return {name: p for name, p in p_values.items() if p is not None}


def labelled_texts(examples: ScoredExamples) -> Texts:
    """Returns the texts, labelled, as `audits.benchmark.blind` compares them.

    The ids are of the texts and their labels, by which results are kept.
    """
    rows = enumerate(zip(examples.texts, examples.is_member.tolist(), strict=True))
    return Texts.of(
        replace(text, example_id=f"{number}/{text.label}/{text.sha256}")
        for number, text in (
            (number, make_text("", text, is_member, "")) for number, (text, is_member) in rows
        )
    )
