"""Labelled benchmarks made from dated documents, and non-members chosen by overlap."""
