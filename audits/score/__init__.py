"""Corrects a benchmark's score for contamination, with examples whose membership is known."""
