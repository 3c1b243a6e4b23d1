"""Forecasts the time, GPU hours, memory and disk of a cell's runs from its plan alone.

Time is the FLOPs of a run (`launch.workload`) divided by the FLOPs per second of its devices.
Memory is estimated by `training.resources`. Reading documents, starting processes and waiting are
left out. 1 GB is 10^9 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from contamination.core.artifacts import is_complete, read_config
from contamination.core.errors import ArtifactError
from contamination.core.integrity import errors_naming_folders
from contamination.core.models import is_gguf
from contamination.core.stored_files import parse_json, read_text
from contamination.core.terminal import fit_columns, format_duration
from contamination.detection.methods.registry import build_methods
from contamination.injection.finetuning.config import FINETUNING
from contamination.launch import workload
from contamination.launch.cells import KIND
from contamination.launch.plan import CellPlan
from contamination.launch.run_records import read_costs
from contamination.launch.shared_artifacts import make_base_training_stage
from contamination.launch.stage_runner import Stages
from contamination.training.config import TrainingStage
from contamination.training.resources import LOGIT_COPIES, memory_need
from contamination.training.trained_model import HF, METRICS

MFU = 0.4
"""The assumed share of its peak that a device reaches; PaLM reports 0.46, LLaMA about 0.5."""
SAME_SIZE = 0.05
"""Models whose sizes differ by a smaller share count as equally fast."""


def flops_per_second(stage: TrainingStage, model: workload.ModelCost | None) -> float | None:
    """Returns the speed of one device with such a model; None if not known.

    It is what the newest recorded training of a similar model reached, else `MFU` of
    training.peak_tflops.
    """
    if model is None:
        return None
    peak, measured = stage.training.peak_tflops, _measured_flops_per_second(stage, model)
    return measured or (peak * 1e12 * MFU if peak else None)


def _measured_flops_per_second(stage: TrainingStage, model: workload.ModelCost) -> float | None:
    """Returns the speed of the newest recorded training of a similar model; None without one."""
    cell_folders = (Path(stage.runs) / KIND).glob("*/cells/*")
    costs = [cost for cell in cell_folders for cost in read_costs(cell)]
    devices_by_folder = {Path(c.made): c.devices for c in costs if c.stage == "train" and c.made}
    speed_by_time: dict[float, float] = {}
    for folder, devices in devices_by_folder.items():
        with suppress(ArtifactError), errors_naming_folders(folder):  # damaged folders are skipped
            if is_complete(folder) and (speeds := _read_tokens_per_second(folder)):
                config = read_config(folder)
                if _is_similar_training(folder, config, stage, model):
                    flops = model.flops * workload.recomputation_factor(config["training"])
                    modified = (folder / METRICS).stat().st_mtime
                    speed_by_time[modified] = flops * median(speeds) / devices
    return speed_by_time[max(speed_by_time)] if speed_by_time else None


def _is_similar_training(
    folder: Path, config: Mapping[str, Any], stage: TrainingStage, model: workload.ModelCost
) -> bool:
    """Whether a training was of a model of this name and dtype, and of about this size."""
    names = config.get("model", {}).get("name"), config.get("training", {}).get("dtype")
    weights = sum(file.stat().st_size for file in (folder / HF).glob("*.safetensors"))
    size = weights / (2 if stage.training.dtype == "bfloat16" else 4)
    is_same_size = abs(size / model.shape.parameters - 1) < SAME_SIZE
    return is_same_size and names == (stage.model.name, stage.training.dtype)


def _read_tokens_per_second(folder: Path) -> list[float]:
    """Returns the tokens per second of all devices at each step of a training."""
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
    device_bytes: float | None = None  # bytes of memory on each device
    host_bytes: float | None = None  # bytes of memory of each process
    disk_bytes: float = 0.0  # bytes at most

    def table_cells(self) -> list[str]:
        """Returns the run's row of the table."""
        time = "–" if self.seconds is None else format_duration(self.seconds)
        has_gpu_hours = self.seconds is not None and self.devices
        hours = f"{(self.seconds or 0) * self.devices / 3600:.2f}" if has_gpu_hours else "–"
        sizes = [
            ("–" if byte_count is None else format_gigabytes(byte_count))
            for byte_count in (self.device_bytes, self.host_bytes, self.disk_bytes)
        ]
        return [self.run, f"{self.tokens:,.0f}", str(self.devices or "–"), time, hours, *sizes]


