"""The training loop: optimizer steps, records, evaluations, exports, checkpoints and signals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from contamination.core import signals
from contamination.core.distributed import World
from contamination.core.errors import ConfigError, DataError
from contamination.injection.corpus import PackedCorpus
from contamination.training import checkpoints
from contamination.training import deepspeed_engine as engines
from contamination.training.config import ALL_TOKENS, LIKELIHOOD, TrainingConfig
from contamination.training.data import (
    PADDING,
    Rows,
    SequenceOrder,
    iter_micro_batch_rows,
    read_batch,
)
from contamination.training.loss import token_losses
from contamination.training.metrics import TrainingRecord
from contamination.training.objectives.base import Objective
from contamination.training.objectives.choose import check_objective
from contamination.training.objectives.likelihood import Likelihood
from contamination.training.resources import flops_utilization
from contamination.training.schedules import check_schedule, weight_decay_of_step
from contamination.training.trained_model import EXPORTS

if TYPE_CHECKING:
    import torch

TokenIdsBySet = Mapping[str, Sequence[Sequence[int]]]


def evaluation_token_ids(
    corpus: PackedCorpus, validation: PackedCorpus | None, max_examples: int
) -> TokenIdsBySet:
    """Returns the token ids of `members`, `nonmembers` and, if given, `validation` text.

    Args:
        corpus: the corpus whose examples are evaluated.
        validation: a packed corpus of clean text that is never trained on.
        max_examples: the maximum number of members, and of non-members, the first by id.
    """
    width = len(corpus.sequences[0]["input_ids"])
    table = corpus.examples.sort_values("example_id")
    tokenizer = corpus.tokenizer.hf
    texts: dict[str, list[list[int]]] = {}
    for name, member in (("members", True), ("nonmembers", False)):
        example_texts = table[table["member"] == member]["text"].head(max_examples).tolist()
        token_rows = tokenizer(example_texts)["input_ids"] if example_texts else []
        texts[name] = [row[:width] for row in token_rows if len(row) > 1]
    if validation is not None:
        texts["validation"] = [
            np.asarray(row["input_ids"]).tolist() for row in validation.sequences
        ]
    return {name: token_rows for name, token_rows in texts.items() if token_rows}


def evaluate_losses(
    engine: Any, token_ids_by_set: TokenIdsBySet, micro_batch: int, world: World
) -> dict[str, float]:
    """Returns `loss_<name>`, the mean loss per token in nats, for each set of texts.

    Every process reads its share, with the same number of forward passes.

    Args:
        engine: the DeepSpeed engine.
        token_ids_by_set: the token ids returned by `evaluation_token_ids`.
        micro_batch: sequences per forward pass of a process.
        world: this process's rank and device.
    """
    import torch

    engine.eval()
    with torch.no_grad():
        losses = {
            f"loss_{name}": _mean_loss(engine, ids, micro_batch, world)
            for name, ids in token_ids_by_set.items()
        }
    engine.train()
    return losses


def _mean_loss(
    engine: Any, token_rows: Sequence[Sequence[int]], micro_batch: int, world: World
) -> float:
    """Returns the mean over all tokens except each text's first."""
    import torch

    sum_and_count = torch.zeros(2, dtype=torch.float64)
    rows_per_pass = micro_batch * world.size
    for start in range(0, len(token_rows), rows_per_pass):
        rank_rows = token_rows[
            start + world.rank * micro_batch : start + (world.rank + 1) * micro_batch
        ]
        width = max(map(len, token_rows[start : start + rows_per_pass]))
        ids, is_real = _pad_rows(rank_rows or token_rows[:1], width)
        losses = token_losses(engine, ids.to(world.device)).cpu()
        if rank_rows:  # otherwise the pass only keeps the processes in sync
            sum_and_count += torch.stack(
                [losses[is_real[:, 1:]].double().sum(), is_real[:, 1:].sum()]
            )
    loss_sum, tokens = world.sum(sum_and_count).tolist()
    return float(loss_sum / tokens)


