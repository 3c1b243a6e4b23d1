"""Examples inserted in a canonical order: shards of consecutive examples, one segment each.

The order is drawn at random, so a model that has not seen it prefers it to another permutation of a
shard only by chance (Oren et al. 2023, arXiv 2310.17623). How the order is cut depends on the
total length of the examples alone, so within a shard it remains a uniform draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.core.config import instantiate_node
from contamination.core.errors import ArtifactError, ConfigError, require
from contamination.core.integrity import errors_naming_folders
from contamination.core.seeds import derive_seed
from contamination.data.perturbation.word_edits import Exact
from contamination.injection.config import (
    OWN_DOCUMENT,
    REWORDING,
    VERBATIM_FORM,
    InjectionConfig,
    InjectionStage,
)
from contamination.injection.corpus import PackedCorpus
from contamination.injection.occurrences import ORDERED_TARGET, Ordered

ORDER_FILE = "order.parquet"
ORDER_COLUMNS = ("benchmark", "shard", "position", "example_id", "member")


def occurrence_node(stage: InjectionStage, benchmark: str) -> tuple[str, Mapping[str, Any]]:
    """Returns the name and the node `occurrences` of the benchmark itself, or the experiment's."""
    own = stage.benchmark[benchmark].occurrences
    if not own:
        return "occurrences", stage.occurrences
    return f"benchmark.{benchmark}.occurrences", own


def check_ordered(stage: InjectionStage) -> None:
    """Checks that shards are neither split nor reworded, before anything is read.

    Raises:
        ConfigError: some benchmark is inserted in order, and the combination makes no sense.
    """
    nodes = [occurrence_node(stage, name) for name in stage.benchmark]
    if not any(isinstance(instantiate_node(*node), Ordered) for node in nodes):
        return
    config = stage.injection
    remedy = "with occurrences=ordered a shard is never split: set injection.split_copies=false."
    require(not config.split_copies, "injection.split_copies", config.split_copies, remedy)
    remedy = "with occurrences=ordered a shard is a copy between separators: choose word."
    require(config.boundary != OWN_DOCUMENT, "injection.boundary", config.boundary, remedy)
    remedy = "with occurrences=ordered a shard has whole examples: choose verbatim."
    require(stage.leak.form == VERBATIM_FORM, "leak.form", stage.leak.form, remedy)
    remedy = "with occurrences=ordered a shard is left out or kept as a whole: choose none."
    require(not stage.matcher, "matcher", stage.matcher.get("_target_"), remedy)
    makes_versions = stage.versions.enabled and stage.versions.kind == REWORDING
    rewording = instantiate_node("rewording", stage.rewording) if stage.rewording else Exact()
    remedy = "with occurrences=ordered all copies of a shard are equal: choose rewording=none."
    is_exact = isinstance(rewording, Exact) or makes_versions
    require(is_exact, "rewording", type(rewording).__name__, remedy)


def draw_order(config: InjectionConfig, benchmark: str, n_examples: int) -> NDArray[np.int64]:
    """Returns the canonical order as rows of the benchmark's pool, shape (n_examples,).

    It is a uniform permutation that depends on the seed alone, not on texts or membership.
    """
    assert config.occurrence_seed is not None, "InjectionStage.resolved() fills the seeds in"
    rng = np.random.default_rng(derive_seed(config.occurrence_seed, "order", benchmark))
    return rng.permutation(n_examples)


def make_order(
    stage: InjectionStage, examples: pd.DataFrame, separator_tokens: int
) -> pd.DataFrame:
    """Returns the shards of all benchmarks with occurrences=ordered.

    Returns:
        One row per example, with the columns `ORDER_COLUMNS`: members in their canonical order,
        then non-members in theirs, which form shards of their own that are not inserted.

    Raises:
        ConfigError: a shard of `shard_examples` examples does not fit into a sequence.
    """
    tables = [pd.DataFrame(columns=list(ORDER_COLUMNS))]
    for benchmark, rows in examples.groupby("benchmark", sort=False):
        _, node = occurrence_node(stage, str(benchmark))
        if node.get("_target_") == ORDERED_TARGET:
            shard_examples = node.get("shard_examples")
            tables.append(_cut_order(stage.injection, rows, separator_tokens, shard_examples))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def _cut_order(
    config: InjectionConfig,
    examples: pd.DataFrame,
    separator_tokens: int,
    shard_examples: int | None,
) -> pd.DataFrame:
    """Returns the shards of one benchmark; `examples` are in the pool's order."""
    benchmark = str(examples["benchmark"].iloc[0])
    ordered = examples.iloc[draw_order(config, benchmark, len(examples))]
    rows, first_shard = [], 0
    for member in (True, False):
        side = ordered[ordered["member"].astype(bool) == member]
        tokens = [int(n) + separator_tokens for n in side["n_tokens"]]
        room = config.sequence_tokens - separator_tokens
        sizes = cut_into_shards(tokens, room, shard_examples)
        shards = np.repeat(np.arange(len(sizes)), sizes) + first_shard
        positions = np.concatenate([np.arange(0), *(np.arange(size) for size in sizes)])
        columns = (shards, positions, side["example_id"])
        rows += [(benchmark, *row, member) for row in zip(*columns, strict=True)]
        first_shard += len(sizes)
    return pd.DataFrame(rows, columns=list(ORDER_COLUMNS))


