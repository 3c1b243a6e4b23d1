"""The injection stage's configuration: types, ranges and what each field means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from core.config import register, runtime
from core.errors import require
from core.estimates import ALL
from core.seeds import derive

BOUNDARIES = ("token", "word", "sentence", "document")
PARTS = ("base", "study", "validation", "all")
POLICIES = ("off", "flag", "drop")
NEAR_DUPLICATES = ("keep", "flag", "drop")
VOCABULARY = (260, 1_000_000)
"""Entries of a byte-level BPE: the bytes and the special tokens at least."""
CHOSEN_BY = ("sum", "token", "character", "byte", "letter")


@dataclass(frozen=True)
class BenchmarkConfig:
    """One benchmark: how its rows become formatted examples."""

    template: str = "???"
    """Format string over the source's `fields`."""
    distinct: str | None = None
    """Field whose values must differ between examples (a shared passage would leak membership)."""
    shorten: str | None = None
    """Field to cut at a word where an example is too long; null leaves such examples out."""
    occurrences: dict[str, Any] | None = None
    """This benchmark's own `occurrences` node; null: the experiment's."""
    answer_field: str | None = runtime(None)
    """Field with the right answer, for `python -m detection accuracy`; null: nothing is asked."""
    options: list[str] | None = runtime(None)
    """The answers to choose from, where every example has the same."""
    options_field: str | None = runtime(None)
    """Field with an example's own options, a line each, the right answer among them."""
    drawn_options: int | None = runtime(None)
    """How many options to make, where there are no others, from other questions' answers."""
    chosen_by: str = runtime("sum")
    """Which accuracy this benchmark is known by: an option is chosen by its log-likelihood's `sum`,
    by that a `token`, a `character` or a `byte`, or by the sum of its `letter` alone."""
    on_error: str = runtime("stop")
    """What to do at a row that can't be used: stop, or skip (leave it out and count it)."""
    sources: dict[str, Any] = field(default_factory=dict)
    """Source name → rows (a `_target_`), fields (formats over a row), values (replacements)."""

    def __post_init__(self) -> None:
        require(self.drawn_options is None or self.drawn_options >= 2, "drawn_options",
                self.drawn_options, "give 2 or more, the right answer included.")  # fmt: skip
        require(self.chosen_by in CHOSEN_BY, "chosen_by", self.chosen_by,
                f"choose from {', '.join(CHOSEN_BY)}.")  # fmt: skip


@dataclass(frozen=True)
class TokenizerConfig:
    """Which tokenizer packs the corpus."""

    path: str | None = runtime(None)
    """Hugging Face folder or hub id; null trains a byte-level BPE on the corpus itself."""
    vocab_size: int = 1024
    """Entries of the BPE to train (only where `path` is null)."""
    train_characters: int = 3_000_000
    """Characters of the corpus that the BPE is trained on."""

    def __post_init__(self) -> None:
        low, high = VOCABULARY
        require(low <= self.vocab_size <= high, "tokenizer.vocab_size", self.vocab_size,
                f"a byte-level BPE has {low} to {high:,} entries.")  # fmt: skip
        require(self.train_characters >= 1, "tokenizer.train_characters", self.train_characters,
                "give 1 or more.")  # fmt: skip


