"""Configuration of the injection stage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from contamination.core.config import (
    FRACTION_OR_ZERO,
    Range,
    Ranged,
    at_least,
    between,
    one_of,
    ranged_field,
    register_schema,
    runtime_field,
)
from contamination.core.errors import require
from contamination.core.seeds import fill_in_seeds
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.tasks import TasksConfig
from contamination.data.config import BenchmarkConfig

BOUNDARIES = ("token", "word", "sentence", "document")
PARTS = ("base", "study", "validation", "all")
POLICIES = ("off", "flag", "drop")
OWN, COPIES = "corpus", "copies"
"""Names of the corpus itself and of its copies in contamination.parquet."""
NEAR_DUPLICATES = ("keep", "flag", "drop")
DEFAULT_SIZE = 100
"""Members, and non-members, of each benchmark if the configuration says nothing else."""
VOCABULARY = between(260, 1_000_000)
"""Entries of a byte-level BPE: the bytes and the special tokens at least."""
WINDOW = Range(
    lambda shares: len(shares) == 2 and 0 <= shares[0] < shares[1] <= 1,
    "give two shares, such as [0.75, 1.0].",
)


@dataclass(frozen=True)
class TokenizerConfig(Ranged, node="tokenizer"):
    """The tokenizer of the packed corpus."""

    path: str | None = runtime_field(None)
    """Hugging Face folder or hub id; null trains a byte-level BPE on the corpus itself."""
    vocab_size: int = ranged_field(1024, VOCABULARY)
    """Entries of the BPE to train (only if `path` is null)."""
    train_characters: int = ranged_field(3_000_000, at_least(1))
    """Characters of the corpus that the BPE is trained on."""


@dataclass(frozen=True)
class InjectionConfig(Ranged, node="injection"):
    """The inserted examples, the documents, and the places of the copies."""

    members: int = ranged_field(DEFAULT_SIZE, at_least(0))
    """Examples of each benchmark that are inserted."""
    nonmembers: int = ranged_field(DEFAULT_SIZE, at_least(0))
    """Examples of each benchmark that are not inserted."""
    adapt_sizes: bool | None = runtime_field(None)
    """Whether a benchmark with too few examples gives fewer members and non-members, in the same
    proportion: true; false (an error); null: only if both numbers are the default, 100."""
    held_out: int = ranged_field(12, at_least(0))
    """More examples of each benchmark, neither inserted nor evaluated, for few-shot methods."""
    budget_tokens: int = 400_000
    """Tokens of the whole corpus, insertions included, rounded down to whole sequences."""
    sequence_tokens: int = ranged_field(256, at_least(8))
    """Tokens of one packed sequence."""
    example_max_tokens: int | None = ranged_field(None, at_least(1))
    """Tokens of the longest example; null: what fits into one sequence with its separators."""
    benchmark_source: str = "embedded"
    """Which of a benchmark's sources to read: embedded, hub, …"""
    part: str = ranged_field("study", one_of(PARTS))
    """Documents to use: base (for pretraining a base model), study or validation (never trained
    on), which are disjoint; or all."""
    base_fraction: float = ranged_field(0.3, FRACTION_OR_ZERO)
    """Share of the documents, by hash, that forms the base part."""
    validation_fraction: float = ranged_field(0.02, FRACTION_OR_ZERO)
    """Share of the documents, by hash, that forms the validation part."""
    separator: str = "\n\n"
    """Text before and after each inserted copy."""
    boundary: str = ranged_field("word", one_of(BOUNDARIES))
    """Where a copy may be inserted: before a token, a word or a sentence, or only at the start of a
    document that has no other copy there."""
    window: list[float] = ranged_field([0.0, 1.0], WINDOW)
    """Shares of the packed corpus between which copies are inserted; with training.order=corpus, of
    training time."""
    last_tokens: int | None = ranged_field(None, at_least(1))
    """Copies are inserted into this many last tokens of the packed corpus; null: see `window`."""
    copy_distance_tokens: int = ranged_field(0, at_least(0))
    """Least number of tokens between the starts of two copies of one example."""
    split_copies: bool = False
    """Whether a copy may straddle two packed sequences."""
    swap_members: bool = False
    """Insert the non-members instead of the members, so that each example is its own control."""
    decontamination: str = ranged_field("flag", one_of(POLICIES))
    """Documents that share text with an example of the pool: flag (kept; the examples are flagged
    in all results), drop (left out) or off (not searched for, but a document with a whole text is
    an error)."""
    near_duplicates: str = ranged_field("flag", one_of(NEAR_DUPLICATES))
    """Members and non-members that share 13 words in a row, or differ only in case and punctuation:
    keep (counted), flag (counted, with a warning; the same corpus) or drop (no two such examples
    enter the pool)."""
    num_proc: int = runtime_field(1, at_least(1))
    """Processes that tokenise; the output does not depend on it."""
    shard_characters: int = runtime_field(2_000_000, at_least(1))
    """Characters that are tokenised at a time, the unit of resuming; does not change the output."""
    pool_seed: int = 0
    """Draws the pool of members + nonmembers; fixed, so that all cells share one pool."""
    membership_seed: int | None = None
    """Draws which half of the pool is inserted; null: derived from `seed`."""
    occurrence_seed: int | None = None
    """Draws each member's occurrences; null: derived from `seed`."""
    position_seed: int | None = None
    """Draws each copy's position; null: derived from `seed`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.budget_tokens >= self.sequence_tokens
        self.require(enough, "budget_tokens", f"give {self.sequence_tokens} or more.")
        no_window = self.last_tokens is None or (
            self.last_tokens <= self.budget_tokens and self.window == [0, 1]
        )
        remedy = f"give at most injection.budget_tokens ({self.budget_tokens}) and no window."
        self.require(no_window, "last_tokens", remedy)
        first, stop = self.window_tokens
        remedy = f"it contains none of the {self.packed_tokens:,} tokens; widen it."
        self.require(first < stop, "window", remedy)
        balanced = not self.swap_members or self.members == self.nonmembers
        self.require(balanced, "swap_members", "it needs as many members as nonmembers.")

    @property
    def may_adapt_sizes(self) -> bool:
        """Whether a benchmark with too few examples gives fewer, instead of being an error."""
        if self.adapt_sizes is not None:
            return self.adapt_sizes
        return self.members == self.nonmembers == DEFAULT_SIZE

    @property
    def n_sequences(self) -> int:
        """Number of packed sequences of the corpus."""
        return self.budget_tokens // self.sequence_tokens

    @property
    def packed_tokens(self) -> int:
        """Tokens of the packed corpus: the budget in whole sequences."""
        return self.n_sequences * self.sequence_tokens

    @property
    def window_tokens(self) -> tuple[int, int]:
        """First and last packed token (exclusive) of copies with their separators."""
        if self.last_tokens is not None:
            return max(0, self.packed_tokens - self.last_tokens), self.packed_tokens
        low, high = self.window
        return round(low * self.packed_tokens), round(high * self.packed_tokens)


@dataclass(frozen=True)
class PoolStage:
    """The nodes of a stage that draws a pool of examples and inserts its members."""

    runs: str = runtime_field("runs")
    seed: int = runtime_field(0)  # the derived seeds name the folder instead
    name: str = runtime_field("run")
    benchmark: dict[str, BenchmarkConfig] = field(default_factory=dict)
    occurrences: dict[str, Any] = field(default_factory=dict)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    injection: InjectionConfig = field(default_factory=InjectionConfig)
    compared: dict[str, str] = field(default_factory=dict, metadata={"identity": False})
    """Other corpora that the model or its clean twin reads, which are searched for the pool: name →
    folder (runs/corpus/…)."""

    def resolved(self) -> Self:
        """Return this stage with every derived seed filled in."""
        purposes = ("membership", "occurrence", "position")
        return replace(self, injection=fill_in_seeds(self.injection, self.seed, purposes))


@dataclass(frozen=True)
class InjectionStage(PoolStage):
    """The configuration of `injection.run`."""

    corpus: dict[str, Any] = field(default_factory=dict)
    rewording: dict[str, Any] = field(default_factory=dict)
    cluster: TasksConfig = field(default_factory=TasksConfig, metadata={"identity": False})

    def __post_init__(self) -> None:
        for name in self.compared:
            remedy = f"{OWN} and {COPIES} have a meaning of their own; give it another name."
            require(name not in (OWN, COPIES), "compared", name, remedy)
        remedy = "it names the mean over benchmarks; give this one another name."
        require(ALL_BENCHMARKS not in self.benchmark, "benchmark", ALL_BENCHMARKS, remedy)

    def named(self) -> InjectionStage:
        """Return the stage that names the corpus: near_duplicates=keep and flag share one."""
        if self.injection.near_duplicates != "keep":
            return self
        return replace(self, injection=replace(self.injection, near_duplicates="flag"))


register_schema("injection", InjectionConfig)
register_schema("tokenizer", TokenizerConfig)
