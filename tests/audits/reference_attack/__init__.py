"""Tests of the strong reference attack."""
