"""The epochs, step by step: record, evaluate, export, checkpoint, stop when asked."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import stopping
from core.errors import ConfigError, DataError
from core.world import World
from training import resume
from training.checkpoint import EXPORTS
from training.config import LIKELIHOOD, TrainingConfig
from training.data import Order, Rows
from training.evaluate import Texts, evaluate
from training.export import export
from training.flops import utilization
from training.metrics import Record
from training.objectives.base import Objective
from training.objectives.likelihood import Likelihood
from training.step import Part, optimizer_step


@dataclass(frozen=True)
class Retained:
    """Text that is learnt beside what is forgotten: as many sequences in each step."""

    sequences: Any
    order: Order
    objective: Objective
    weight: float

    def part(self, step: int) -> Part:
        """That of a step (from 0)."""
        return Part(self.sequences, self.order.rows(step), self.objective, self.weight)


@dataclass(frozen=True)
class Loop:
    """What the epochs need.

    Attributes:
        engine: the DeepSpeed engine.
        sequences: of a corpus or a fine-tuning set (`input_ids` of equal length).
        order: which sequences each step sees.
        config: the training configuration.
        world: this process's place.
        folder: the model folder.
        identity: what a checkpoint must have been made with to be resumed.
        tokenizer: the folder that goes with every export.
        texts: what is evaluated; empty: nothing.
        clip: whether to clip here rather than in the engine.
        flops_per_token: of a training step.
        objective: what a step moves.
        retained: what is learnt beside what is forgotten.
    """

    engine: Any
    sequences: Any
    order: Order
    config: TrainingConfig
    world: World
    folder: Path
    identity: Mapping[str, Any]
    tokenizer: Path
    texts: Texts
    clip: bool
    flops_per_token: float
    objective: Objective = Likelihood()
    retained: Retained | None = None

    def train(self, first_step: int, record: Record | None) -> None:
        """Train from `first_step` to the end of the order.

        Args:
            first_step: steps already done.
            record: gets every step's numbers; on rank 0 alone.

        Raises:
            DataError: the loss or the gradient is not finite.
            StoppedError: SIGTERM or SIGINT came; a checkpoint was written.
        """
        exported = export_steps(self.config, self.order, self.width)
        with stopping.deferred() as stopped:
            if first_step == 0:
                self._evaluate(0, record)
            for step in range(first_step + 1, self.order.steps + 1):
                row = self._step(step)
                if record is not None:
                    record.step(row)
                self._evaluate(step, record)
                if step in exported:
                    place = self.folder / EXPORTS / f"step-{step:08d}"
                    export(self.engine, self.tokenizer, place, self.world)
                self._checkpoint(step, asked=self.world.any(stopped()))

    @property
    def width(self) -> int:
        """Tokens of a sequence."""
        return len(self.sequences[0]["input_ids"])

    def _step(self, step: int) -> dict[str, Any]:
        """One optimizer step (from 1) and its numbers."""
        started = time.perf_counter()
        rows = self.order.rows(step - 1)
        rate = self.engine.get_lr()[0]
        assert rate > 0, "a step that learns nothing would still count as an exposure"
        parts = [Part(self.sequences, rows, self.objective, self.objective.weight)]
        if self.retained is not None:
            parts.append(self.retained.part(step - 1))
        moved = optimizer_step(self.engine, parts, self.config, self.world, clip=self.clip)
        seconds = time.perf_counter() - started
        _guard(moved.loss, moved.norm, step, rows, self.folder)
        speed, peak = sum(part.tokens for part in parts) / seconds, self.config.peak_tflops
        return {
            "step": step,
            "tokens": self.tokens(step),
            "loss": moved.loss,
            "learning_rate": rate,
            "grad_norm": moved.norm,
            "tokens_per_second": speed,
            "mfu": peak and utilization(speed, self.flops_per_token, peak, self.world.size),
            **self._each(moved.losses),
        }

    def _each(self, losses: Sequence[float]) -> dict[str, float]:
        """An unlearner's means: of what is forgotten, and of what is kept."""
        if self.config.objective == LIKELIHOOD:
            return {}
        return dict(zip(("loss_forgotten", "loss_retained"), losses, strict=False))

    def _evaluate(self, step: int, record: Record | None) -> None:
        every = self.config.evaluate_every_steps
        due = every is not None and (step % every == 0 or step == self.order.steps)
        if not due or not self.texts:
            return
        found = evaluate(self.engine, self.texts, self.config.micro_batch_sequences, self.world)
        if record is not None:
            record.evaluation({"step": step, "tokens": self.tokens(step), **found})

    def _checkpoint(self, step: int, *, asked: bool) -> None:
        """Save where it is due or a signal came, but not at the end of the run."""
        due = step % self.config.checkpoint_every_steps == 0 and step < self.order.steps
        if asked or due:
            place = self.folder / "checkpoints"
            saved = resume.next_save(place, step, self.world, self.identity)
            resume.save(self.engine, place, saved, self.config.keep_checkpoints, self.world)
        if asked:
            raise stopping.stopped(
                f"at step {step} of {self.order.steps}. All of it is saved in "
                f"{self.folder}: run the same command again to resume from here."
            )

    def tokens(self, step: int) -> int:
        """Tokens of the first `step` steps."""
        return self.order.seen(step) * self.width


def export_steps(config: TrainingConfig, order: Order, width: int) -> set[int]:
    """The optimizer steps after which the model is exported.

    Raises:
        ConfigError: one lies beyond the last epoch.
    """
    asked = [("export_steps", step, step) for step in config.export_steps]
    asked += [("export_tokens", n, _step_at(-(-n // width), order)) for n in config.export_tokens]
    ends = "epoch ends" if order.epochs == 1 else "epochs end"
    for field, value, step in asked:
        if step > order.steps:
            raise ConfigError(
                f"training.{field} has {value}, but the {ends} after {order.steps} steps "
                f"({order.seen(order.steps) * width} tokens): leave it out, or enlarge the corpus."
            )
    return {step for *_, step in asked}


def _step_at(sequences: int, order: Order) -> int:
    """The first step that has seen so many sequences; one beyond the last where none has."""
    epochs, rest = divmod(max(sequences, 1) - 1, order.sequences)
    return epochs * (order.steps // order.epochs) + rest // order.batch + 1


def _guard(loss: float, norm: float, step: int, rows: Rows, folder: Path) -> None:
    if math.isfinite(loss) and math.isfinite(norm):
        return
    kept = resume.completed(folder / "checkpoints")
    raise DataError(
        f"Training step {step} has loss {loss} and gradient norm {norm} (sequences "
        f"{', '.join(map(str, rows[rows >= 0]))}). Lower training.learning_rate or look at those "
        f"sequences. Last good checkpoint: {kept[-1] if kept else 'none'}."
    )
