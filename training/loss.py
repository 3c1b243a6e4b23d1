"""The loss of next-token prediction.

Shapes: B sequences, S tokens.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from training.data import Batch

IGNORED = -100


def token_losses(
    model: Any,
    ids_BS: torch.Tensor,
    positions_BS: torch.Tensor | None = None,
    *,
    compiled: bool = False,
    labels_BS: torch.Tensor | None = None,
) -> torch.Tensor:
    """−log p(x_t | x_<t) of each token after the first, (B, S-1), in nats.

    With `positions_BS`, each token's place in its own text, x_<t are those of its text: from them
    transformers makes a mask by which no text sees another. What it gives for a text's first token
    is of no text. With `labels_BS`, it is the loss of these in the place of x_t.
    """
    logits_BSV = forward(model, ids_BS, positions_BS)
    wanted = ids_BS if labels_BS is None else labels_BS
    return (_compiled() if compiled else _cross_entropies)(logits_BSV, wanted)


def forward(
    model: Any, ids_BS: torch.Tensor, positions_BS: torch.Tensor | None = None
) -> torch.Tensor:
    """The logits, (B, S, V)."""
    places = {} if positions_BS is None else {"position_ids": positions_BS}
    logits: torch.Tensor = model(input_ids=ids_BS, use_cache=False, **places).logits
    return logits


def token_loss_sum(model: Any, batch: Batch, *, compiled: bool = False) -> torch.Tensor:
    """The sum of `token_losses` over the tokens and sequences of the batch that count."""
    losses_BS = token_losses(model, batch.ids_BS, batch.positions_BS, compiled=compiled)
    return weighted_sum(losses_BS, batch)


def weighted_sum(losses_BS: torch.Tensor, batch: Batch) -> torch.Tensor:  # noqa: N803
    """The sum of the tokens' losses that count, shape (B, S-1), in the batch."""
    if batch.counted_BS is not None:
        losses_BS = losses_BS * batch.counted_BS
    return (losses_BS.sum(dim=1) * batch.real_B).sum()


def _cross_entropies(logits_BSV: torch.Tensor, ids_BS: torch.Tensor) -> torch.Tensor:
    targets = F.pad(ids_BS[:, 1:], (0, 1), value=IGNORED)  # shifting these copies no logits
    losses = F.cross_entropy(
        logits_BSV.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return losses.view(ids_BS.shape)[:, :-1]


@cache
def _compiled() -> Any:
    """`_cross_entropies` without the logits in float32, nor their softmax, in memory."""
    return torch.compile(_cross_entropies)
