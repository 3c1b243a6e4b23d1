"""Scores of a few texts, whole."""

import pyarrow as pa

from contamination.detection.scores import example_seen_by, score_tables


def make_table(*given):
    """All parts of `score_tables`."""
    return pa.concat_tables(score_tables(*given)).to_pandas()


def score_text(method, text, passes):
    """One text's score."""
    return method.score(example_seen_by(method, text, passes))
