"""The loss of next-token prediction.

Shapes: B sequences, S tokens.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

IGNORED = -100


def token_losses(model: Any, ids_BS: torch.Tensor, *, compiled: bool = False) -> torch.Tensor:
    """−log p(x_t | x_<t) of each token after the first, (B, S-1), in nats."""
    logits_BSV = model(input_ids=ids_BS, use_cache=False).logits
    return (_compiled() if compiled else _cross_entropies)(logits_BSV, ids_BS)


def token_loss_sum(
    model: Any, ids_BS: torch.Tensor, weights_B: torch.Tensor, *, compiled: bool = False
) -> torch.Tensor:
    """The sum of `token_losses` over tokens and sequences, with one weight a sequence."""
    return (token_losses(model, ids_BS, compiled=compiled).sum(dim=1) * weights_B).sum()


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
