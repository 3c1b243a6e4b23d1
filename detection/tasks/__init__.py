"""The other tasks of the scoring engine: accuracy, calibration, extraction, probes and more."""
