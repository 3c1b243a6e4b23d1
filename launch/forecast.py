"""Forecasts the time, GPU hours, memory and disk of a cell's runs from its plan alone.

Time is the FLOPs of a run (`launch.workload`) divided by the FLOPs per second of its devices.
Memory is estimated by `training.resources`. Reading documents, starting processes and waiting are
left out. 1 GB is 10^9 bytes.
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
from contamination.core.integrity import naming_folders
from contamination.core.models import is_gguf
from contamination.core.stored_files import parse_json, read_text
from contamination.core.terminal import duration, fit_columns
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
from contamination.training.resources import LOGIT_COPIES, memory_need
from contamination.training.trained_model import HF, METRICS

MFU = 0.4
"""The assumed share of its peak that a device reaches; PaLM reports 0.46, LLaMA about 0.5."""
SAME_SIZE = 0.05
"""Models whose sizes differ by a smaller share count as equally fast."""


def flops_per_second(stage: TrainingStage, model: ModelCost | None) -> float | None:
    """Return the speed of one device with such a model; None if not known.

    It is what the newest recorded training of a similar model reached, else `MFU` of
    training.peak_tflops.
    """
    if model is None:
        return None
    peak, measured = stage.training.peak_tflops, _measured_flops_per_second(stage, model)
    return measured or (peak * 1e12 * MFU if peak else None)


def _measured_flops_per_second(stage: TrainingStage, model: ModelCost) -> float | None:
    """Return the speed of the newest recorded training of a similar model; None without one."""
    cells = (Path(stage.runs) / KIND).glob("*/cells/*")
    costs = [cost for cell in cells for cost in read_costs(cell)]
    devices_by_folder = {Path(c.made): c.devices for c in costs if c.stage == "train" and c.made}
    speed_by_time: dict[float, float] = {}
    for folder, devices in devices_by_folder.items():
        with suppress(ArtifactError), naming_folders(folder):  # damaged folders are skipped
            if is_complete(folder) and (speeds := _tokens_per_second(folder)):
                config = read_config(folder)
                if _is_similar(folder, config, stage, model):
                    flops = model.flops * recomputation_factor(config["training"])
                    modified = (folder / METRICS).stat().st_mtime
                    speed_by_time[modified] = flops * median(speeds) / devices
    return speed_by_time[max(speed_by_time)] if speed_by_time else None


def _is_similar(
    folder: Path, config: Mapping[str, Any], stage: TrainingStage, model: ModelCost
) -> bool:
    """Whether a training was of a model of this name and dtype, and of about this size."""
    names = config.get("model", {}).get("name"), config.get("training", {}).get("dtype")
    weights = sum(file.stat().st_size for file in (folder / HF).glob("*.safetensors"))
    size = weights / (2 if stage.training.dtype == "bfloat16" else 4)
    is_same_size = abs(size / model.shape.parameters - 1) < SAME_SIZE
    return is_same_size and names == (stage.model.name, stage.training.dtype)


def _tokens_per_second(folder: Path) -> list[float]:
    """Return the tokens per second of all devices at each step of a training."""
    lines = read_text(folder / METRICS).splitlines() if (folder / METRICS).exists() else []
    return [parse_json(line)["tokens_per_second"] for line in lines]


GB = 1e9
HEADER = (
    "run",
    "tokens",
    "devices",
    "time",
    "GPU hours",
    "GB per device",
    "GB of host",
    "GB on disk",
)
LEAST = ("tokens", "GB of host", "GPU hours", "devices", "GB on disk", "GB per device")


@dataclass(frozen=True)
class RunForecast:
    """The forecast of one run; None: not known."""

    run: str
    tokens: float
    devices: int = 0  # 0: no GPU
    seconds: float | None = None
    device: float | None = None  # bytes of memory on each device
    host: float | None = None  # bytes of memory of each process
    disk: float = 0.0  # bytes at most

    def row(self) -> list[str]:
        """Return the run's row of the table."""
        time = "–" if self.seconds is None else duration(self.seconds)
        has_gpu_hours = self.seconds is not None and self.devices
        hours = f"{(self.seconds or 0) * self.devices / 3600:.2f}" if has_gpu_hours else "–"
        sizes = [("–" if b is None else _gigabytes(b)) for b in (self.device, self.host, self.disk)]
        return [self.run, f"{self.tokens:,.0f}", str(self.devices or "–"), time, hours, *sizes]


