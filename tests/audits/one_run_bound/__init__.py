"""Tests of the audit with one training run."""
