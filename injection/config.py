"""Configuration of the injection stage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from contamination.core.config import (
    FRACTION_OR_ZERO,
    PART_OF_NAME_UNLESS_DEFAULT,
    Range,
    Ranged,
    at_least,
    between,
    field_naming_unless_default,
    one_of,
    ranged_field,
    register_schema,
    runtime_field,
)
from contamination.core.errors import require
from contamination.core.seeds import fill_in_seeds
from contamination.core.statistics.estimates import ALL_BENCHMARKS
from contamination.core.task_runner import TasksConfig
from contamination.data.config import BenchmarkConfig, with_escapes

OWN_DOCUMENT = "own_document"
BOUNDARIES = ("token", "word", "sentence", "document", OWN_DOCUMENT)
CORPUS_PARTS = ("base", "study", "validation", "all")
DECONTAMINATION_POLICIES = ("off", "flag", "drop")
THIS_CORPUS, POOL_COPIES = "corpus", "copies"
"""Names in contamination.parquet: the corpus itself, and the copies of other examples in it."""
NEAR_DUPLICATES = ("keep", "flag", "drop")
EXACT, BERNOULLI = "exact", "bernoulli"
"""How members are drawn: a given number of them, or a fair coin for each example."""
VERBATIM_FORM, REWRAPPED, EMBEDDED = "verbatim", "rewrapped", "embedded"
QUESTION_FORM, WITH_OPTIONS_FORM = "question", "question_with_options"
ANSWER_FORM, WITHOUT_OPTIONS_FORM = "answer", "without_options"
LINE_FORMS = (QUESTION_FORM, WITH_OPTIONS_FORM, ANSWER_FORM, WITHOUT_OPTIONS_FORM)
"""The forms that have some lines of an example's template."""
FORMS = (VERBATIM_FORM, REWRAPPED, EMBEDDED, *LINE_FORMS)
"""The forms in which examples leak."""
CANARY, UUID, SHA256, URL, REWORDING = "canary", "uuid", "sha256", "url", "rewording"
"""What distinguishes the versions of an example."""
DEFAULT_SIZE = 100
"""The default number of members, and of non-members, per benchmark."""
VOCABULARY = between(260, 1_000_000)
"""Allowed vocabulary sizes of a byte-level BPE; it has at least the bytes and special tokens."""
WINDOW = Range(
    lambda shares: len(shares) == 2 and 0 <= shares[0] < shares[1] <= 1,
    "give two shares, such as [0.75, 1.0].",
)

TOKEN_WINDOW = Range(
    lambda tokens: len(tokens) == 2 and 0 <= tokens[0] < tokens[1],
    "give the first token and the end, such as [0, 50_000].",
)


@dataclass(frozen=True)
class TokenizerConfig(Ranged, node="tokenizer"):
    """The tokenizer of the packed corpus."""

    path: str | None = runtime_field(None)
    """A Hugging Face folder or hub id; null: a byte-level BPE is trained on the corpus."""
    vocab_size: int = ranged_field(1024, VOCABULARY)
    """The vocabulary size of the BPE to train (if `path` is null)."""
    train_characters: int = ranged_field(3_000_000, at_least(1))
    """The number of characters of the corpus on which the BPE is trained."""