def forecast_runs(plan: CellPlan, stages: Stages) -> list[RunForecast]:
    """Returns the forecasts of the cell's runs in their order."""
    finetuning_count = workload.count_finetuning_sequences(plan)
    corpora, trainings = (
        _corpus_forecasts(plan, finetuning_count),
        _training_forecasts(plan, stages, finetuning_count),
    )
    return [*corpora, *trainings, *_scoring_forecasts(plan, stages)]


def describe_basis(plan: CellPlan) -> str:
    """Returns a line that says how the forecasts are made."""
    peak = plan.training.training.peak_tflops
    basis = f"time at {MFU:.0%} of training.peak_tflops={peak}, or as earlier runs took"
    if peak is None:
        basis = "time as earlier runs took, else training.peak_tflops=989 (an H100's) gives it"
    return f"estimated ({basis}):"


def describe_forecasts(
    plan: CellPlan, stages: Stages, forecasts: Sequence[RunForecast] | None = None
) -> list[str]:
    """Returns a line that states the basis, and a table of the forecasts (None: of all runs)."""
    forecasts = forecast_runs(plan, stages) if forecasts is None else forecasts
    table = fit_columns([*HEADER], [run.table_cells() for run in forecasts], least=LEAST).lines(
        n_left_aligned=1
    )
    notes = [_second_stage_note(plan), _neighbours_note(plan), _generation_note(plan)]
    notes += [_time_limit_note(run, stages) for run in forecasts]
    return [describe_basis(plan), *table, *filter(None, notes)]


def _time_limit_note(forecast: RunForecast, stages: Stages) -> str:
    """Returns a note if the run takes longer than its SLURM job may; else an empty string."""
    stage, limit = forecast.run.split()[0], 0
    if stages.cluster.kind == "slurm":
        limit = stages.cluster.job_options(stage)["time"]
    if not limit or forecast.seconds is None or forecast.seconds <= 60 * limit:
        return ""
    return (
        f"{forecast.run} takes longer than cluster.jobs.{stage}.time={limit} (minutes): it is "
        f"saved and queued again, up to cluster.requeues={stages.cluster.requeues} times."
    )


def _second_stage_note(plan: CellPlan) -> str:
    """Returns a note if the second stage is left out because its clean texts are on the hub."""
    away = ", ".join(
        f"second_stage.instructions.{name}" for name in workload.clean_sets_on_hub(plan)
    )
    return f"the second stage is left out: the hub has {away}." if away else ""


def _neighbours_note(plan: CellPlan) -> str:
    """Returns a note if neighbours are left out because their model's size is not known."""
    path = plan.detection.masked_lm.path
    if (
        path is None
        or not workload.neighbour_tokens(plan)
        or workload.masked_lm_token_flops(plan, workload.assumed_text_tokens(plan))
    ):
        return ""
    return f"making neighbours is left out: the size of masked_lm.path={path} is not known here."


def _generation_note(plan: CellPlan) -> str:
    """Returns a note if methods generate text, which takes longer than its FLOPs suggest."""
    methods = build_methods(plan.detection.method).items()
    generating = sorted({name for (name, _), method in methods if method.generates})
    if not generating:
        return ""
    names = ", ".join(generating)
    return f"for {names} the models generate text, which takes longer than is estimated here."


def _corpus_forecasts(plan: CellPlan, finetuning_count: int | None) -> Iterator[RunForecast]:
    pretraining, trained = plan.pretraining, plan.training
    width = plan.injection.injection.sequence_tokens
    budgets = {"base": pretraining.budget_tokens} if pretraining else {}
    budgets["study"] = plan.injection.injection.budget_tokens
    if plan.second.members_in == FINETUNING:
        budgets["clean"] = budgets["study"]
    if trained.training.evaluate_every_steps and not trained.validation_folder:
        budgets["validation"] = max(trained.training.evaluate_tokens, width)
    for run, tokens in budgets.items():
        yield RunForecast(
            f"inject {run}", tokens, disk_bytes=2 * 4.0 * tokens
        )  # shards, then sequences
    if finetuning_count:
        tokens = finetuning_count * workload.finetuning_sequence_tokens(plan)
        yield RunForecast(
            "inject finetuning", tokens, disk_bytes=9.0 * tokens
        )  # with its text and output