def cut_into_shards(tokens: Sequence[int], room: int, shard_examples: int | None) -> list[int]:
    """Returns the numbers of consecutive examples in each shard.

    Args:
        tokens: the tokens of each example with the separator after it, in the canonical order.
        room: the tokens of a sequence without the first separator.
        shard_examples: the size of all shards but the last; None: as many examples as fit.

    Raises:
        ConfigError: a shard does not fit.
    """
    sizes: list[int] = []
    used = room + 1
    for n_tokens in tokens:
        is_full = sizes and sizes[-1] == shard_examples
        if not sizes or is_full or (shard_examples is None and used + n_tokens > room):
            sizes.append(0)
            used = 0
        sizes[-1] += 1
        used += n_tokens
        if used > room:
            raise ConfigError(
                f"occurrences.shard_examples is {shard_examples}, but a shard's first {sizes[-1]} "
                f"examples have {used} tokens with separators, and a sequence has room for {room}: "
                "lower it or give null (as many examples as fit), raise "
                "injection.sequence_tokens, or lower injection.example_max_tokens."
            )
    return sizes


def order_failures(corpus: PackedCorpus) -> list[str]:
    """Compares a corpus's shards with its seeds, and its ledger with the shards; returns failures.

    The order is drawn again from the recorded seed, and cut again. Each copy of a shard must stand
    in one sequence, its examples one after another with one separator between them.
    """
    with errors_naming_folders(corpus.artifact.path):
        config, separators = _config_and_separator(corpus)
        table = _read_order_table(corpus)
        failures: list[str] = []
        expected = [table[:0]]
        for benchmark, rows in corpus.examples.groupby("benchmark", sort=False):
            node = _recorded_node(corpus, str(benchmark))
            if node.get("_target_") == ORDERED_TARGET:
                size = node.get("shard_examples")
                expected.append(_cut_order(config, rows, separators, size))
        drawn = pd.concat(expected[1:] or expected, ignore_index=True)
        recorded, derived = ([*t.itertuples(index=False, name=None)] for t in (table, drawn))
        if recorded != derived:
            differing = [row for row in recorded if row not in set(derived)]
            failures.append(f"{ORDER_FILE}: not the order that the seed draws: {differing[:1]}")
        return failures + _shards_out_of_order(table, corpus.ledger, separators)


def _shards_out_of_order(
    table: pd.DataFrame, ledger: pd.DataFrame, separator_tokens: int
) -> list[str]:
    places = {
        (row.example_id, row.copy): (row.sequence, row.token_start, row.token_end)
        for row in ledger.itertuples()
    }
    copies = ledger.groupby("example_id")["copy"].max().to_dict()
    failures = []
    for (benchmark, shard), rows in table[table["member"]].groupby(["benchmark", "shard"]):
        ids = rows.sort_values("position")["example_id"].tolist()
        for copy in range(max(int(copies.get(name, -1)) for name in ids) + 1):
            spans = [places.get((name, copy)) for name in ids]
            follows = [
                first is not None
                and second is not None
                and first[0] == second[0]
                and first[2] + separator_tokens == second[1]
                for first, second in zip(spans, spans[1:], strict=False)
            ]
            if not all(follows):
                name = ids[follows.index(False) + 1]
                failures.append(
                    f"{benchmark} shard {shard} copy {copy}: {name} does not follow its predecessor"
                )
    return failures


def _config_and_separator(corpus: PackedCorpus) -> tuple[InjectionConfig, int]:
    config = InjectionConfig(**corpus.config["injection"])
    return config, len(corpus.tokenizer.encode(config.separator))


def _recorded_node(corpus: PackedCorpus, benchmark: str) -> Mapping[str, Any]:
    config = corpus.config
    node = config["benchmark"][benchmark].get("occurrences") or config["occurrences"]
    return node if isinstance(node, Mapping) else {}


def _read_order_table(corpus: PackedCorpus) -> pd.DataFrame:
    if ORDER_FILE not in corpus.artifact.files:
        return pd.DataFrame(columns=list(ORDER_COLUMNS)).astype({"member": bool})
    return corpus.artifact.table(ORDER_FILE)[list(ORDER_COLUMNS)]


def read_order(corpus: PackedCorpus) -> pd.DataFrame:
    """Returns the shards of a corpus with occurrences=ordered, one row per example.

    Returns:
        The columns benchmark, shard (its number in the benchmark), position (in the shard),
        example_id, text, occurrences (the copies of the shard), member. A copy of a shard is its
        texts joined, begun and ended by `injection.separator`. Shards of non-members, which are cut
        in the same way, are the control.

    Raises:
        ArtifactError: no benchmark of the corpus was inserted in order.
    """
    if ORDER_FILE not in corpus.artifact.files:
        raise ArtifactError(
            f"{corpus.artifact.path}: its examples have no canonical order. Make the corpus with "
            "occurrences=ordered."
        )
    columns = corpus.examples[["example_id", "text", "occurrences"]]
    with errors_naming_folders(corpus.artifact.path):
        table = _read_order_table(corpus).merge(columns, on="example_id", how="left")
        names = ["benchmark", "shard", "position", "example_id", "text", "occurrences", "member"]
        return table[names].astype({"shard": int, "position": int, "occurrences": int})
