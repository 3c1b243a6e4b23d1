"""What the detection stage can be told: which texts, which model, which methods, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from contamination.core import secrets
from contamination.core.config import (
    DEVICE,
    POSITIVE,
    Ranged,
    at_least,
    limited,
    named_where_set,
    one_of,
    register,
    runtime,
)
from contamination.core.errors import require
from contamination.data.config import ExamplesConfig

DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
DTYPES = ("float32", "bfloat16", "float16")
KERNELS = ("auto", "plain")
SCOPES = WHOLE, OUTPUT, INPUT = ("whole", "output", "input")
LONG_TEXTS = ("error", "truncate", "windowed")
METHODS = Path(__file__).resolve().parents[1] / "conf" / "method"


@dataclass(frozen=True)
class DetectionConfig(Ranged, node="detection"):
    """How the model is run over the texts (node `detection`)."""

    dtype: str = limited("float32", one_of(DTYPES))
    """The weights' and activations' type; the head's products are summed in float32,
    but for models that are no body and linear head (a line says so)."""

    long_texts: str = limited("error", one_of(LONG_TEXTS))
    """A text longer than the model's context: `error`, `truncate` (score its first tokens), or
    `windowed` (score all its tokens, in windows that overlap by half of the context)."""

    min_scored_tokens: int = limited(5, at_least(1))
    """A text of fewer scored tokens is flagged and not ranked. Below 5 the papers' k = 0.2 is less
    than one token: the score would be that of a single token, or a mean over hardly more."""

    scope: str = named_where_set(WHOLE, one_of(SCOPES))
    """Which part of a text is scored: the `whole`, its `output` given its input, or its `input`."""

    device: str = runtime("auto", DEVICE)
    """`auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:<n>`."""

    device_map: str | None = runtime(None, one_of(DEVICE_MAPS))
    """How to spread the layers of a model over all devices: one of DEVICE_MAPS; null: do not."""

    batch_tokens: int = runtime(8192, at_least(1))
    """Tokens in a batch, padding included; halved for good when the device's memory runs out."""

    kernel: str = runtime("auto", one_of(KERNELS))
    """On a GPU: `auto` (the head and its statistics in one kernel, where Triton is there and the
    kernel agrees with the logits), or `plain` (a block of logits at a time)."""

    processes: int = runtime(1, at_least(1))
    """Processes, or GPUs, that each load the model and take a slice of the texts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device_map is not None:
            remedy = f"it spreads one model: detection.processes={self.processes} must be 1 then."
            self.require(self.processes == 1, "device_map", remedy)
            remedy = f"it chooses the devices, but detection.device is {self.device!r}: give auto."
            self.require(self.device == "auto", "device_map", remedy)

    def require_whole(self, why: str) -> None:
        """Raise a ConfigError where a part of each text is asked for, but whole ones are read."""
        self.require(self.scope == WHOLE, "scope", f"{why}: leave it out.")

    @property
    def of_a_pass(self) -> dict[str, str]:
        """What of the settings can change a pass; the rest is about its scores."""
        return {"dtype": self.dtype, "long_texts": self.long_texts, **self.of_the_head}

    @property
    def of_the_head(self) -> dict[str, str]:
        """What names scores by 16-bit weights: older ones were of logits rounded to 16 bits."""
        return {} if self.dtype == "float32" else {"logits": "float32"}


@dataclass(frozen=True)
class ScoredModelConfig(Ranged, node="model"):
    """The model under test (node `model`): in files at a `path`, or behind a server at a `url`."""

    path: str | None = None
    """A model folder of the training stage, a Hugging Face folder, a GGUF file, or a hub id."""
    trust_remote_code: bool = runtime(False)
    """Run the Python code that comes with the model, where it needs some."""

    url: str | None = runtime(None)
    """What stands before `/completions`, such as http://localhost:8000/v1."""
    name: str | None = None
    """The model's name at the server; null: the server's only one."""
    tokenizer: str | None = None
    """The served model's tokenizer: a Hugging Face folder or a hub id."""
    key_env: str | None = runtime(None)
    """The environment variable that holds the server's key; null: the server wants none."""
    requests: int = runtime(16, at_least(1))
    """Requests to the server at once."""
    timeout_seconds: float = runtime(120.0, POSITIVE)
    """How long to wait for an answer."""
    max_answer_bytes: int = runtime(16 * 2**20, at_least(1))
    """The longest answer that is read, in bytes after decompression."""
    retries: int = runtime(6, at_least(0))
    """How often a request is sent again after a failure that may pass."""
    tolerance: float = limited(1e-3, POSITIVE)
    """Nats: how near a bisection comes, where a server shows too little for anything better."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.url is not None:
            secrets.check_address(f"{self.node}.url", self.url)
        if self.key_env is not None:
            secrets.check_variable(f"{self.node}.key_env", self.key_env)

    @property
    def given(self) -> str | None:
        """The url or the path, if there is one."""
        return self.url or self.path


@dataclass(frozen=True)
class ReferenceConfig(ScoredModelConfig, node="reference"):
    """A model that has not seen the texts (node `reference`), for the methods that compare.

    Where neither a `path` nor a `url` is given, a pipeline that makes the base model makes another
    one, of another seed. The path `base` is the model before the training, an upper bound.
    """


@dataclass(frozen=True)
class MaskedLMConfig:
    """The masked language model that makes neighbours (node `masked_lm`)."""

    path: str | None = None
    """A Hugging Face folder or a hub id; null: none is given."""


@dataclass(frozen=True)
class PrefixConfig:
    """Texts to put before each text (node `prefix`), as ReCaLL does."""

    path: str | None = None
    """Non-member texts, none of them scored: JSONL with `text` and perhaps `benchmark`, or plain
    text, one a line; null: those that a corpus folder holds out."""


@dataclass(frozen=True)
class DetectionStage:
    """Everything that one run of the stage needs."""

    name: str = "run"
    """The experiment's name; no part of the scores' identity."""

    seed: int = 0
    """The experiment's seed, for views that draw at random. Other views don't depend on it."""

    runs: str = "runs"
    """The folder of all artefacts."""

    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    masked_lm: MaskedLMConfig = field(default_factory=MaskedLMConfig)
    prefix: PrefixConfig = field(default_factory=PrefixConfig)

    method: dict[str, Any] = field(default_factory=dict)
    """A node a method: `_target_`, a class below `detection.methods`, and its hyperparameters."""

    detection: DetectionConfig = field(default_factory=DetectionConfig)

    slice: str | None = None
    """`2/8`: make only the second eighth of each pass's parts, and no scores; null: all."""

    dry_run: bool = False
    """Whether to say only what servers would be asked."""

    out: str | None = None
    """A folder that gets `scores.parquet`, `scores.csv` and `results.json` as well."""

    out_text: bool = False
    """Whether each score in it has its text beside it."""

    def __post_init__(self) -> None:
        remedy = "choose methods, such as method=[loss,min_k]."
        require(bool(self.method), "method", self.method, remedy)


def slice_of(field: str, words: str) -> tuple[int, int]:
    """The numbers i and n, 1 ≤ i ≤ n, of a field's "i/n"."""
    number, _, of = words.partition("/")
    good = number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)
    require(good, field, words, "give such as 2/8, the second slice of eight.")
    return int(number), int(of)


register("detection", DetectionConfig)
register("scored_model", ScoredModelConfig)
register("reference", ReferenceConfig)
register("masked_lm", MaskedLMConfig)
register("prefix", PrefixConfig)
# `method=all` names every file of conf/method: a new method is in it by being there
NAMES: list[Any] = sorted(path.stem for path in METHODS.glob("*.yaml"))
ConfigStore.instance().store(group="method", name="all", node={"defaults": NAMES})
