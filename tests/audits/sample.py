"""A small audit that counts letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from contamination.audits.base import Audit, AuditStage, Prepared
from contamination.audits.findings import MEMBER, Chart, Findings, Table, drawn, svg
from contamination.core.config import at_least, limited, runtime
from contamination.core.hashing import file_digest


@dataclass(frozen=True)
class Letters(Audit):
    """Counts the letters of a file."""

    kind: ClassVar[str] = "letters"
    needed: ClassVar[Sequence[str]] = ("file",)

    file: str | None = runtime(None)
    times: int = limited(1, at_least(1))

    def prepare(self, stage: AuditStage) -> Prepared:
        path = Path(str(self.file))
        return Prepared("model", {"file": file_digest(path)}, lambda folder: self._find(path))

    def _find(self, path: Path) -> Findings:
        count = len(path.read_text()) * self.times
        rows = pd.DataFrame({"title": ["<b>a|b</b>"], "letters": [count]})
        lines = [["<b>a|b</b>", str(count)]]
        with drawn(4, 3) as (figure, axes):
            axes.hist([1, 2, 3], color=MEMBER, label="<letters> & more")
            axes.legend()
            chart = Chart("letters", "Letters <of it>", svg(figure, 'the "letters"'), "How many.")
        return Findings(
            title="Letters of <file>",
            conclusions=[f"There are **{count}** letters & <no> more."],
            warnings=["Few | letters."],
            tables=[Table("letters", "All letters", rows, ["title", "letters"], lines, "A note.")],
            charts=[chart],
            limits=["It can't read."],
            facts={"file <name>": "a & b"},
            counts={"letters": count},
        )
