"""What `perf.gpu` measures: one function a part, which writes its rows as it finds them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from contamination.core.cli import quiet_libraries
from contamination.detection.config import KERNELS, DetectionConfig
from contamination.detection.forward.infilling import supports_branches
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.head import HALF
from contamination.detection.models.kernel import CheckedStatistics
from contamination.training.config import TrainingConfig
from contamination.training.deepspeed_engine import join_process_group
from contamination.training.resources import flops_per_token, flops_utilization
from perf.detection import (
    METHODS,
    padded_batches,
    run_forward,
    score_methods,
    time_infilling,
    time_versions,
)
from perf.timing import median_seconds, peak_memory
from perf.training import engine_settings, our_step, random_sequences

ROOT = Path(__file__).resolve().parents[1]
PEAK_TFLOPS = 989  # of an H100 or H200, dense bfloat16
Row = dict[str, Any]
Write = Callable[[Row], None]


@dataclass(frozen=True)
class Shapes:
    """How large all is.

    Attributes:
        seven, billion, small: fields of a LLaMA's config: 7B, 1.1B and 135M parameters.
        vocabularies: of the 7B shape.
        texts: their number, of `tokens` each.
        repeats: of a timing.
        batch, width: sequences of an optimizer step, tokens of a sequence.
        steps: that are timed.
        study: words of a launch.
    """

    seven: Mapping[str, int]
    billion: Mapping[str, int]
    small: Mapping[str, int]
    vocabularies: tuple[int, int]
    texts: int
    tokens: int
    repeats: int
    batch: int
    width: int
    steps: int
    study: tuple[str, ...]


def sizes(hidden: int, inner: int, layers: int, heads: int, kv_heads: int) -> Mapping[str, int]:
    """Of a LLaMA's config."""
    return {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads}  # fmt: skip


STUDY = (
    "experiment=quickstart", "name=gpu", "wandb.mode=disabled", "analysis.draws=1000",
    "model.name=llama_100m", "model.architecture.hidden_size=768",
    "model.architecture.intermediate_size=2048", "model.architecture.num_hidden_layers=12",
    "model.architecture.num_attention_heads=12", "model.architecture.num_key_value_heads=12",
    "model.pretraining.vocab_size=8192", "model.pretraining.sequence_tokens=512",
    "model.pretraining.budget_tokens=1_500_000", "model.pretraining.learning_rate=6e-4",
    "model.pretraining.batch_sequences=8",
    "model.pretraining.dtype=bfloat16", "deepspeed@model.pretraining.deepspeed=zero1",
    "injection.sequence_tokens=512", "training.dtype=bfloat16", "deepspeed=zero1",
    "training.learning_rate=3e-4", "detection.dtype=bfloat16",
    "method=[loss,zlib,min_k,min_k_plus_plus,infilling]",
)  # fmt: skip
LARGE = Shapes(
    sizes(4096, 11008, 32, 32, 32), sizes(2048, 5632, 22, 32, 4), sizes(576, 1536, 30, 9, 3),
    (32_000, 128_256), texts=32, tokens=256, repeats=2, batch=32, width=2048, steps=4, study=STUDY,
)  # fmt: skip
TINY = Shapes(
    sizes(64, 96, 2, 4, 4), sizes(32, 64, 1, 2, 1), sizes(32, 64, 1, 2, 1),
    (256, 300), texts=2, tokens=12, repeats=1, batch=4, width=16, steps=1,
    study=(*STUDY, "model.architecture.hidden_size=48", "model.architecture.intermediate_size=64",
           "model.architecture.num_hidden_layers=1", "model.pretraining.vocab_size=512",
           "model.pretraining.budget_tokens=30_000", "model.pretraining.warmup_steps=2",
           "model.pretraining.tokenizer_characters=200_000", "injection.members=16",
           "injection.nonmembers=16", "injection.budget_tokens=20_000", "training.warmup_steps=2",
           "injection.example_max_tokens=60", "occurrences.rungs=[2]", "analysis.draws=100",
           "benchmark=[boolq,truthfulqa]"),
)  # fmt: skip
SHAPES = {"large": LARGE, "tiny": TINY}