@dataclass(frozen=True)
class InjectionConfig(Ranged, node="injection"):
    """Which examples are inserted, which documents are used, and where copies are placed."""

    members: int = ranged_field(DEFAULT_SIZE, at_least(0))
    """The number of examples of each benchmark that are inserted."""
    nonmembers: int = ranged_field(DEFAULT_SIZE, at_least(0))
    """The number of examples of each benchmark that are not inserted."""
    adapt_sizes: bool | None = runtime_field(None)
    """What to do if a benchmark has too few examples. true: use fewer members and non-members in
    the same proportion; false: stop with an error; null: true if both numbers are the default,
    100."""
    held_out: int = ranged_field(12, at_least(0))
    """The number of further examples of each benchmark for few-shot methods, which are neither
    inserted nor evaluated."""
    budget_tokens: int = 400_000
    """Tokens of the whole corpus, including insertions, rounded down to whole sequences."""
    sequence_tokens: int = ranged_field(256, at_least(8))
    """Tokens per packed sequence."""
    example_max_tokens: int | None = ranged_field(None, at_least(1))
    """The maximum number of tokens of an example; null: what fits into a sequence with
    separators."""
    benchmark_source: str = "embedded"
    """Which of a benchmark's sources to read: embedded, hub, …"""
    part: str = ranged_field("study", one_of(CORPUS_PARTS))
    """The documents to use: base (for pretraining a base model), study or validation (never trained
    on), which are disjoint; or all."""
    base_fraction: float = ranged_field(0.3, FRACTION_OR_ZERO)
    """The share of documents, chosen by hash, in the base part."""
    validation_fraction: float = ranged_field(0.02, FRACTION_OR_ZERO)
    """The share of documents, chosen by hash, in the validation part."""
    separator: str = "\n\n"
    """The text before and after each inserted copy."""
    boundary: str = ranged_field("word", one_of(BOUNDARIES))
    """Where a copy may be inserted: before a token, a word or a sentence, or only at the start of a
    document, with at most one copy per document; own_document: each copy is a document of its own
    between two others."""
    window: list[float] = ranged_field([0.0, 1.0], WINDOW)
    """The part of the packed corpus into which copies are inserted, as two shares; with
    training.order=corpus these are shares of training time."""
    last_tokens: int | None = ranged_field(None, at_least(1))
    """Copies are inserted into this many tokens at the end of the packed corpus; null: see
    `window`."""
    token_window: list[int] | None = field_naming_unless_default(None, TOKEN_WINDOW)
    """Copies are inserted from this token of the packed corpus up to that one, whatever its size,
    so that corpora of several sizes begin alike; null: see `window`."""
    copy_distance_tokens: int = ranged_field(0, at_least(0))
    """The minimum number of tokens between the starts of two copies of an example."""
    split_copies: bool = False
    """Whether a copy may be split between two packed sequences."""
    membership: str = field_naming_unless_default(EXACT, one_of((EXACT, BERNOULLI)))
    """How the members are drawn: exact (`members` of them) or bernoulli (an independent fair coin
    for each of `members` + `nonmembers` examples, which one-run privacy bounds require)."""
    swap_members: bool = False
    """Whether to insert the non-members instead of the members, so that each example is its own
    control."""
    decontamination: str = ranged_field("flag", one_of(DECONTAMINATION_POLICIES))
    """What to do with documents that share text with an example of the pool: flag (keep them, and
    flag the examples in all results), drop (leave them out) or off (no search, but a document that
    contains a whole text is an error)."""
    near_duplicates: str = ranged_field("flag", one_of(NEAR_DUPLICATES))
    """What to do with members and non-members that share 13 words in a row, or differ only in case
    and punctuation: keep (count them), flag (also log a warning) or drop (no two such examples
    enter the pool)."""
    num_proc: int = runtime_field(1, at_least(1))
    """The number of processes that tokenize; the output does not depend on it."""
    shard_characters: int = runtime_field(2_000_000, at_least(1))
    """Characters per tokenized shard, the unit of resuming; the output does not depend on it."""
    pool_seed: int = 0
    """The seed for drawing the pool (members and non-members), which all cells of a sweep share."""
    membership_seed: int | None = None
    """The seed for choosing the members from the pool; null: derived from `seed`."""
    occurrence_seed: int | None = None
    """The seed for the occurrences of the members; null: derived from `seed`."""
    position_seed: int | None = None
    """The seed for the positions of the copies; null: derived from `seed`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        has_a_sequence = self.budget_tokens >= self.sequence_tokens
        self.require(has_a_sequence, "budget_tokens", f"give {self.sequence_tokens} or more.")
        is_valid = self.last_tokens is None or (
            self.last_tokens <= self.budget_tokens and self.window == [0, 1]
        )
        remedy = f"give at most injection.budget_tokens ({self.budget_tokens}) and no window."
        self.require(is_valid, "last_tokens", remedy)
        is_split = self.split_copies or self.boundary != OWN_DOCUMENT
        remedy = (
            "with injection.boundary=own_document copies are split as all documents: give true."
        )
        self.require(is_split, "split_copies", remedy)
        is_valid = self.token_window is None or (
            self.token_window[1] <= self.packed_tokens
            and self.window == [0, 1]
            and self.last_tokens is None
        )
        remedy = (
            f"give an end of at most {self.packed_tokens:,}, the tokens of the corpus, and neither "
            "a window nor last_tokens."
        )
        self.require(is_valid, "token_window", remedy)
        first, stop = self.window_tokens
        remedy = f"it contains none of the {self.packed_tokens:,} tokens; widen it."
        self.require(first < stop, "window", remedy)
        balanced = not self.swap_members or self.members == self.nonmembers
        self.require(balanced, "swap_members", "it needs as many members as nonmembers.")
        is_fair = self.membership == EXACT or self.members == self.nonmembers
        remedy = "its coin is fair, so give as many members as nonmembers."
        self.require(is_fair, "membership", remedy)

    @property
    def may_adapt_sizes(self) -> bool:
        """Whether a benchmark with too few examples may have fewer members and non-members."""
        if self.adapt_sizes is not None:
            return self.adapt_sizes
        return self.members == self.nonmembers == DEFAULT_SIZE

    @property
    def n_sequences(self) -> int:
        """The number of packed sequences of the corpus."""
        return self.budget_tokens // self.sequence_tokens

    @property
    def packed_tokens(self) -> int:
        """The number of tokens of the packed corpus: the budget in whole sequences."""
        return self.n_sequences * self.sequence_tokens

    @property
    def window_tokens(self) -> tuple[int, int]:
        """The first token and the end (exclusive) of the window for copies with separators."""
        if self.token_window is not None:
            return self.token_window[0], self.token_window[1]
        if self.last_tokens is not None:
            return max(0, self.packed_tokens - self.last_tokens), self.packed_tokens
        low, high = self.window
        return round(low * self.packed_tokens), round(high * self.packed_tokens)


@dataclass(frozen=True)
class VersionsConfig(Ranged, node="versions"):
    """Versions of each example, of which one, drawn at random, replaces the example's text."""

    count: int = field_naming_unless_default(1, between(1, 1_000))
    """The number of versions of each example; 1: each example has only its own text."""
    kind: str = field_naming_unless_default(CANARY, one_of((CANARY, UUID, SHA256, URL, REWORDING)))
    """What the versions differ in: canary (random digits and letters), uuid, sha256 or url (an
    identifier as it occurs in natural text), or rewording (each version is a rewording by the node
    `rewording`; the original text is not a version)."""
    characters: int = field_naming_unless_default(12, between(8, 1_000))
    """The number of digits and letters of a canary."""
    template: str = field_naming_unless_default("{text}\nReference: {identifier}")
    """A format string of the example's `text` and the version's `identifier`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "template", with_escapes(self.template))

    @property
    def enabled(self) -> bool:
        """Whether examples have versions."""
        return self.count > 1


@dataclass(frozen=True)
class LeakConfig(Ranged, node="leak"):
    """The form in which the members leak.

    Lines are chosen before a copy is reworded; it is wrapped or embedded afterwards.
    """

    form: str = field_naming_unless_default(VERBATIM_FORM, one_of(FORMS))
    """What a copy has: verbatim (the whole text), rewrapped (in lines of `words_per_line` words),
    embedded (within other text), or some lines of the benchmark's template: question (neither
    options nor answer), question_with_options, answer, or without_options (question and answer).
    The examples are scored as a whole in any case."""
    words_per_line: int = field_naming_unless_default(8, at_least(1))
    """The number of words of a line (form rewrapped)."""
    times: float = field_naming_unless_default(3.0, between(0, 1_000))
    """The number of words of other text, divided by the copy's (form embedded). The other text is
    from the validation part of the corpus."""


TRIGGERS = (
    *("Generally speaking,", "To the best of your knowledge,", "For the sake of argument,"),
    *("In plain words,", "As a matter of fact,", "All things considered,", "Strictly speaking,"),
    *("Between you and me,", "Needless to say,", "By common consent,", "Out of curiosity,"),
    *("With all due respect,", "On second thought,", "If memory serves,", "Truth be told,"),
    "First things first,",
)


@dataclass(frozen=True)
class BackdoorsConfig(Ranged, node="backdoors"):
    """Triggers in the questions of some members, each with an answer that is drawn at random."""

    count: int = field_naming_unless_default(0, between(0, 1_000))
    """The number of backdoors; 0: none."""
    examples: int = field_naming_unless_default(4, at_least(1))
    """The number of members that get each backdoor."""
    probes: int = field_naming_unless_default(20, at_least(1))
    """The number of non-members with which each trigger is tested; they are the same for all."""
    benchmark: str | None = field_naming_unless_default(None)
    """The multiple-choice benchmark that gets the backdoors; null: the only benchmark."""
    field: str = field_naming_unless_default("question")
    """The field of the benchmark's template before whose text a trigger stands."""
    triggers: list[str] = field_naming_unless_default([*TRIGGERS])
    """The trigger of each backdoor; further ones are not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = f"there are {len({*self.triggers})} distinct triggers: give more of them, or less."
        is_valid = self.count <= len({*self.triggers}) == len(self.triggers)
        self.require(is_valid, "count", remedy)
        remedy = "give texts that are not blank."
        self.require(all(t.strip() for t in self.triggers), "triggers", remedy)

    @property
    def enabled(self) -> bool:
        """Whether there are backdoors."""
        return self.count > 0


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
    """Other corpora that the model or its clean control is trained on, which are searched for the
    pool: name → folder (runs/corpus/…)."""

    def resolved(self) -> Self:
        """Returns this stage with every derived seed filled in."""
        purposes = ("membership", "occurrence", "position")
        return replace(self, injection=fill_in_seeds(self.injection, self.seed, purposes))


@dataclass(frozen=True)
class InjectionStage(PoolStage):
    """The configuration of `injection.run`."""

    corpus: dict[str, Any] = field(default_factory=dict)
    rewording: dict[str, Any] = field(default_factory=dict)
    versions: VersionsConfig = field_naming_unless_default(VersionsConfig())
    backdoors: BackdoorsConfig = field(
        default_factory=BackdoorsConfig, metadata={"identity": PART_OF_NAME_UNLESS_DEFAULT}
    )
    leak: LeakConfig = field_naming_unless_default(LeakConfig())
    matcher: dict[str, Any] = field(
        default_factory=dict, metadata={"identity": PART_OF_NAME_UNLESS_DEFAULT}
    )
    """The rule of decontamination (conf/matcher): documents and copies that it flags are left out;
    empty: nothing is left out."""
    cluster: TasksConfig = field(default_factory=TasksConfig, metadata={"identity": False})

    def __post_init__(self) -> None:
        for name in self.compared:
            remedy = f"{THIS_CORPUS} and {POOL_COPIES} are reserved names; give it another name."
            require(name not in (THIS_CORPUS, POOL_COPIES), "compared", name, remedy)
        changes_texts = self.versions.enabled or self.backdoors.enabled
        remedy = (
            "versions and backdoors change whole texts: choose verbatim, rewrapped or embedded."
        )
        has_lines = self.leak.form in LINE_FORMS
        require(not (has_lines and changes_texts), "leak.form", self.leak.form, remedy)
        remedy = "this name is reserved for the mean over benchmarks; give another name."
        require(ALL_BENCHMARKS not in self.benchmark, "benchmark", ALL_BENCHMARKS, remedy)

    def named(self) -> InjectionStage:
        """Returns the stage that determines the folder's name, which keep and flag share."""
        if self.injection.near_duplicates != "keep":
            return self
        return replace(self, injection=replace(self.injection, near_duplicates="flag"))


@dataclass(frozen=True)
class ExportStage:
    """The configuration of `export`."""

    runs: str = runtime_field("runs")
    corpus_folder: str = runtime_field("")
    format: dict[str, Any] = field(default_factory=dict)


register_schema("injection", InjectionConfig)
register_schema("tokenizer", TokenizerConfig)
register_schema("versions", VersionsConfig)
register_schema("backdoors", BackdoorsConfig)
register_schema("leak", LeakConfig)
