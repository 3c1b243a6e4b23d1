"""Tests of the audit of forgetting."""
