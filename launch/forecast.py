"""What a cell's runs will take: time, GPU hours, memory and disk, from its plan alone.

Time is FLOPs (`launch.workload`) / those that the devices do in a second. Memory is
`training.memory`'s. Left out: reading documents, start, waiting. GB are 10^9 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from contamination.core.artifacts import is_complete, read_config
from contamination.core.errors import ArtifactError
from contamination.core.integrity import reading
from contamination.core.models import is_gguf
from contamination.core.stored_files import parse_json, read_text
from contamination.core.terminal import duration, fit
from contamination.data.readers.hub import hub_nodes
from contamination.detection.methods.registry import build_methods
from contamination.injection.finetuning.config import FINETUNING
from contamination.injection.pool import read_candidates, source_name
from contamination.injection.run import planned_copies
from contamination.launch.cells import KIND
from contamination.launch.pipeline import with_model_tokenizer
from contamination.launch.plan import CellPlan
from contamination.launch.run_records import read_costs
from contamination.launch.shared import base_training
from contamination.launch.stages import Stages
from contamination.launch.workload import (
    ModelCost,
    evaluated_tokens,
    finetuning_sequences,
    finetuning_width,
    masked_lm_flops,
    masked_lm_work,
    neighbour_tokens,
    recomputation_factor,
    scoring_work,
    sets_on_hub,
    text_tokens,
    training_work,
)
from contamination.training.config import TrainingStage
from contamination.training.resources import LOGIT_COPIES, need
from contamination.training.trained_model import HF, METRICS

MFU = 0.4
"""The part of its peak that a device does; PaLM reports 0.46, LLaMA about 0.5 on A100s."""
SAME_SIZE = 0.05
"""Models whose weights differ by less are as fast."""


def pace(stage: TrainingStage, model: ModelCost | None) -> float | None:
    """FLOPs a second of one device with such a model; None: not known."""
    if model is None:
        return None
    peak, earlier = stage.training.peak_tflops, _earlier(stage, model)
    return earlier or (peak * 1e12 * MFU if peak else None)


def _earlier(stage: TrainingStage, model: ModelCost) -> float | None:
    """That of the newest recorded training of such a model; None: there is none."""
    cells = (Path(stage.runs) / KIND).glob("*/cells/*")
    costs = [cost for cell in cells for cost in read_costs(cell)]
    made = {Path(c.made): c.devices for c in costs if c.stage == "train" and c.made}
    found: dict[float, float] = {}
    for folder, devices in made.items():
        with suppress(ArtifactError), reading(folder):  # a damaged one says nothing
            if is_complete(folder) and (speeds := _speeds(folder)):
                config = read_config(folder)
                if _is_alike(folder, config, stage, model):
                    flops = model.flops * recomputation_factor(config["training"])
                    when = (folder / METRICS).stat().st_mtime
                    found[when] = flops * median(speeds) / devices
    return found[max(found)] if found else None


def _is_alike(
    folder: Path, config: Mapping[str, Any], stage: TrainingStage, model: ModelCost
) -> bool:
    """Whether a training was of a model of this name and type, and of about this size."""
    names = config.get("model", {}).get("name"), config.get("training", {}).get("dtype")
    weights = sum(file.stat().st_size for file in (folder / HF).glob("*.safetensors"))
    size = weights / (2 if stage.training.dtype == "bfloat16" else 4)
    is_size = abs(size / model.shape.parameters - 1) < SAME_SIZE
    return is_size and names == (stage.model.name, stage.training.dtype)


def _speeds(folder: Path) -> list[float]:
    """Tokens a second of all devices, at each step."""
    lines = read_text(folder / METRICS).splitlines() if (folder / METRICS).exists() else []
    return [parse_json(line)["tokens_per_second"] for line in lines]


GB = 1e9
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
class RunForecast:
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


def estimates(plan: CellPlan, stages: Stages) -> list[RunForecast]:
    """Those of the cell's runs, in their order."""
    tuned = finetuning_sequences(plan)
    made = [*_corpora(plan, tuned), *_trainings(plan, stages, tuned)]
    return [*made, *_scores(plan, stages)]


