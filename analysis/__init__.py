"""Scores into results: metrics with intervals, controls, tables, charts and a report."""

import core.early  # noqa: F401 (signals are answered from here on)
from analysis.folder import Report, open_report

__all__ = ["Report", "analyse", "open_report"]


def analyse(*words: str) -> Report:
    """Write a report on some cells, or find it written: `python -m analysis` with these words.

    Args:
        *words: overrides of conf/analysis.yaml, such as `"cells=[{corpus: …, model: …, …}]"`.

    Raises:
        UserError: as the command does.
    """
    from analysis.config import AnalysisStage
    from analysis.run import run
    from core.compose import made

    return open_report(made("analysis", words, AnalysisStage, run))
