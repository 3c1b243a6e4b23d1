"""What a cell's runs will take: time, GPU hours, memory and disk, from its plan alone.

Time is FLOPs / (`MFU` of `training.peak_tflops` of each device). A token of a training step costs
6·N + 12·L·H·Q·T (PaLM, appendix B; see `training.flops`), a third more where activations are
recomputed; one of a forward pass costs a third. Where an earlier run of a model of the same name
and dtype is recorded, its tokens a second on each device stand in. Memory is `training.memory`'s.
Left out: reading documents, start, evaluation, waiting. GB are 10^9 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from core import hub
from core.artifacts import CONFIG, is_complete
from core.models import is_gguf, resolve
from core.terminal import duration, fit
from detection.build import build_methods
from detection.views import VIEWS
from launch.costs import read_costs
from launch.folder import KIND
from launch.pipeline import Plan
from launch.shared import base_training
from launch.stages import Stages
from training.checkpoint import HF, METRICS
from training.config import ModelConfig, TrainingStage
from training.flops import flops_per_token
from training.memory import LOGIT_COPIES, Shape, config_of, need, shape_of

GB = 1e9
MFU = 0.4
"""The part of its peak that a device does; PaLM reports 0.46, LLaMA about 0.5 on A100s."""
RECOMPUTING = 4 / 3
TEXT_TOKENS = 256
SAME_SIZE = 0.05  # models whose weights differ by less are as fast
"""Of a text where `injection.example_max_tokens` sets no limit."""
HEADER = (
    "run",
    "tokens",
    "devices",
    "time",
    "GPU hours",
    "GB a device",
    "GB of host",
    "GB on disk",
)
LEAST = ("tokens", "GB of host", "GPU hours", "devices", "GB on disk", "GB a device")


@dataclass(frozen=True)
class Estimate:
    """What one run takes; None: not known."""

    run: str
    tokens: float
    devices: int = 0  # 0: no GPU
    seconds: float | None = None
    device: float | None = None  # bytes on each
    host: float | None = None  # bytes of a process
    disk: float = 0.0  # bytes at most

    def row(self) -> list[str]:
        """Its row of the table."""
        time = "–" if self.seconds is None else duration(self.seconds)
        known = self.seconds is not None and self.devices
        hours = f"{(self.seconds or 0) * self.devices / 3600:.2f}" if known else "–"
        sizes = [("–" if b is None else _gigabytes(b)) for b in (self.device, self.host, self.disk)]
        return [self.run, f"{self.tokens:,.0f}", str(self.devices or "–"), time, hours, *sizes]


@dataclass(frozen=True)
class Model:
    """A model's shape and what a token of a training step costs."""

    shape: Shape
    flops: float

    @staticmethod
    def of(model: ModelConfig, sequence_tokens: int) -> Model | None:
        """The model of the plan; None: its config is still on the hub."""
        if model.path is not None and not Path(found := resolve("model.path", model.path)).exists():
            kept = hub.kept(found)
            if kept is not None and (kept / "config.json").is_file():
                model = replace(model, path=str(kept))
            elif model.architecture is None:
                return None
        shape = shape_of(model)
        return Model(shape, flops_per_token(config_of(model), shape.parameters, sequence_tokens))


def estimates(plan: Plan, stages: Stages) -> list[Estimate]:
    """Those of the cell's runs, in their order."""
    return [*_corpora(plan), *_trainings(plan, stages), *_scores(plan, stages)]


def described(plan: Plan, stages: Stages) -> list[str]:
    """A table of them under a line that says what they rest on."""
    peak, found = plan.training.training.peak_tflops, estimates(plan, stages)
    basis = f"time at {MFU:.0%} of training.peak_tflops={peak}, or as earlier runs took"
    if peak is None:
        basis = "time as earlier runs took, else training.peak_tflops=989 (an H100's) gives it"
    table = fit([*HEADER], [one.row() for one in found], least=LEAST).lines(left=1)
    late = [_late(one, stages) for one in found]
    return [f"estimated ({basis}):", *table, *filter(None, late)]


def _late(one: Estimate, stages: Stages) -> str:
    """That a run outlasts its job."""
    stage, limit = one.run.split()[0], 0
    if stages.cluster.kind == "slurm":
        limit = stages.cluster.job(stage)["time"]
    if not limit or one.seconds is None or one.seconds <= 60 * limit:
        return ""
    return (
        f"{one.run} takes longer than cluster.jobs.{stage}.time={limit} (minutes): it is saved and "
        f"queued again, up to cluster.requeues={stages.cluster.requeues} times."
    )


def _corpora(plan: Plan) -> Iterator[Estimate]:
    own = plan.pretraining
    budgets = {"base": own.budget_tokens} if own else {}
    for run, tokens in {**budgets, "study": plan.injection.injection.budget_tokens}.items():
        yield Estimate(f"inject {run}", tokens, disk=2 * 4.0 * tokens)  # shards, then sequences