def described(plan: CellPlan, stages: Stages) -> list[str]:
    """A table of them under a line that says what they rest on."""
    peak, found = plan.training.training.peak_tflops, estimates(plan, stages)
    basis = f"time at {MFU:.0%} of training.peak_tflops={peak}, or as earlier runs took"
    if peak is None:
        basis = "time as earlier runs took, else training.peak_tflops=989 (an H100's) gives it"
    table = fit([*HEADER], [one.row() for one in found], least=LEAST).lines(left=1)
    notes = [_second(plan), _neighbours(plan), _writing(plan)]
    notes += [_late(one, stages) for one in found]
    return [f"estimated ({basis}):", *table, *filter(None, notes)]


def _late(one: RunForecast, stages: Stages) -> str:
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


def _second(plan: CellPlan) -> str:
    """That the second stage is left out, where its clean texts are not here."""
    away = ", ".join(f"second_stage.instructions.{name}" for name in sets_on_hub(plan))
    return f"the second stage is left out: the hub has {away}." if away else ""


def _neighbours(plan: CellPlan) -> str:
    """That making neighbours is left out, where the model that makes them is not known."""
    path = plan.detection.masked_lm.path
    if path is None or not neighbour_tokens(plan) or masked_lm_flops(plan, text_tokens(plan)):
        return ""
    return f"making neighbours is left out: the size of masked_lm.path={path} is not known here."


def _writing(plan: CellPlan) -> str:
    """That tokens written one after another take longer than their FLOPs say."""
    methods = build_methods(plan.detection.method).items()
    slow = sorted({name for (name, _), method in methods if method.generates})
    if not slow:
        return ""
    return f"for {', '.join(slow)} the models write, which takes longer than is estimated here."


def _corpora(plan: CellPlan, tuned: int | None) -> Iterator[RunForecast]:
    own, trained = plan.pretraining, plan.training
    width = plan.injection.injection.sequence_tokens
    budgets = {"base": own.budget_tokens} if own else {}
    budgets["study"] = plan.injection.injection.budget_tokens
    if plan.second.members_in == FINETUNING:
        budgets["clean"] = budgets["study"]
    if trained.training.evaluate_every_steps and not trained.validation_folder:
        budgets["validation"] = max(trained.training.evaluate_tokens, width)
    for run, tokens in budgets.items():
        yield RunForecast(f"inject {run}", tokens, disk=2 * 4.0 * tokens)  # shards, then sequences
    if tuned:
        tokens = tuned * finetuning_width(plan)
        yield RunForecast(
            "inject finetuning", tokens, disk=9.0 * tokens
        )  # with its text and output


def _trainings(plan: CellPlan, stages: Stages, tuned: int | None) -> Iterator[RunForecast]:
    world, width = stages.processes("train").count, plan.injection.injection.sequence_tokens
    sequences, evaluated = plan.order.sequences, evaluated_tokens(plan)
    study = _training("study", plan.training, sequences, width, world, evaluated)
    last = _finetuning(plan, world, tuned)
    own = plan.pretraining
    if own is None:
        yield from [study, *last]
        return
    base = base_training(plan.training, own, world)
    yield _training("base", base, own.sequences, own.sequence_tokens, world)
    yield from [study, *last]
    if plan.makes_reference:
        yield _training("reference", base, own.sequences, own.sequence_tokens, world)
    if plan.makes_masked_lm:
        work = masked_lm_work(plan)
        yield RunForecast("train masked_lm", work.tokens, 1, work.seconds(_pace(plan), 1))