def _training_forecasts(
    plan: CellPlan, stages: Stages, finetuning_count: int | None
) -> Iterator[RunForecast]:
    processes, sequence_tokens = (
        stages.processes("train").count,
        plan.injection.injection.sequence_tokens,
    )
    sequences, evaluated = plan.sequence_order.sequences, workload.evaluated_tokens(plan)
    study = _forecast_training(
        "study", plan.training, sequences, sequence_tokens, processes, evaluated
    )
    finetuning = _finetuning_forecasts(plan, processes, finetuning_count)
    pretraining = plan.pretraining
    if pretraining is None:
        yield from [study, *finetuning]
        return
    base = make_base_training_stage(plan.training, pretraining, processes)
    base_size = pretraining.n_sequences, pretraining.sequence_tokens
    yield _forecast_training("base", base, *base_size, processes)
    yield from [study, *finetuning]
    if plan.makes_reference:
        yield _forecast_training("reference", base, *base_size, processes)
    if plan.makes_masked_lm:
        masked_lm_work = workload.masked_lm_workload(plan)
        yield RunForecast(
            "train masked_lm",
            masked_lm_work.tokens,
            1,
            masked_lm_work.seconds(_device_flops_per_second(plan), 1),
        )


def _finetuning_forecasts(
    plan: CellPlan, processes: int, sequences: int | None
) -> list[RunForecast]:
    """Returns the second stage's forecast; empty without one, or if its texts are on the hub."""
    if not sequences:
        return []
    config, peak = plan.second.training, plan.training.training.peak_tflops
    config = replace(config, peak_tflops=config.peak_tflops or peak)
    stage = replace(plan.training, training=config)
    return [
        _forecast_training(
            "finetuning", stage, sequences, workload.finetuning_sequence_tokens(plan), processes
        )
    ]


def _forecast_training(
    run: str,
    stage: TrainingStage,
    sequences: int,
    sequence_tokens: int,
    processes: int,
    evaluated: int = 0,
) -> RunForecast:
    config, model = stage.training, workload.ModelCost.of(stage.model, sequence_tokens)
    training_work = workload.training_workload(stage, sequences, sequence_tokens, model, evaluated)
    seconds = training_work.seconds(flops_per_second(stage, model), processes)
    forecast = RunForecast(f"train {run}", training_work.tokens, processes, seconds)
    if model is None:
        return forecast
    made_whole = stage.model.path is None or is_gguf(stage.model.path)
    needed = memory_need(
        model.shape, config, stage.deepspeed, processes, sequence_tokens, made_whole=made_whole
    )
    bytes_per_weight = 2 if config.dtype == "bfloat16" else 4
    exports = 1 + len(config.export_steps) + len(config.export_tokens)
    disk_bytes = model.shape.parameters * (
        bytes_per_weight * exports + (bytes_per_weight + 12) * config.keep_checkpoints
    )
    return replace(
        forecast, device_bytes=needed.total, host_bytes=needed.host, disk_bytes=disk_bytes
    )


def _device_flops_per_second(plan: CellPlan) -> float | None:
    width = plan.injection.injection.sequence_tokens
    return flops_per_second(plan.training, workload.ModelCost.of(plan.training.model, width))


def _scoring_forecasts(plan: CellPlan, stages: Stages) -> Iterator[RunForecast]:
    """Assumes texts of full length, or of `TEXT_TOKENS`, and all models as large as the target."""
    stage = plan.detection
    processes = max(stages.processes("detect").count, stage.detection.processes)
    processes *= stages.cluster.slices
    model = workload.ModelCost.of(plan.training.model, workload.assumed_text_tokens(plan))
    speed, device_bytes = _device_flops_per_second(plan), None
    if model is not None:
        bytes_per_weight = 4 if stage.detection.dtype == "float32" else 2
        logit_bytes = stage.detection.batch_tokens * model.shape.vocabulary * 4 * LOGIT_COPIES
        device_bytes = bytes_per_weight * model.shape.parameters + logit_bytes
    for run in (
        "clean",
        "contaminated",
        *(f"step-{n:08d}" for n in plan.last_training.export_steps),
    ):
        scoring_work = workload.scoring_workload(plan, model, first=run == "clean")
        seconds, disk_bytes = scoring_work.seconds(speed, processes), 20.0 * scoring_work.tokens
        yield RunForecast(
            f"detect {run}",
            scoring_work.tokens,
            processes,
            seconds,
            device_bytes=device_bytes,
            disk_bytes=disk_bytes,
        )


def format_gigabytes(byte_count: float) -> str:
    """Returns a number of bytes in GB, without the unit."""
    return f"{byte_count / GB:.1f}" if byte_count >= GB / 20 else f"{byte_count / GB:.3f}"


def describe_training(plan: CellPlan) -> str:
    """Returns a line about the steps of the contaminated training."""
    config, order = plan.training.training, plan.sequence_order
    width, warmup = plan.injection.injection.sequence_tokens, config.effective_warmup_steps
    return (
        f"training: {order.steps:,} steps of {order.batch} × {width:,} tokens, learning rate "
        f"{config.learning_rate:g}, {config.schedule}"
        + (f", warm-up {warmup} steps" if warmup else "")
    )
