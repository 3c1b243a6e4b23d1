"""Bootstrap draws, metrics with intervals, clusters and corrected tests."""
