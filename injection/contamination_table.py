"""The table `contamination.parquet`, and the flags of examples derived from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from contamination.core.artifacts import Artifact
from contamination.injection.config import THIS_CORPUS
from contamination.injection.shared_text_search import VERBATIM

if TYPE_CHECKING:
    import pandas as pd

CONTAMINATION_COLUMN = "contamination"
"""Column of the examples with the corpora that share text with them; empty for most."""
log = logging.getLogger(__name__)


def join_matches(by_corpus: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Returns the joined tables of several corpora: one row per document and example sharing text.

    Columns:
        corpus: `corpus` (the contaminated corpus), the name of a compared corpus (`base`: that of
            the clean model), or `copies` (the document is another example of the pool, whose
            copies contain this example's whole text).
        document_id: for a compared corpus, the packed sequence in which the document begins; empty
            if the text was found only during verification, in the packed tokens.
        example_id, rule, evidence: see `shared_text_search.DocumentMatch`.
        occurrences: how often the document contains the example's whole text.
    """
    import pandas as pd

    tables = [table.assign(corpus=name) for name, table in by_corpus.items()]
    return pd.concat(tables, ignore_index=True)


def with_flags(
    examples: pd.DataFrame, matches: pd.DataFrame, *, dropped: bool = False
) -> pd.DataFrame:
    """Returns the examples with the column CONTAMINATION_COLUMN: see `flags_of_examples`."""
    new_flags = flags_of_examples(examples, matches, dropped=dropped)
    old_flags = examples.get(CONTAMINATION_COLUMN, [""] * len(examples))
    flags = [merge_flags(*pair) for pair in zip(old_flags, new_flags, strict=True)]
    return examples.assign(**{CONTAMINATION_COLUMN: flags})


def merge_flags(first: str, second: str) -> str:
    """Returns the flags of an example from two sources, without duplicates."""
    return ", ".join(dict.fromkeys(filter(None, [*first.split(", "), *second.split(", ")])))


def flags_of_examples(examples: pd.DataFrame, matches: pd.DataFrame, *, dropped: bool) -> list[str]:
    """Returns each example's flag: the corpora that share text with it, and the first rule.

    Args:
        examples: the pool, one row per example.
        matches: one row per document and example that share text, with the column `corpus`.
        dropped: whether matching documents of the contaminated corpus itself were left out.

    Returns:
        One flag per example, such as `base: 13-gram, corpus: verbatim`; empty for most examples.
        The rule is `verbatim` if a document contains the example's whole text.
    """
    rules_by_example: dict[str, dict[str, str]] = {}
    for row in matches.itertuples():
        if dropped and row.corpus == THIS_CORPUS:
            continue
        rule_by_corpus = rules_by_example.setdefault(row.example_id, {})
        rule_by_corpus.setdefault(row.corpus, row.rule)
        if row.occurrences:
            rule_by_corpus[row.corpus] = VERBATIM
    flag_by_example = {
        example_id: ", ".join(f"{corpus}: {rule}" for corpus, rule in sorted(rules.items()))
        for example_id, rules in rules_by_example.items()
    }
    return [flag_by_example.get(example_id, "") for example_id in examples["example_id"]]


def count_flagged(examples: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Returns the numbers of flagged members and non-members by benchmark, if there are any."""
    flagged = examples[examples[CONTAMINATION_COLUMN] != ""]
    members = flagged["member"].astype(bool)
    counts = members.groupby(flagged["benchmark"]).agg(["sum", "size"])
    return {
        str(benchmark_counts.Index): {
            "members": int(benchmark_counts.sum),
            "nonmembers": int(benchmark_counts.size - benchmark_counts.sum),
        }
        for benchmark_counts in counts.itertuples()
    }


def describe_flagged_counts(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Returns the counts of `count_flagged` in words: "boolq (1 member, 3 non-members)"."""
    singular = {"members": "member", "nonmembers": "non-member"}
    descriptions = []
    for benchmark, by_side in counts.items():
        side_texts = [
            f"{by_side[side]} {word}{'s' * (by_side[side] != 1)}"
            for side, word in singular.items()
            if by_side[side]
        ]
        descriptions.append(f"{benchmark} ({', '.join(side_texts)})")
    return "; ".join(descriptions)


def warn_of_flags(artifact: Artifact) -> None:
    """Logs which benchmarks have flagged examples, whether the corpus is new or reused."""
    if flagged := artifact.counts.get("flagged"):
        log.warning(
            "pool: examples share text with a corpus, apart from their copies: %s. The column %s "
            "of %s names these corpora; reports also give results without these examples.",
            *(
                describe_flagged_counts(flagged),
                CONTAMINATION_COLUMN,
                artifact.path / "examples.parquet",
            ),
        )
