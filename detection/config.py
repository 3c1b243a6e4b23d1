"""The configuration of the detection stage: texts, models, methods, and how they are run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from contamination.core import secrets
from contamination.core.config import (
    DEVICE,
    FRACTION_OR_ZERO,
    POSITIVE,
    PROPER_FRACTION,
    Range,
    Ranged,
    at_least,
    field_naming_unless_default,
    one_of,
    ranged_field,
    register_schema,
    runtime_field,
)
from contamination.core.errors import require
from contamination.data.config import ExamplesConfig

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
DTYPES = ("float32", "bfloat16", "float16")
KERNELS = ("auto", "plain")
SCOPES = WHOLE, OUTPUT, INPUT = ("whole", "output", "input")
LONG_TEXTS = ("error", "truncate", "windowed")
METHODS_FOLDER = Path(__file__).resolve().parents[1] / "conf" / "method"

LENGTHS = Range(
    lambda lengths: len({*lengths}) == len(lengths) > 0 and min(lengths) > 0,
    "give lengths in words, each once, such as [32,64].",
)


@dataclass(frozen=True)
class DetectionConfig(Ranged, node="detection"):
    """How the model is run over the texts (node `detection`)."""

    dtype: str = ranged_field("float32", one_of(DTYPES))
    """The type of weights and activations. The head's products are summed in float32, except for
    models that are not a body with a linear head (a log line says so)."""

    long_texts: str = ranged_field("error", one_of(LONG_TEXTS))
    """What to do with a text longer than the model's context. `error`, `truncate` (score its first
    tokens), or `windowed` (score all tokens, in windows that overlap by half of the context)."""

    min_scored_tokens: int = ranged_field(5, at_least(1))
    """A text with fewer scored tokens is flagged and not ranked. With fewer than 5, the papers'
    k = 0.2 is less than one token, so that the score would depend on a single token."""

    scope: str = field_naming_unless_default(WHOLE, one_of(SCOPES))
    """Which part is scored: the `whole` text, its `output` given its input, or its `input`."""

    device: str = runtime_field("auto", DEVICE)
    """`auto` (CUDA if available), `cpu`, `cuda` or `cuda:<n>`."""

    device_map: str | None = runtime_field(None, one_of(DEVICE_MAPS))
    """How to spread the layers of a model over all devices: one of DEVICE_MAPS; null does not."""

    batch_tokens: int = runtime_field(8192, at_least(1))
    """Tokens per batch, including padding; halved for the rest of a pass if memory runs out."""

    kernel: str = runtime_field("auto", one_of(KERNELS))
    """On a GPU: `auto` (the head of a 16-bit model and its statistics in one kernel, if Triton is
    installed and the kernel agrees with the logits), or `plain` (a block of logits at a time)."""

    processes: int = runtime_field(1, at_least(1))
    """Processes, or GPUs, that each load the model and take a slice of the texts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device_map is not None:
            remedy = f"it spreads one model: detection.processes={self.processes} must be 1 then."
            self.require(self.processes == 1, "device_map", remedy)
            remedy = f"it chooses the devices, but detection.device is {self.device!r}: give auto."
            self.require(self.device == "auto", "device_map", remedy)

    def require_whole_texts(self, reason: str) -> None:
        """Raises a ConfigError if `scope` selects a part of each text, which is not supported."""
        self.require(self.scope == WHOLE, "scope", f"{reason}: leave it out.")

    @property
    def pass_settings(self) -> dict[str, str]:
        """The settings that can change a pass; the others affect only scores."""
        return {"dtype": self.dtype, "long_texts": self.long_texts, **self.head_settings}

    @property
    def head_settings(self) -> dict[str, str]:
        """A setting that distinguishes scores from 16-bit weights from those of earlier versions.

        Earlier versions rounded the logits to 16 bits.
        """
        return {} if self.dtype == "float32" else {"logits": "float32"}


