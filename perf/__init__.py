"""Measurements of speed, memory, coverage and power; none of them is a test."""