@dataclass(frozen=True)
class Fit:
    """How a training may fit into the memory.

    Attributes:
        micro: sequences at a time.
        recomputes: whether activations are recomputed.
    """

    micro: int
    recomputes: bool = False


def device() -> torch.device:
    """The GPU, where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def making(dtype: torch.dtype) -> Iterator[None]:
    """Weights are made in this type, on the device."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device():
            yield
    finally:
        torch.set_default_dtype(usual)


def random_model(
    shape: Mapping[str, int], vocabulary: int, dtype: torch.dtype, context: int
) -> Any:
    """A LLaMA of random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(**shape, vocab_size=vocabulary, max_position_embeddings=context)
    with making(dtype):
        return LlamaForCausalLM(config)


def tests(shapes: Shapes, write: Write, _: int) -> None:
    """The tests that need a GPU."""
    files = [p for p in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.gpu" in p.read_text()]
    words = ["-q", "-m", "gpu", "-W", "ignore", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *map(str, files)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "TRITON_INTERPRET": "0"},
    )  # fmt: skip
    print(run.stdout, run.stderr, sep="\n")
    last = (run.stdout.splitlines() or ["no output"])[-1]
    write({"pytest -m gpu": last})
    if run.returncode:
        write({"part": "tests", "failed": f"pytest's status is {run.returncode}"})


def golden(shapes: Shapes, write: Write, _: int) -> None:
    """How far scores are from those of float64: the largest relative difference a method."""
    errors = import_module("tests.detection.golden").largest_relative_errors
    found = {t: errors(DetectionConfig(dtype=t)) for t in ("float32", "bfloat16")}
    for method, error in found["float32"].items():
        write({"method": method, "float32": error, "bfloat16": found["bfloat16"][method]})


def detection(
    name: str, shape: Mapping[str, int], vocabulary: int, dtype: str, shapes: Shapes, write: Write
) -> None:
    """Texts a second, multiples of a bare forward and peak memory.

    With and without the kernel, which is for 16-bit models.
    """
    hf = random_model(shape, vocabulary, getattr(torch, dtype), shapes.tokens).eval()
    rows = torch.randint(vocabulary, (shapes.texts, shapes.tokens)).tolist()
    for kernel in KERNELS if hf.dtype in HALF else ["plain"]:
        model = CausalLM(hf, kernel)
        batches = padded_batches(model, rows)
        ways: dict[str, Callable[[], object]] = {
            "four methods": lambda model=model: score_methods(model, rows, METHODS),  # type: ignore[misc]
            "pac": lambda model=model: time_versions(model, rows, 6),  # type: ignore[misc]
        }
        if supports_branches(model):
            for m in (1, 5):
                ways[f"infilling m={m}"] = lambda model=model, m=m: time_infilling(model, rows, m)  # type: ignore[misc]
        bare, *ratios = median_seconds(
            lambda batches=batches: run_forward(hf, batches),  # type: ignore[misc]
            *ways.values(), repeats=shapes.repeats,
        )  # fmt: skip
        used = model.statistics
        fused = isinstance(used, CheckedStatistics) and used.chosen is used.fused
        about = {"model": f"{name}, {dtype}", "vocabulary": vocabulary}
        for (what, way), ratio in zip(ways.items(), ratios, strict=True):
            write({
                **about, "head": "kernel" if fused else "logits", "what": what,
                "texts/s": shapes.texts / (bare * ratio), "× bare": ratio,
                "bare s": bare, "peak GiB above the model": peak_memory(way) / 2**10,
            })  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A model to train: how large, by which engine, and what may fit, the fastest first."""

    name: str
    shape: Mapping[str, int]
    zero: str
    fits: tuple[Fit, ...]
    dtype: torch.dtype
    compiled: bool = False
    warm_up: int = 2  # steps


