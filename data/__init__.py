"""Texts, benchmarks and corpora: reading, formatting, rewording, n-grams and near-duplicates."""
