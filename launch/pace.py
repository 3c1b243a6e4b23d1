"""How fast a device works: as it did in an earlier training, or at a part of its peak."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from core.artifacts import is_complete, read_config
from core.errors import ArtifactError
from core.stored import parse_json, read_text
from core.wholeness import reading
from launch.costs import read_costs
from launch.folder import KIND
from launch.workload import Model, recomputing
from training.checkpoint import HF, METRICS
from training.config import TrainingStage

MFU = 0.4
"""The part of its peak that a device does; PaLM reports 0.46, LLaMA about 0.5 on A100s."""
SAME_SIZE = 0.05
"""Models whose weights differ by less are as fast."""


def pace(stage: TrainingStage, model: Model | None) -> float | None:
    """FLOPs a second of one device with such a model; None: not known."""
    if model is None:
        return None
    peak, earlier = stage.training.peak_tflops, _earlier(stage, model)
    return earlier or (peak * 1e12 * MFU if peak else None)


def _earlier(stage: TrainingStage, model: Model) -> float | None:
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
                    flops = model.flops * recomputing(config["training"])
                    when = (folder / METRICS).stat().st_mtime
                    found[when] = flops * median(speeds) / devices
    return found[max(found)] if found else None


def _is_alike(folder: Path, config: Mapping[str, Any], stage: TrainingStage, model: Model) -> bool:
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
