"""Scores into results: metrics with intervals, controls, tables, charts and a report."""

import core.early  # noqa: F401 (signals are answered from here on)
from analysis.folder import Report, open_report

__all__ = ["Report", "open_report"]
