"""The configuration of the tasks of this package, each with its own sub-command of `detection`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from contamination.core.config import (
    FRACTION,
    POSITIVE,
    Range,
    Ranged,
    at_least,
    between,
    one_of,
    ranged_field,
)
from contamination.core.models import resolve_model_path
from contamination.data.config import BenchmarkConfig, ExamplesConfig
from contamination.detection.config import DetectionConfig, ReferenceConfig, ScoredModelConfig

TEXT, ANSWER = "text", "answer"
PREFIXES = Range(lambda counts: bool(counts) and min(counts) > 0, "give numbers of 1 or more.")
REMEDIES = {
    "model": "Calibrate on texts that this model scored.",
    "prefix": "Score with the prefix of the calibration.",
    "settings": "Score with the settings of the calibration.",
    "chance": "Leave such methods out, or calibrate on more texts.",
    "size": "Calibrate on more texts.",
}
"""The reasons that `thresholds.override` may name; see `Calibration.iter_refusals`."""
OVERRIDE = Range(lambda names: set(names) <= set(REMEDIES), f"choose from {', '.join(REMEDIES)}.")


@dataclass(frozen=True)
class AccuracyStage:
    """The configuration of one run."""

    runs: str = "runs"
    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    benchmark: dict[str, BenchmarkConfig] = field(default_factory=dict)
    """Fields that name each benchmark's options; by default those that the corpus records."""

    def models(self) -> list[Self]:
        """Returns the stage for the model, and for the reference model if there is one."""
        model_stage = replace(self, reference=ReferenceConfig())
        if self.reference.given is None:
            return [model_stage]
        if self.reference.path is not None:
            resolve_model_path("reference.path", self.reference.path)
        return [model_stage, replace(model_stage, model=self.reference)]


@dataclass(frozen=True)
class CodecConfig(Ranged, node="codec"):
    """What stands before a text, and which of its tokens count (node `codec`)."""

    shots: int = ranged_field(1, at_least(1))
    """Other texts of the set before each text, 1 or more, or as many as the context has room for;
    the authors' notebook has 1."""

    skip_tokens: int = ranged_field(10, at_least(0))
    """The number of scored tokens at a text's beginning that do not count; the authors' notebook
    has 10. A text without others has no drop."""


@dataclass(frozen=True)
class CodecStage:
    """The configuration of one run."""

    runs: str
    seed: int
    examples: ExamplesConfig
    model: ScoredModelConfig
    detection: DetectionConfig
    codec: CodecConfig
    out: str | None = None


@dataclass(frozen=True)
class ExtractionConfig(Ranged, node="extraction"):
    """What to extract from the model (node `extraction`)."""

    target: str = ranged_field(TEXT, one_of((TEXT, ANSWER)))
    """`text`: the last tokens of each text; `answer`: a corpus's answers, after the questions."""

    tokens: int = ranged_field(50, at_least(1))
    """The number of last tokens of a text to extract; the paper's default."""

    prefix_tokens: list[int] = ranged_field([10, 25, 50], PREFIXES)
    """The numbers of context tokens before them, each in turn."""


@dataclass(frozen=True)
class ExtractionStage(AccuracyStage):
    """The configuration of one run."""

    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)


@dataclass(frozen=True)
class OnlineConfig(Ranged, node="online"):
    """The windows (node `online`)."""

    window_tokens: int = ranged_field(32, at_least(1))
    """The number of tokens per window; an incomplete window at the end of a text is left out."""


@dataclass(frozen=True)
class OnlineStage:
    """The configuration of one run."""

    runs: str
    seed: int
    examples: ExamplesConfig
    model: ScoredModelConfig
    method: dict[str, Any]
    detection: DetectionConfig
    online: OnlineConfig
    out: str | None = None


@dataclass(frozen=True)
class ThresholdStage(Ranged):
    """The configuration of a calibration, or of applying one."""

    scores: str = ranged_field("", Range(bool, "give a folder with scores.parquet."))
    """A scores folder, or a folder that `python -m detection out=…` wrote."""
    examples: str | None = None
    """Calibrate on these labelled texts: a corpus folder or a JSONL that was scored."""
    apply: str | None = None
    """A file of thresholds to apply instead."""
    override: list[str] = ranged_field([], OVERRIDE)
    """With `apply`: reasons to ignore. The thresholds are of another `model`, `prefix` or
    `settings`, are no better than `chance`, or were chosen on too few texts (`size`)."""
    out: str = "thresholds.json"
    """The output file of the thresholds; with `apply` a CSV."""
    rule: str = "accuracy"
    """accuracy, f1, or fpr (the false-positive rate below)."""
    fpr: float = 0.05
    """The false-positive rate of `rule=fpr`."""
    share: float = 0.5
    """The calibration split's share of the texts."""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give either examples=FILE to calibrate, or apply=FILE to apply."
        self.require((self.examples is None) != (self.apply is None), "apply", remedy)


@dataclass(frozen=True)
class FitConfig(Ranged, node="fit"):
    """How the network is trained (node `fit`)."""

    hidden: int = ranged_field(32, between(1, 256))
    """The units of each of the two layers."""

    epochs: int = ranged_field(20, at_least(1))
    """How often each text is read."""

    batch_texts: int = ranged_field(256, at_least(2))
    """The number of texts per step."""

    learning_rate: float = ranged_field(3e-3, POSITIVE)
    """AdamW's learning rate at the beginning; it falls to 0 as a cosine."""

    weight_decay: float = ranged_field(0.01, at_least(0))
    """AdamW's weight decay."""

    smoothing: float = ranged_field(0.02, FRACTION)
    """The label of a non-member is half of this, that of a member 1 minus it (as the authors)."""


@dataclass(frozen=True)
class TrainLtMiaStage(Ranged):
    """The configuration of a training of LT-MIA."""

    scores: list[str] = field(default_factory=list)
    """Folders of scores of the contaminated models to train on, each with a reference and over a
    corpus."""

    held_out: list[str] = field(default_factory=list)
    """Folders of scores of other contaminated models, to test with; at least two."""

    held_out_benchmarks: list[str] = field(default_factory=list)
    """Benchmarks of the cells that are not trained on; at least one."""

    fit: FitConfig = field(default_factory=FitConfig)

    seed: int = 0

    licence: str = "Apache-2.0"
    """The licence of the weights, for their data sheet."""

    limits: list[str] = field(default_factory=list)
    """What the data sheet says that the attack is not known to do."""

    out: str = "lt_mia.json"
    """The file of the weights; the data sheet is also written beside it as Markdown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len(self.scores) > 0, "scores", "give folders of scores to train on.")
        remedy = "give at least two folders of scores, for intervals over cells."
        self.require(len(self.held_out) > 1, "held_out", remedy)
        remedy = "give at least one benchmark of the cells."
        self.require(len(self.held_out_benchmarks) > 0, "held_out_benchmarks", remedy)
