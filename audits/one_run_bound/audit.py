"""How private was this training? A lower bound on ε from one cell with independent coins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import Range, one_of, ranged_field, runtime_field
from contamination.core.errors import require

if TYPE_CHECKING:
    import numpy as np

    from contamination.audits.one_run_bound.guesses import AttackScores, OneRunBound

IN_ADVANCE, ON_HALF = "in_advance", "on_half"
SHARES = Range(
    lambda shares: (
        bool(shares) and len({*shares}) == len(shares) and all(0 < s <= 1 for s in shares)
    ),
    "give shares above 0 and at most 1, each once.",
)
NAMES = Range(lambda names: bool(names) and len({*names}) == len(names), "give names, each once.")
DELTA = Range(lambda delta: 0 <= delta < 1, "give 0 or a number below 1.")
CONFIDENCE = Range(lambda level: 0.5 <= level < 1, "give one from 0.5 to below 1, such as 0.95.")


@dataclass(frozen=True)
class OneRun(Audit):
    """A lower bound on ε from one training run; see conf/audit/one_run_bound.yaml."""

    kind: ClassVar[str] = "one_run_bound"
    needed: ClassVar[Sequence[str]] = ("cells",)

    cells: Any = runtime_field(None)
    """A report's folder, or a list of one cell: {corpus: …, model: …, clean: …, contaminated: …}.
    Its corpus has injection.membership=bernoulli."""
    cell: str | None = runtime_field(None)
    """The cell's name, if there are several."""
    attacks: list[str] = ranged_field(["loss"], NAMES)
    """The methods whose scores are guessed by, named before the result is known. With several in
    advance, the level is divided among them."""
    shares: list[float] = ranged_field([0.25], SHARES)
    """The shares of the examples that are guessed, half of them members; several are corrected for,
    too."""
    choose: str = ranged_field(IN_ADVANCE, one_of((IN_ADVANCE, ON_HALF)))
    """in_advance: all attacks and shares count, at a corrected level. on_half: the best attack and
    share are chosen on one half of the examples and judged by the other."""
    delta: float = ranged_field(1e-5, DELTA)
    """The δ of the (ε, δ) that is refuted; smaller than 1 / examples."""
    confidence: float = ranged_field(0.95, CONFIDENCE)
    """The confidence of the bound."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the cell, and checks its coins against seed and ledger.

        Raises:
            UserError: the cell can't be used, or has no independent coins.
        """
        from contamination.audits.cells import choose_cell, named_apart, open_cells
        from contamination.audits.one_run_bound.guesses import AttackScores
        from contamination.audits.one_run_bound.report import group_of, report
        from contamination.injection.membership import check_membership

        cells = named_apart(open_cells("audit.cells", self.cells))
        cell = choose_cell("audit.cell", cells, self.cell)
        check_membership("audit.cells", cell.corpus)
        examples = cell.cell.examples
        fits = self.delta < 1 / max(1, len(examples))
        remedy = f"with {len(examples)} examples give less than {1 / max(1, len(examples)):.2g}."
        require(fits, "audit.delta", self.delta, remedy)
        benchmarks = examples["benchmark"].to_numpy(str)
        scores = {
            name: AttackScores(name, cell.scores("audit.attacks", name), benchmarks)
            for name in self.attacks
        }

        def conduct(folder: Path) -> AuditResult:
            member = examples["member"].to_numpy(bool)
            lower_bound = self._bound(scores, member, stage.seed)
            rules = len(self.attacks) * len(self.shares) if self.choose == IN_ADVANCE else 1
            facts = {"cell": cell.name, "model": cell.paths.model, "corpus": cell.paths.corpus}
            content = report(lower_bound, group_of(cell), rules, self.choose == ON_HALF, facts)
            names = ("epsilon", "guesses", "correct")
            counts = {name: getattr(lower_bound, name) for name in names}
            return AuditResult(content, counts)

        return PreparedAudit(cell.cell.model, cell.digests, conduct)

    def _bound(
        self, scores: dict[str, AttackScores], member: np.ndarray[Any, Any], seed: int
    ) -> OneRunBound:
        from contamination.audits.one_run_bound.guesses import (
            GuessRule,
            bound,
            bound_of_several,
            choose_on_half,
        )

        level = self.delta, self.confidence
        if self.choose == ON_HALF:
            rule = choose_on_half([*scores.values()], member, *level, seed, self.shares)
            return bound(rule, scores[rule.attack], member, *level)
        rules = [GuessRule(name, share) for name in self.attacks for share in self.shares]
        return bound_of_several(rules, scores, member, *level)
