"""Estimates with their intervals, comparisons, trends and controls: all that is computed."""