def _pad_rows(rows: Sequence[Sequence[int]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the token ids (B, S), padded on the right, and a mask of the real tokens."""
    import torch

    ids = torch.zeros(len(rows), width, dtype=torch.long)
    is_real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row[:width])] = torch.tensor(row[:width])
        is_real[i, : len(row[:width])] = True
    return ids, is_real


@dataclass(frozen=True)
class StepPart:
    """The sequences of a step that are trained on one objective.

    Attributes:
        sequences: all sequences of a corpus or a fine-tuning set.
        rows: the rows of the step (`SequenceOrder.rows_of_step`), equally many in every part.
        objective: the objective whose mean is minimised.
        weight: the objective's weight in the step's loss; if negative, the mean is maximised.
    """

    sequences: Any
    rows: Rows
    objective: Objective
    weight: float = 1.0

    @property
    def n_tokens(self) -> int:
        """The number of tokens that are read, without padding rows."""
        return int((self.rows != PADDING).sum()) * len(self.sequences[0]["input_ids"])


class StepResult(NamedTuple):
    """The values of an optimizer step, measured before the weights change."""

    losses: list[float]
    """The mean loss of each part over all processes, in nats."""
    norm: float
    """The gradient's global L2 norm before clipping."""
    loss: float
    """The minimised loss: the weighted sum of the parts' means."""


def optimizer_step(
    engine: Any, parts: Sequence[StepPart], config: TrainingConfig, world: World, *, clip: bool
) -> StepResult:
    """Runs the forward and backward passes of a step and updates the weights once.

    Args:
        engine: the DeepSpeed engine.
        parts: the parts of the step; unlearning may have a second part with retained text.
        config: the training configuration.
        world: this process's rank and device.
        clip: whether to clip gradients here rather than in the engine.
    """
    import torch
    from torch.nn.utils import clip_grad_norm_

    micro_batch, count = config.micro_batch_sequences, len(parts) * len(parts[0].rows)
    totals = torch.zeros(len(parts), dtype=torch.float64, device=world.device)
    sizes = [part.objective.count_terms(part.sequences, part.rows) for part in parts]
    for part_index, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        # The engine averages over the micro-batches of all processes and parts. Multiplying each
        # sum by their number, and dividing it by the number of terms of its part, gives the mean
        # over the part for any world size, and also in a partial last batch.
        scale = count / micro_batch / size * part.weight
        for rows in iter_micro_batch_rows(part.rows, world.rank, world.size, micro_batch):
            batch = read_batch(part.sequences, rows, part.objective.loss_on).to(world.device)
            loss_sum = part.objective.loss_sum(engine, batch)
            engine.backward(loss_sum * scale)
            totals[part_index] += loss_sum.detach().double()
            if not engine.is_gradient_accumulation_boundary():
                engine.step()  # counts the micro-batch; weights change only at the boundary
    losses = [total / size for total, size in zip(world.sum(totals).tolist(), sizes, strict=True)]
    loss = sum(mean * part.weight for mean, part in zip(losses, parts, strict=True))
    norm = clip_grad_norm_(engine.module.parameters(), config.clip_norm) if clip else None
    engine.step()
    return StepResult(losses, float(engine.get_global_grad_norm() if norm is None else norm), loss)


@dataclass(frozen=True)
class RetainedText:
    """Retained text for unlearning; each step reads as many of its sequences as of the corpus."""

    sequences: Any
    order: SequenceOrder
    objective: Objective
    weight: float

    def part_of_step(self, step: int) -> StepPart:
        """Returns the part of a step (from 0) with retained text."""
        return StepPart(self.sequences, self.order.rows_of_step(step), self.objective, self.weight)


@dataclass(frozen=True)
class TrainingLoop:
    """Trains a model over all epochs.

    Attributes:
        engine: the DeepSpeed engine.
        sequences: those of a corpus or a fine-tuning set (`input_ids` of equal length).
        order: which sequences each step sees.
        config: the training configuration.
        world: this process's rank and device.
        folder: the model folder.
        identity: the configuration and inputs, which a checkpoint must share to be resumed.
        tokenizer: the tokenizer's folder, which is copied into every export.
        texts: the texts to evaluate; empty: none.
        clip: whether to clip gradients here rather than in the engine.
        flops_per_token: the FLOPs of a training step per token.
        objective: the objective on the corpus.
        retained: retained text for unlearning.
        shared_steps: the step after which a checkpoint is always written; None: none.
        after_shared_steps: called on rank 0 with that checkpoint.
    """

    engine: Any
    sequences: Any
    order: SequenceOrder
    config: TrainingConfig
    world: World
    folder: Path
    identity: Mapping[str, Any]
    tokenizer: Path
    texts: TokenIdsBySet
    clip: bool
    flops_per_token: float
    objective: Objective = Likelihood()
    retained: RetainedText | None = None
    shared_steps: int | None = None
    after_shared_steps: Callable[[checkpoints.SavedCheckpoint], None] | None = None

    def train(self, first_step: int, record: TrainingRecord | None) -> None:
        """Trains from `first_step` to the end of the order.

        Args:
            first_step: the number of steps already done.
            record: records the values of each step; only on rank 0.

        Raises:
            DataError: the loss or the gradient is not finite.
            StoppedError: SIGTERM or SIGINT was received; a checkpoint was written.
        """
        exported = export_steps(self.config, self.order, self.sequence_tokens)
        with signals.defer_signals() as stopped:
            if first_step == 0:
                self._evaluate_if_due(0, record)
            for step in range(first_step + 1, self.order.steps + 1):
                row = self._run_step(step)
                if record is not None:
                    record.record_step(row)
                self._evaluate_if_due(step, record)
                if step in exported:
                    export_folder = self.folder / EXPORTS / f"step-{step:08d}"
                    engines.export_model(self.engine, self.tokenizer, export_folder, self.world)
                self._checkpoint_if_due(step, stop=self.world.any(stopped()))

    @property
    def sequence_tokens(self) -> int:
        """The number of tokens per sequence."""
        return len(self.sequences[0]["input_ids"])

    def _run_step(self, step: int) -> dict[str, Any]:
        """Runs an optimizer step (from 1) and returns the row that records it."""
        started = time.perf_counter()
        rows = self.order.rows_of_step(step - 1)
        rate = self.engine.get_lr()[0]
        assert rate > 0, "a step that learns nothing would count as an exposure"
        weight = self.objective.weight * self.config.forget_weight
        parts = [StepPart(self.sequences, rows, self.objective, weight)]
        if self.config.tail_weight_decay is not None:
            engines.set_weight_decay(self.engine, weight_decay_of_step(self.config, step))
        if self.retained is not None:
            parts.append(self.retained.part_of_step(step - 1))
        result = optimizer_step(self.engine, parts, self.config, self.world, clip=self.clip)
        seconds = time.perf_counter() - started
        _check_finite(result.loss, result.norm, step, rows, self.folder)
        speed, peak = sum(part.n_tokens for part in parts) / seconds, self.config.peak_tflops
        return {
            "step": step,
            "tokens": self.tokens_until(step),
            "loss": result.loss,
            "learning_rate": rate,
            "grad_norm": result.norm,
            "tokens_per_second": speed,
            "mfu": peak and flops_utilization(speed, self.flops_per_token, peak, self.world.size),
            **self._unlearning_losses(result.losses),
        }

    def _unlearning_losses(self, losses: Sequence[float]) -> dict[str, float]:
        """Returns the losses on forgotten and on retained text if the objective unlearns."""
        if self.config.objective == LIKELIHOOD:
            return {}
        return dict(zip(("loss_forgotten", "loss_retained"), losses, strict=False))

    def _evaluate_if_due(self, step: int, record: TrainingRecord | None) -> None:
        every = self.config.evaluate_every_steps
        due = every is not None and (step % every == 0 or step == self.order.steps)
        if not due or not self.texts:
            return
        losses = evaluate_losses(
            self.engine, self.texts, self.config.micro_batch_sequences, self.world
        )
        if record is not None:
            record.record_evaluation({"step": step, "tokens": self.tokens_until(step), **losses})

    def _checkpoint_if_due(self, step: int, *, stop: bool) -> None:
        """Saves a checkpoint if one is due or if `stop` is set; then stop if it is set."""
        due = step % self.config.checkpoint_every_steps == 0 and step < self.order.steps
        if stop or due or step == self.shared_steps:
            folder = self.folder / "checkpoints"
            saved = checkpoints.checkpoint_at_step(folder, step, self.world, self.identity)
            checkpoints.save_checkpoint(
                self.engine, folder, saved, self.config.keep_checkpoints, self.world
            )
            if step == self.shared_steps and self.after_shared_steps is not None:
                self.world.on_rank_0(partial(self.after_shared_steps, saved))
        if stop:
            raise signals.stopped_error(
                f"at step {step} of {self.order.steps}. The state is saved in "
                f"{self.folder}: run the same command again to resume from here."
            )

    def tokens_until(self, step: int) -> int:
        """Returns the number of tokens of the first `step` steps."""
        return self.order.count_sequences_seen(step) * self.sequence_tokens


def export_steps(config: TrainingConfig, order: SequenceOrder, sequence_tokens: int) -> set[int]:
    """Returns the optimizer steps after which the model is exported.

    Raises:
        ConfigError: a step is beyond the last epoch.
    """
    exports = [("export_steps", step, step) for step in config.export_steps]
    exports += [
        ("export_tokens", n, _first_step_that_has_seen(-(-n // sequence_tokens), order))
        for n in config.export_tokens
    ]
    ends = "epoch ends" if order.epochs == 1 else "epochs end"
    for field, value, step in exports:
        if step > order.steps:
            raise ConfigError(
                f"training.{field} has {value}, but the {ends} after {order.steps} steps "
                f"({order.count_sequences_seen(order.steps) * sequence_tokens} tokens): leave it "
                "out, or enlarge the corpus."
            )
    return {step for *_, step in exports}


def _first_step_that_has_seen(n_sequences: int, order: SequenceOrder) -> int:
    """Returns the first step that has seen `n_sequences`; may be beyond the last step."""
    epochs, row = divmod(max(n_sequences, 1) - 1, order.sequences)
    return epochs * (order.steps // order.epochs) + row // order.batch + 1


def _check_finite(loss: float, norm: float, step: int, rows: Rows, folder: Path) -> None:
    if math.isfinite(loss) and math.isfinite(norm):
        return
    saved = checkpoints.completed_folders(folder / "checkpoints")
    raise DataError(
        f"Training step {step} has loss {loss} and gradient norm {norm} (sequences "
        f"{', '.join(map(str, rows[rows >= 0]))}). Lower training.learning_rate or check these "
        f"sequences. Last good checkpoint: {saved[-1] if saved else 'none'}."
    )


def check_recipe(
    config: TrainingConfig,
    deepspeed: dict[str, Any],
    order: SequenceOrder,
    sequence_tokens: int,
    *,
    has_outputs: bool = False,
) -> None:
    """Raises a ConfigError if the recipe does not fit the engine or the corpus.

    Args:
        config: the training configuration.
        deepspeed: the engine's configuration.
        order: the number of sequences, batches and epochs.
        sequence_tokens: the tokens of a sequence.
        has_outputs: whether the sequences mark outputs, as those of fine-tuning sets do.
    """
    remedy = (
        "a packed corpus has no prompts and outputs: give a fine-tuning set (python -m injection "
        "finetuning), or training.loss_on=all."
    )
    config.require(has_outputs or config.loss_on == ALL_TOKENS, "loss_on", remedy)
    check_objective(config, has_outputs=has_outputs)
    engines.zero_stage(deepspeed)
    engines.check_dtype(config, deepspeed)
    engines.check_compile(config, deepspeed)
    check_schedule(config, order.steps)
    export_steps(config, order, sequence_tokens)
