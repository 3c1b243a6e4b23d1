"""Bootstrap resamples, metrics with confidence intervals, clusters and significance tests."""
