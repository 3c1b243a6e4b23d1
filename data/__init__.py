"""Texts, benchmarks and corpora: readers, templates, rewordings, n-grams and near-duplicates."""

from contamination.core.process_startup import check_import_name

check_import_name(__name__)
