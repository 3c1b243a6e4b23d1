"""A small audit that counts letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import at_least, ranged_field, runtime_field
from contamination.core.hashing import file_digest
from contamination.core.report.charts import MEMBER, InlineChart, page_figure
from contamination.core.report.document import ReportContent
from contamination.core.report.tables import Table


@dataclass(frozen=True)
class Letters(Audit):
    """Counts the letters of a file."""

    kind: ClassVar[str] = "letters"
    needed: ClassVar[Sequence[str]] = ("file",)

    file: str | None = runtime_field(None)
    times: int = ranged_field(1, at_least(1))

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        path = Path(str(self.file))
        return PreparedAudit("model", {"file": file_digest(path)}, lambda folder: self._count(path))

    def _count(self, path: Path) -> AuditResult:
        count = len(path.read_text()) * self.times
        rows = pd.DataFrame({"title": ["<b>a|b</b>"], "letters": [count]})
        lines = [["<b>a|b</b>", str(count)]]
        with page_figure(4, 3) as (figure, axes):
            axes.hist([1, 2, 3], color=MEMBER, label="<letters> & more")
            axes.legend()
            chart = InlineChart("letters", "Letters <of it>", figure, 'the "letters"', "How many.")
        content = ReportContent(
            title="Letters of <file>",
            conclusions=[f"There are **{count}** letters & <no> more."],
            warnings=["Few | letters."],
            tables=[
                Table("letters", "All letters", ["title", "letters"], lines, rows, note="A note.")
            ],
            charts=[chart],
            limits=["It can't read."],
            facts={"file <name>": "a & b"},
        )
        return AuditResult(content, {"letters": count})
