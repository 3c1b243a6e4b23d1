"""Tests of the audit of unlearning."""