def _finetuning(plan: CellPlan, world: int, sequences: int | None) -> list[RunForecast]:
    """The second stage's, where there is one and what it will read is here."""
    if not sequences:
        return []
    own, peak = plan.second.training, plan.training.training.peak_tflops
    stage = replace(plan.training, training=replace(own, peak_tflops=own.peak_tflops or peak))
    return [_training("finetuning", stage, sequences, finetuning_width(plan), world)]


def _training(
    run: str, stage: TrainingStage, sequences: int, width: int, world: int, evaluated: int = 0
) -> RunForecast:
    config, model = stage.training, ModelCost.of(stage.model, width)
    work = training_work(stage, sequences, width, model, evaluated)
    one = RunForecast(f"train {run}", work.tokens, world, work.seconds(pace(stage, model), world))
    if model is None:
        return one
    made_whole = stage.model.path is None or is_gguf(stage.model.path)
    needed = need(model.shape, config, stage.deepspeed, world, width, made_whole=made_whole)
    size = 2 if config.dtype == "bfloat16" else 4
    exports = 1 + len(config.export_steps) + len(config.export_tokens)
    disk = model.shape.parameters * (size * exports + (size + 12) * config.keep_checkpoints)
    return replace(one, device=needed.total, host=needed.host, disk=disk)


def _pace(plan: CellPlan) -> float | None:
    width = plan.injection.injection.sequence_tokens
    return pace(plan.training, ModelCost.of(plan.training.model, width))


def _scores(plan: CellPlan, stages: Stages) -> Iterator[RunForecast]:
    """Each text as long as it may be, or of `TEXT_TOKENS`; all models as large as the target."""
    stage = plan.detection
    world = max(stages.processes("detect").count, stage.detection.processes)
    world *= stages.cluster.slices
    model = ModelCost.of(plan.training.model, text_tokens(plan))
    speed, device = _pace(plan), None
    if model is not None:
        size = 4 if stage.detection.dtype == "float32" else 2
        logits = stage.detection.batch_tokens * model.shape.vocabulary * 4 * LOGIT_COPIES
        device = size * model.shape.parameters + logits
    for run in ("clean", "contaminated", *(f"step-{n:08d}" for n in plan.last.export_steps)):
        work = scoring_work(plan, model, first=run == "clean")
        taken, disk = work.seconds(speed, world), 20.0 * work.tokens
        yield RunForecast(f"detect {run}", work.tokens, world, taken, device=device, disk=disk)


def _gigabytes(count: float) -> str:
    return f"{count / GB:.1f}" if count >= GB / 20 else f"{count / GB:.3f}"


def plan_summary(plan: CellPlan) -> list[str]:
    """A line on the insertions and one on the training.

    Raises:
        UserError: a benchmark that is at hand can't be used, or the copies don't fit.
    """
    own, order = plan.training.training, plan.order
    width = plan.injection.injection.sequence_tokens
    return [
        f"insertions: {_insertions(plan)}",
        f"training: {order.steps:,} steps of {order.batch} × {width:,} tokens, learning rate "
        f"{own.learning_rate:g}, {own.schedule}"
        + (f", warm-up {own.warmup} steps" if own.warmup else ""),
    ]


def _insertions(plan: CellPlan) -> str:
    stage = with_model_tokenizer(plan, None)
    named = {name: c.sources[source_name(stage, name, c)] for name, c in stage.benchmark.items()}
    away = [name for name, source in named.items() if any(hub_nodes(source))]
    here = {name: c for name, c in stage.benchmark.items() if name not in away}
    candidates = read_candidates(replace(stage, benchmark=here))
    path = stage.tokenizer.path
    if away:
        return f"not known before {', '.join(away)} can be read from the hub"
    if path is None:
        return "not known before the tokenizer is trained"
    if not Path(path).exists():
        return f"not known before the tokenizer of {path} can be read from the hub"
    copies, total = planned_copies(stage, candidates), stage.injection.budget_tokens
    return (
        f"{len(copies.segments):,} copies, with separators {copies.tokens:,} of {total:,} tokens "
        f"({copies.tokens / total:.1%})"
    )
