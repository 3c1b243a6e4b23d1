"""Tests of `contamination.data`."""
