"""Tests of the audit of corrected scores."""