def training(of: Trained, shapes: Shapes, write: Write, attempt: int) -> None:
    """Tokens a second, MFU and peak memory of the product's own step; the losses of two steps."""
    world, fit, width = join_process_group(), of.fits[attempt], shapes.width
    config = TrainingConfig(
        learning_rate=1e-4, schedule="constant", dtype="bfloat16", batch_sequences=shapes.batch,
        micro_batch_sequences=min(fit.micro, shapes.batch), activation_checkpointing=fit.recomputes,
        compile=of.compiled,
    )  # fmt: skip
    vocabulary = shapes.vocabularies[0]
    started = time.perf_counter()
    model = random_model(of.shape, vocabulary, of.dtype, width)
    print(f"model made: {time.perf_counter() - started:.0f} s", flush=True)
    cost = flops_per_token(model.config, sum(p.numel() for p in model.parameters()), width)
    sequences = random_sequences(vocabulary, width)
    step = our_step(model, sequences, config, settings_of(of.zero), world)
    print(f"engine made: {time.perf_counter() - started:.0f} s", flush=True)
    seconds, losses = [], []
    for number in range(of.warm_up + shapes.steps):
        started = time.perf_counter()
        losses.append(step(number))
        seconds.append(time.perf_counter() - started)
        print(f"step {number}: {seconds[-1]:.2f} s, loss {losses[-1]:.4f}", flush=True)
    speed = shapes.batch * width / median(seconds[of.warm_up :])
    held = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    write({
        "model": of.name, "engine": of.zero, "compiled": of.compiled,
        "micro-batch": config.micro_batch_sequences, "recomputes": fit.recomputes,
        "tokens/s": speed, "MFU": flops_utilization(speed, cost, PEAK_TFLOPS, 1),
        "peak GiB": held / 2**30, "losses": " ".join(f"{loss:.4f}" for loss in losses[:2]),
    })  # fmt: skip


def settings_of(zero: str) -> dict[str, Any]:
    """A file of `conf/deepspeed/`; `zero3+offload`: the optimizer's states alone on the host."""
    settings = engine_settings(zero.partition("+")[0])
    if zero.endswith("+offload"):
        parts = engine_settings("zero3_offload")["zero_optimization"]
        settings["zero_optimization"] |= {"offload_optimizer": parts["offload_optimizer"]}
    return settings


def seven(shapes: Shapes, write: Write, attempt: int) -> None:
    """7B: where the memory is more than 100 GB all is on the GPU, else the optimizer is not."""
    zero, fits = "zero3+offload", (Fit(4), Fit(2), Fit(4, recomputes=True))
    if torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory > 100e9:
        zero, fits = "zero3", (Fit(2), Fit(1), Fit(4, recomputes=True))
    own = Trained("7B shape", shapes.seven, zero, fits, torch.bfloat16, warm_up=1)
    training(own, replace(shapes, steps=min(2, shapes.steps)), write, attempt)


def billion(compiled: bool, shapes: Shapes, write: Write, attempt: int) -> None:
    """1.1B, all on the GPU."""
    fits = (Fit(8), Fit(4), Fit(2))
    own = Trained("1.1B shape", shapes.billion, "zero2", fits, torch.float32, compiled)
    training(own, shapes, write, attempt)


def study(shapes: Shapes, write: Write, _: int) -> None:
    """A contaminated run from nothing: a base model, the contaminated one, scores, the AUROCs."""
    with tempfile.TemporaryDirectory() as runs:
        started = time.perf_counter()
        words = [*shapes.study, f"runs={runs}"]
        subprocess.run([sys.executable, "-m", "launch", *words], cwd=ROOT, check=True)
        seconds = time.perf_counter() - started
        (file,) = Path(runs).glob("report/*/results.parquet")
        found = pd.read_parquet(file)
    whole = found["benchmark"] == "all"
    found = found[whole & (found["metric"] == "auroc") & (found["checkpoint"] == "contaminated")]
    for method, own in found.groupby("method", sort=False):
        values = dict(zip(own["occurrences"], own["value"], strict=True))
        write({"method": method, **{f"AUROC, {k} ×": v for k, v in sorted(values.items())}})
    write({"method": "seconds of all", **dict.fromkeys(["AUROC, any ×"], seconds)})


def quiet() -> None:
    """As the command line begins."""
    quiet_libraries()