def _trainings(plan: Plan, stages: Stages) -> Iterator[Estimate]:
    world, width = stages.processes("train").count, plan.injection.injection.sequence_tokens
    study = _training("study", plan.training, plan.order.sequences, width, world)
    if plan.pretraining is None:
        yield study
        return
    own = plan.pretraining
    base = base_training(plan.training, own, world)
    yield _training("base", base, own.sequences, own.sequence_tokens, world)
    yield study
    if plan.makes_reference:
        yield _training("reference", base, own.sequences, own.sequence_tokens, world)


def _training(run: str, stage: TrainingStage, sequences: int, width: int, world: int) -> Estimate:
    config, tokens = stage.training, sequences * width
    model = Model.of(stage.model, width)
    speed = _speed(Path(stage.runs), stage, None if model is None else model.shape.parameters)
    more = RECOMPUTING if config.activation_checkpointing else 1
    per_token = None if model is None else more * model.flops
    seconds = tokens / (speed * world) if speed else _seconds(stage, tokens, per_token, world)
    one = Estimate(f"train {run}", tokens, world, seconds)
    if model is None:
        return one
    made_whole = stage.model.path is None or is_gguf(stage.model.path)
    needed = need(model.shape, config, stage.deepspeed, world, width, made_whole=made_whole)
    size = 2 if config.dtype == "bfloat16" else 4
    exports = 1 + len(config.export_steps) + len(config.export_tokens)
    disk = model.shape.parameters * (size * exports + (size + 12) * config.keep_checkpoints)
    return replace(one, device=needed.total, host=needed.host, disk=disk)


def _scores(plan: Plan, stages: Stages) -> Iterator[Estimate]:
    """Each text as long as it may be, or of `TEXT_TOKENS`; all models as large as the target."""
    own, stage = plan.injection, plan.detection
    world = max(stages.processes("detect").count, stage.detection.processes)
    texts = (own.injection.members + own.injection.nonmembers) * len(own.benchmark)
    passes = {one for method in build_methods(stage.method).values() for one in method.passes}
    longest = own.injection.example_max_tokens or TEXT_TOKENS
    tokens = texts * longest * sum(VIEWS[one.view].copies(one) for one in passes)
    model = Model.of(plan.training.model, longest)
    per_token = None if model is None else model.flops / 3
    seconds = _seconds(plan.training, tokens, per_token, world)
    one = Estimate("", tokens, world, seconds, disk=20.0 * tokens)
    if model is not None:
        size = 4 if stage.detection.dtype == "float32" else 2
        logits = stage.detection.batch_tokens * model.shape.vocabulary * 4 * LOGIT_COPIES
        one = replace(one, device=size * model.shape.parameters + logits)
    steps = plan.training.training.export_steps
    for run in ("clean", "contaminated", *(f"step-{step:08d}" for step in steps)):
        yield replace(one, run=f"detect {run}")


def _seconds(
    stage: TrainingStage, tokens: float, per_token: float | None, world: int
) -> float | None:
    """From the FLOPs of a token and the peak of a device, where both are known."""
    peak = stage.training.peak_tflops
    return tokens * per_token / (peak * 1e12 * MFU * world) if peak and per_token else None


def _speed(runs: Path, stage: TrainingStage, parameters: int | None) -> float | None:
    """Tokens a second and device of the newest recorded training of such a model; None: none."""
    costs = [c for cell in (runs / KIND).glob("*/cells/*") for c in read_costs(cell)]
    made = {Path(c.made): c.devices for c in costs if c.stage == "train" and c.made}
    found = {
        (folder / METRICS).stat().st_mtime: median(speeds) / devices
        for folder, devices in made.items()
        if is_complete(folder)
        and _is_alike(folder, stage, parameters)
        and (speeds := _speeds(folder))
    }
    return found[max(found)] if found else None


def _is_alike(folder: Path, stage: TrainingStage, parameters: int | None) -> bool:
    """Whether a training was of a model of this name and type, and of about this size."""
    config: Mapping[str, Any] = yaml.safe_load((folder / CONFIG).read_text())
    names = config.get("model", {}).get("name"), config.get("training", {}).get("dtype")
    weights = sum(file.stat().st_size for file in (folder / HF).glob("*.safetensors"))
    size = weights / (2 if stage.training.dtype == "bfloat16" else 4)
    is_size = parameters is not None and abs(size / parameters - 1) < SAME_SIZE
    return is_size and names == (stage.model.name, stage.training.dtype)


def _speeds(folder: Path) -> list[float]:
    lines = (folder / METRICS).read_text().splitlines() if (folder / METRICS).exists() else []
    return [json.loads(line)["tokens_per_second"] for line in lines]


def _gigabytes(count: float) -> str:
    return f"{count / GB:.1f}" if count >= GB / 20 else f"{count / GB:.3f}"