@dataclass(frozen=True)
class ScoredModelConfig(Ranged, node="model"):
    """The model under test (node `model`): in files at a `path`, or behind a server at a `url`."""

    path: str | None = None
    """A folder of the training stage or Hugging Face, a GGUF file, or a hub id."""
    trust_remote_code: bool = runtime_field(False)
    """Whether to run Python code that comes with the model, if it needs any."""

    url: str | None = runtime_field(None)
    """The server's base URL, such as http://localhost:8000/v1. It has no `/completions`."""
    name: str | None = None
    """The model's name at the server; null selects the server's only model."""
    tokenizer: str | None = None
    """The served model's tokenizer: a Hugging Face folder or a hub id."""
    key_env: str | None = runtime_field(None)
    """The environment variable with the server's key; null if the server needs no key."""
    requests: int = runtime_field(16, at_least(1))
    """The number of concurrent requests to the server."""
    timeout_seconds: float = runtime_field(120.0, POSITIVE)
    """How long to wait for an answer, in seconds."""
    max_answer_bytes: int = runtime_field(16 * 2**20, at_least(1))
    """The maximum size of an answer, in bytes after decompression."""
    retries: int = runtime_field(6, at_least(0))
    """How often a request is repeated after a temporary failure."""
    tolerance: float = ranged_field(1e-3, POSITIVE)
    """The precision of a bisection in nats, used if a server offers nothing more exact."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.url is not None:
            secrets.check_url_contains_no_key(f"{self.node}.url", self.url)
        if self.key_env is not None:
            secrets.check_is_variable_name(f"{self.node}.key_env", self.key_env)

    @property
    def given(self) -> str | None:
        """The url, else the path, else None."""
        return self.url or self.path


@dataclass(frozen=True)
class ReferenceConfig(ScoredModelConfig, node="reference"):
    """A model that has not seen the texts (node `reference`), for methods that compare with it.

    Without a `path` or a `url`, a pipeline that pretrains the base model pretrains another model
    with another seed. The path `base` is the model before training, which gives an upper bound.
    """


@dataclass(frozen=True)
class NeighborModelConfig:
    """The masked language model that makes neighbours (node `masked_lm`)."""

    path: str | None = None
    """A Hugging Face folder or a hub id; null for none."""


@dataclass(frozen=True)
class PrefixConfig:
    """Texts to put before each text (node `prefix`), as ReCaLL does."""

    path: str | None = None
    """Non-member texts, none of them scored: JSONL with `text` and optionally `benchmark`, or plain
    text, one per line; null uses the texts that a corpus folder holds out. Lines of JSONL with
    `member`: true are the members that Con-ReCaLL needs."""


@dataclass(frozen=True)
class ScoringNodes:
    """The nodes of a stage that scores texts: the models, the methods and how they are run."""

    name: str = "run"
    """The experiment's name; not part of the scores' identity."""

    seed: int = 0
    """The experiment's seed, for views with random choices. Other views do not depend on it."""

    runs: str = "runs"
    """The folder of all artefacts."""

    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    masked_lm: NeighborModelConfig = field(default_factory=NeighborModelConfig)
    prefix: PrefixConfig = field(default_factory=PrefixConfig)

    method: dict[str, Any] = field(default_factory=dict)
    """One node per method: its class as `_target_`, and its hyperparameters."""

    detection: DetectionConfig = field(default_factory=DetectionConfig)


@dataclass(frozen=True)
class DetectionStage(ScoringNodes):
    """The configuration of one run of the stage."""

    examples: ExamplesConfig = field(default_factory=ExamplesConfig)

    slice: str | None = None
    """`2/8` makes only the second eighth of each pass's parts, and no scores; null makes all."""

    dry_run: bool = False
    """Whether to only print the requests that servers would receive."""

    out: str | None = None
    """A folder for `scores.parquet`, `scores.csv` and `results.json`."""

    out_text: bool = False
    """Whether the files in `out` include the texts."""

    def __post_init__(self) -> None:
        remedy = "choose methods, such as method=[loss,min_k]."
        require(bool(self.method), "method", self.method, remedy)