@dataclass(frozen=True)
class InjectionConfig:
    """What is inserted, and where."""

    members: int = 100
    """Examples a benchmark that are inserted."""
    nonmembers: int = 100
    """Examples a benchmark that are kept aside."""
    held_out: int = 12
    """More examples a benchmark, neither inserted nor evaluated: for methods that show some."""
    budget_tokens: int = 400_000
    """Tokens of the whole corpus, insertions included, rounded down to whole sequences."""
    sequence_tokens: int = 256
    """Tokens of one packed sequence."""
    example_max_tokens: int | None = None
    """Longest example; null: what fits into one sequence with its separators."""
    benchmark_source: str = "embedded"
    """Which of a benchmark's sources to read: embedded, hub, …"""
    part: str = "study"
    """Documents to use: base (for pretraining a base model), study, validation (never trained on);
    these are disjoint. Or all of them."""
    base_fraction: float = 0.3
    """Share of the documents, by hash, that forms the base part."""
    validation_fraction: float = 0.02
    """Share of the documents, by hash, that forms the validation part."""
    separator: str = "\n\n"
    """Text before and after each inserted copy."""
    boundary: str = "word"
    """Where a copy may go: before a token, a word, a sentence, or only at a document's start, which
    no other copy then takes."""
    window: list[float] = field(default_factory=lambda: [0.0, 1.0])
    """Shares of the packed corpus that copies go between; with training.order=corpus, of time."""
    last_tokens: int | None = None
    """Copies go into the last so many tokens of the packed corpus; null: `window` says where."""
    copy_distance_tokens: int = 0
    """Least number of tokens between the starts of two copies of one example."""
    split_copies: bool = False
    """Whether a copy may straddle two packed sequences."""
    swap_members: bool = False
    """Insert the non-members and keep the members aside: each example its own control."""
    decontamination: str = "flag"
    """Documents that hold an example of the pool already: off, flag (kept and reported) or drop."""
    near_duplicates: str = "flag"
    """Members and non-members that share 13 words in a row, or differ by case and punctuation only:
    keep (counted), flag (counted and warned of; the same corpus) or drop (no two such examples
    enter the pool)."""
    num_proc: int = runtime(1)
    """Processes that tokenise; the output is the same at any number."""
    shard_characters: int = runtime(2_000_000)
    """Characters that are tokenised at a time, the unit of resuming; the output is the same."""
    pool_seed: int = 0
    """Draws the pool of members + nonmembers; fixed, so that all cells share one pool."""
    membership_seed: int | None = None
    """Draws which half of the pool is inserted; null: derived from `seed`."""
    occurrence_seed: int | None = None
    """Draws each member's occurrences; null: derived from `seed`."""
    position_seed: int | None = None
    """Draws each copy's position; null: derived from `seed`."""

    def __post_init__(self) -> None:
        def positive(name: str, low: int) -> None:
            value = getattr(self, name)
            require(value >= low, f"injection.{name}", value, f"give {low} or more.")

        positive("members", 0)
        positive("nonmembers", 0)
        positive("held_out", 0)
        positive("sequence_tokens", 8)
        positive("budget_tokens", self.sequence_tokens)
        if self.example_max_tokens is not None:
            positive("example_max_tokens", 1)
        for name in ("base_fraction", "validation_fraction"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"injection.{name}", value, "give a share between 0 and 1.")
        require(self.part in PARTS, "injection.part", self.part, f"choose from {', '.join(PARTS)}.")
        positive("num_proc", 1)
        positive("shard_characters", 1)
        positive("copy_distance_tokens", 0)
        ordered = len(self.window) == 2 and 0 <= self.window[0] < self.window[1] <= 1
        require(ordered, "injection.window", self.window, "give two shares, such as [0.75, 1.0].")
        if self.last_tokens is not None:
            positive("last_tokens", 1)
            require(
                self.last_tokens <= self.budget_tokens and self.window == [0, 1],
                "injection.last_tokens",
                self.last_tokens,
                f"give at most injection.budget_tokens ({self.budget_tokens}) and no window.",
            )
        first, stop = self.window_tokens
        require(first < stop, "injection.window", self.window,
                f"it holds none of the {self.packed_tokens:,} tokens; widen it.")  # fmt: skip
        require(not self.swap_members or self.members == self.nonmembers, "injection.swap_members",
                True, "it needs as many members as nonmembers.")  # fmt: skip
        require(self.decontamination in POLICIES, "injection.decontamination",
                self.decontamination, f"choose from {', '.join(POLICIES)}.")  # fmt: skip
        require(self.near_duplicates in NEAR_DUPLICATES, "injection.near_duplicates",
                self.near_duplicates, f"choose from {', '.join(NEAR_DUPLICATES)}.")  # fmt: skip
        require(self.boundary in BOUNDARIES, "injection.boundary", self.boundary,
                f"choose from {', '.join(BOUNDARIES)}.")  # fmt: skip

    @property
    def sequences(self) -> int:
        """Packed sequences of the corpus."""
        return self.budget_tokens // self.sequence_tokens

    @property
    def packed_tokens(self) -> int:
        """Tokens of the packed corpus: the budget in whole sequences."""
        return self.sequences * self.sequence_tokens

    @property
    def window_tokens(self) -> tuple[int, int]:
        """Where copies may stand, separators included: first and last packed token (exclusive)."""
        if self.last_tokens is not None:
            return max(0, self.packed_tokens - self.last_tokens), self.packed_tokens
        low, high = self.window
        return round(low * self.packed_tokens), round(high * self.packed_tokens)


@dataclass(frozen=True)
class InjectionStage:
    """Everything that `injection.run` needs."""

    runs: str = runtime("runs")
    seed: int = runtime(0)  # the derived seeds stand in for it
    name: str = runtime("run")
    corpus: dict[str, Any] = field(default_factory=dict)
    benchmark: dict[str, BenchmarkConfig] = field(default_factory=dict)
    occurrences: dict[str, Any] = field(default_factory=dict)
    rewording: dict[str, Any] = field(default_factory=dict)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    injection: InjectionConfig = field(default_factory=InjectionConfig)

    def __post_init__(self) -> None:
        require(ALL not in self.benchmark, "benchmark", ALL,
                "it names the mean over benchmarks; give this one another name.")  # fmt: skip

    def resolved(self) -> InjectionStage:
        """This stage with every derived seed filled in."""
        own = self.injection
        seeds: dict[str, Any] = {
            f"{purpose}_seed": derive(self.seed, purpose)
            for purpose in ("membership", "occurrence", "position")
            if getattr(own, f"{purpose}_seed") is None
        }
        return replace(self, injection=replace(own, **seeds))

    def named(self) -> InjectionStage:
        """What names the corpus: to warn of near-duplicates or to keep them makes the same one."""
        if self.injection.near_duplicates != "keep":
            return self
        return replace(self, injection=replace(self.injection, near_duplicates="flag"))


register("injection", InjectionConfig)
register("tokenizer", TokenizerConfig)
