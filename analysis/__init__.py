"""Scores into results: metrics with intervals, controls, tables, charts and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contamination.core.process_startup import lazy_exports

if TYPE_CHECKING:
    from contamination.analysis.report_folder import Report, open_report

__all__ = ["Report", "analyse", "open_report"]
__getattr__ = lazy_exports(__name__, {"Report": "report_folder", "open_report": "report_folder"})


def analyse(*words: str) -> Report:
    """Writes a report on some cells, or finds it written: `python -m analysis` with these words.

    Args:
        *words: overrides of conf/analysis.yaml, such as `"cells=[{corpus: …, model: …, …}]"`.

    Raises:
        UserError: as the command does.
    """
    from contamination.analysis.config import AnalysisStage
    from contamination.analysis.report_folder import open_report
    from contamination.analysis.run import run
    from contamination.core.cli import run_stage

    return open_report(run_stage("analysis", words, AnalysisStage, run))
