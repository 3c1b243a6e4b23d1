"""Tests of labelled benchmarks."""