@dataclass(frozen=True)
class ProbeStage:
    """The configuration of a probe of a server."""

    runs: str = "runs"
    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    method: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ViewConfig(Ranged, node="view"):
    """Which examples are shown (node `view`)."""

    examples: int = ranged_field(50, at_least(1))
    """How many members, non-members and texts without a label, each drawn by the seed."""

    ids: list[str] | None = None
    """The ids of the examples to show instead, in their order; null: examples are drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give at least one id, or null: examples are drawn."
        self.require(self.ids is None or len(self.ids) > 0, "ids", remedy)


@dataclass(frozen=True)
class ViewStage(DetectionStage):
    """The configuration of the scores, and of the page."""

    view: ViewConfig = field(default_factory=ViewConfig)

    out: str = "view.html"
    """The page to write."""


@dataclass(frozen=True)
class BuildConfig(Ranged, node="build"):
    """The settings of the benchmark (node `build`)."""

    members_before: str = MISSING
    """Members were created before this date (UTC)."""
    nonmembers_from: str = MISSING
    """Non-members were created from this date on (UTC)."""
    number: int = ranged_field(1000, at_least(10))
    """The number of members of each set, and of non-members."""
    lengths: list[int] = ranged_field([32, 64, 128, 256], LENGTHS)
    """Lengths of the texts in words. All sets have the same documents, which have at least the
    longest length."""
    candidates: int = ranged_field(4, at_least(1))
    """Candidates per requested document, since many are too short."""
    near_duplicates: str = ranged_field("report", one_of(("report", "drop")))
    """Texts that share 13 words in a row with the other label: report, or drop both."""
    slices: str = ranged_field("none", one_of(("none", "month")))
    """`month`: one set per month of the non-members' creation, for a moving cut-off."""
    least_bleu: float = ranged_field(0.75, PROPER_FRACTION)
    """The lower bound of a reworded text's BLEU."""
    processes: int = runtime_field(1, at_least(1))
    """Processes that read files in parallel."""


@dataclass(frozen=True)
class BuildStage:
    """The configuration of one run."""

    runs: str = runtime_field("runs")
    seed: int = 0
    source: dict[str, Any] = field(default_factory=dict)
    rewording: dict[str, Any] = field(default_factory=dict)
    build: BuildConfig = field(default_factory=BuildConfig)


@dataclass(frozen=True)
class SelectConfig(Ranged, node="select"):
    """The rule by which candidates are kept (node `select`)."""

    ngram: int = ranged_field(13, at_least(1))
    """The number of words per n-gram; MIMIR uses 7 and 13."""
    max_share: float = ranged_field(0.2, FRACTION_OR_ZERO)
    """The largest share of a text's n-grams in the corpus; MIMIR uses 0.2 and 0.8."""
    processes: int = runtime_field(1, at_least(1))
    """Processes that read the corpus's files in parallel."""


@dataclass(frozen=True)
class SelectStage:
    """The configuration of one run."""

    runs: str = runtime_field("runs")
    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    corpus_folder: str | None = None
    """A corpus of the testbed: its packed sequences, including copies of members."""
    corpus: dict[str, Any] | None = None
    """Or any documents: a choice of conf/corpus."""
    select: SelectConfig = field(default_factory=SelectConfig)

    def __post_init__(self) -> None:
        remedy = "give either corpus_folder=runs/corpus/DIR or corpus=local_jsonl (or another)."
        exactly_one = (self.corpus_folder is None) != (self.corpus is None)
        require(exactly_one, "corpus_folder", self.corpus_folder, remedy)


def parse_slice(field: str, text: str) -> tuple[int, int]:
    """Parses "i/n" with 1 ≤ i ≤ n, and returns i and n."""
    number, _, n_slices = text.partition("/")
    are_numbers = number.isdecimal() and n_slices.isdecimal()
    is_valid = are_numbers and 1 <= int(number) <= int(n_slices)
    require(is_valid, field, text, "give a slice such as 2/8, the second of eight.")
    return int(number), int(n_slices)


register_schema("detection", DetectionConfig)
register_schema("scored_model", ScoredModelConfig)
register_schema("reference", ReferenceConfig)
register_schema("masked_lm", NeighborModelConfig)
register_schema("prefix", PrefixConfig)
# `method=all` names every file of conf/method, so a new file there needs no other change
METHOD_NAMES: list[Any] = sorted(path.stem for path in METHODS_FOLDER.glob("*.yaml"))
ConfigStore.instance().store(group="method", name="all", node={"defaults": METHOD_NAMES})
