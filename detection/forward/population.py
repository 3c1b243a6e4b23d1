"""What the reference's own next tokens gain by the target, in place of each token of a text.

Shapes: T tokens, V vocabulary, N rows, X hidden units (or the vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from contamination.core.errors import ConfigError
from contamination.detection.config import DetectionConfig
from contamination.detection.forward.batches import check_finite, run_batches
from contamination.detection.models.base import LanguageModel, ModelHandle, ProgressCallback
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.passes import Copies, TokenStats

CHUNK = 2**23
"""Entries of both models' logits that are in memory at once: 32 MiB each."""


def run_population(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    *,
    reference: ModelHandle,
    settings: DetectionConfig,
    progress: str | None = None,
) -> list[Copies]:
    """Returns −KL(p_reference ‖ p_target) at each token after the first, as `logprob`.

    The reference is loaded beside the target, on its device, and freed at the end.

    Args:
        model: the target.
        sequences: token ids, at least 2 each.
        names: the names of the sequences, for errors.
        reference: the reference, of the same tokenizer.
        settings: the stage's settings.
        progress: the title of the progress bar; None shows no bar.

    Raises:
        ConfigError: the reference does not run in this process, or memory runs out.
        DataError: a model's logits for a text are not finite.
    """
    if "states" not in reference.provides:
        raise ConfigError(
            f"{reference.field} is {reference.path!r}: method.info_rmia needs the whole next-token "
            "distribution of the reference, which a served model does not give. Give a model in "
            "files, or leave the method out."
        )
    assert isinstance(model, CausalLM)
    other = reference.load(replace(settings, device=str(model.device), processes=1))
    assert isinstance(other, CausalLM)

    def score(
        batch: Sequence[Sequence[int]],
        batch_names: Sequence[str],
        _: int,
        on_progress: ProgressCallback,
    ) -> list[Copies]:
        stats = [TokenStats(logprob=gain) for gain in population_gains(model, other, batch)]
        check_finite(stats, batch_names)
        return [(text_stats,) for text_stats in stats]

    return run_batches(sequences, names, settings.batch_tokens, score, progress)


@torch.inference_mode()
def population_gains(
    target: CausalLM, reference: CausalLM, sequences: Sequence[Sequence[int]]
) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Returns Σ_v p_R(v) · (log p_T(v) − log p_R(v)) at each token after the first, per sequence.

    The sum is over the ids that both models have: padding beyond the tokenizer's own ids differs
    between models of one family. The gains are those of a text's tokens, normalised over all ids of
    a model; the weights p_R are normalised over the shared ids, so that a token that is drawn from
    them gains this sum in the mean.
    """
    rows = [torch.tensor(sequence) for sequence in sequences]
    ids_BT = pad_sequence(rows, batch_first=True)
    states = [
        torch.cat([hidden[: len(row) - 1] for hidden, row in zip(batch, rows, strict=True)])
        for batch in (m.hidden_states(ids_BT.to(m.device)) for m in (target, reference))
    ]
    shared = min(target.vocabulary, reference.vocabulary)
    n_rows = max(1, CHUNK // max(target.vocabulary, reference.vocabulary))
    gains = [
        _mean_gain(_logits(target, h_target), _logits(reference, h_reference), shared)
        for h_target, h_reference in zip(*(torch.split(s, n_rows) for s in states), strict=True)
    ]
    ends = np.cumsum([len(row) - 1 for row in rows])[:-1]
    return np.split(torch.cat(gains).cpu().numpy(), ends)


def _logits(model: CausalLM, hidden_NX: Tensor) -> Tensor:
    """Returns float32 logits (N, V)."""
    if model.head is None:
        return hidden_NX.float()
    return torch.cat([*model.head.logits(hidden_NX)], dim=1)


def _mean_gain(target_NV: Tensor, reference_NW: Tensor, shared: int) -> Tensor:  # noqa: N803
    log_target = target_NV.log_softmax(-1)[:, :shared]
    log_reference = reference_NW.log_softmax(-1)[:, :shared]
    p_reference = log_reference.softmax(-1)
    weighted_gains = p_reference * (log_target.to(log_reference.device) - log_reference)
    return weighted_gains.where(p_reference > 0, 0).sum(-1)