def estimates(plan: CellPlan, stages: Stages) -> list[RunForecast]:
    """Return the forecasts of the cell's runs in their order."""
    tuned = finetuning_sequences(plan)
    corpora, trainings = _corpora(plan, tuned), _trainings(plan, stages, tuned)
    return [*corpora, *trainings, *_scores(plan, stages)]


def described(plan: CellPlan, stages: Stages) -> list[str]:
    """Return the lines of a table of the forecasts, under a line that states their basis."""
    peak, forecasts = plan.training.training.peak_tflops, estimates(plan, stages)
    basis = f"time at {MFU:.0%} of training.peak_tflops={peak}, or as earlier runs took"
    if peak is None:
        basis = "time as earlier runs took, else training.peak_tflops=989 (an H100's) gives it"
    table = fit_columns([*HEADER], [run.row() for run in forecasts], least=LEAST).lines(
        n_left_aligned=1
    )
    notes = [_second_stage_note(plan), _neighbours_note(plan), _generation_note(plan)]
    notes += [_time_limit_note(run, stages) for run in forecasts]
    return [f"estimated ({basis}):", *table, *filter(None, notes)]


def _time_limit_note(forecast: RunForecast, stages: Stages) -> str:
    """Return a note if the run takes longer than its SLURM job may; else an empty string."""
    stage, limit = forecast.run.split()[0], 0
    if stages.cluster.kind == "slurm":
        limit = stages.cluster.job(stage)["time"]
    if not limit or forecast.seconds is None or forecast.seconds <= 60 * limit:
        return ""
    return (
        f"{forecast.run} takes longer than cluster.jobs.{stage}.time={limit} (minutes): it is "
        f"saved and queued again, up to cluster.requeues={stages.cluster.requeues} times."
    )


def _second_stage_note(plan: CellPlan) -> str:
    """Return a note if the second stage is left out because its clean texts are on the hub."""
    away = ", ".join(f"second_stage.instructions.{name}" for name in sets_on_hub(plan))
    return f"the second stage is left out: the hub has {away}." if away else ""


def _neighbours_note(plan: CellPlan) -> str:
    """Return a note if neighbours are left out because their model's size is not known."""
    path = plan.detection.masked_lm.path
    if path is None or not neighbour_tokens(plan) or masked_lm_flops(plan, text_tokens(plan)):
        return ""
    return f"making neighbours is left out: the size of masked_lm.path={path} is not known here."


def _generation_note(plan: CellPlan) -> str:
    """Return a note if methods generate text, which takes longer than its FLOPs suggest."""
    methods = build_methods(plan.detection.method).items()
    generating = sorted({name for (name, _), method in methods if method.generates})
    if not generating:
        return ""
    names = ", ".join(generating)
    return f"for {names} the models generate text, which takes longer than is estimated here."


def _corpora(plan: CellPlan, tuned: int | None) -> Iterator[RunForecast]:
    pretraining, trained = plan.pretraining, plan.training
    width = plan.injection.injection.sequence_tokens
    budgets = {"base": pretraining.budget_tokens} if pretraining else {}
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
    finetuning = _finetuning(plan, world, tuned)
    pretraining = plan.pretraining
    if pretraining is None:
        yield from [study, *finetuning]
        return
    base = base_training(plan.training, pretraining, world)
    base_size = pretraining.n_sequences, pretraining.sequence_tokens
    yield _training("base", base, *base_size, world)
    yield from [study, *finetuning]
    if plan.makes_reference:
        yield _training("reference", base, *base_size, world)
    if plan.makes_masked_lm:
        work = masked_lm_work(plan)
        yield RunForecast("train masked_lm", work.tokens, 1, work.seconds(_device_speed(plan), 1))


