"""Thresholds on scores: `python -m detection thresholds`."""