def _finetuning(plan: CellPlan, world: int, sequences: int | None) -> list[RunForecast]:
    """Return the second stage's forecast; empty without one, or if its texts are on the hub."""
    if not sequences:
        return []
    config, peak = plan.second.training, plan.training.training.peak_tflops
    config = replace(config, peak_tflops=config.peak_tflops or peak)
    stage = replace(plan.training, training=config)
    return [_training("finetuning", stage, sequences, finetuning_width(plan), world)]


def _training(
    run: str, stage: TrainingStage, sequences: int, width: int, world: int, evaluated: int = 0
) -> RunForecast:
    config, model = stage.training, ModelCost.of(stage.model, width)
    work = training_work(stage, sequences, width, model, evaluated)
    seconds = work.seconds(flops_per_second(stage, model), world)
    forecast = RunForecast(f"train {run}", work.tokens, world, seconds)
    if model is None:
        return forecast
    made_whole = stage.model.path is None or is_gguf(stage.model.path)
    needed = memory_need(model.shape, config, stage.deepspeed, world, width, made_whole=made_whole)
    size = 2 if config.dtype == "bfloat16" else 4
    exports = 1 + len(config.export_steps) + len(config.export_tokens)
    disk = model.shape.parameters * (size * exports + (size + 12) * config.keep_checkpoints)
    return replace(forecast, device=needed.total, host=needed.host, disk=disk)


def _device_speed(plan: CellPlan) -> float | None:
    width = plan.injection.injection.sequence_tokens
    return flops_per_second(plan.training, ModelCost.of(plan.training.model, width))


def _scores(plan: CellPlan, stages: Stages) -> Iterator[RunForecast]:
    """Assume texts of full length, or of `TEXT_TOKENS`, and all models as large as the target."""
    stage = plan.detection
    world = max(stages.processes("detect").count, stage.detection.processes)
    world *= stages.cluster.slices
    model = ModelCost.of(plan.training.model, text_tokens(plan))
    speed, device = _device_speed(plan), None
    if model is not None:
        size = 4 if stage.detection.dtype == "float32" else 2
        logits = stage.detection.batch_tokens * model.shape.vocabulary * 4 * LOGIT_COPIES
        device = size * model.shape.parameters + logits
    for run in ("clean", "contaminated", *(f"step-{n:08d}" for n in plan.last.export_steps)):
        work = scoring_work(plan, model, first=run == "clean")
        seconds, disk = work.seconds(speed, world), 20.0 * work.tokens
        yield RunForecast(f"detect {run}", work.tokens, world, seconds, device=device, disk=disk)


def _gigabytes(count: float) -> str:
    return f"{count / GB:.1f}" if count >= GB / 20 else f"{count / GB:.3f}"


def plan_summary(plan: CellPlan) -> list[str]:
    """Return one line about the insertions and one about the training.

    Raises:
        UserError: a benchmark can't be used, or the copies don't fit into the corpus.
    """
    config, order = plan.training.training, plan.order
    width = plan.injection.injection.sequence_tokens
    return [
        f"insertions: {_insertions(plan)}",
        f"training: {order.steps:,} steps of {order.batch} × {width:,} tokens, learning rate "
        f"{config.learning_rate:g}, {config.schedule}"
        + (
            f", warm-up {config.effective_warmup_steps} steps"
            if config.effective_warmup_steps
            else ""
        ),
    ]


def _insertions(plan: CellPlan) -> str:
    stage = with_model_tokenizer(plan, None)
    sources = {name: c.sources[source_name(stage, name, c)] for name, c in stage.benchmark.items()}
    on_hub = [name for name, source in sources.items() if any(hub_nodes(source))]
    local = {name: c for name, c in stage.benchmark.items() if name not in on_hub}
    candidates = read_candidates(replace(stage, benchmark=local))
    path = stage.tokenizer.path
    if on_hub:
        return f"not known before {', '.join(on_hub)} can be read from the hub"
    if path is None:
        return "not known before the tokenizer is trained"
    if not Path(path).exists():
        return f"not known before the tokenizer of {path} can be read from the hub"
    copies, total = planned_copies(stage, candidates), stage.injection.budget_tokens
    return (
        f"{len(copies.segments):,} copies, with separators {copies.total_tokens:,} of {total:,} "
        f"tokens ({copies.total_tokens / total:.1%})"
    )
