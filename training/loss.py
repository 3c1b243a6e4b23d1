"""The loss of next-token prediction.

Shapes: B sequences, S tokens.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.core.distributed import World
from contamination.core.errors import ConfigError, said
from contamination.training.data import Batch, read_batch

if TYPE_CHECKING:
    import torch

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
    from torch.nn import functional as F  # noqa: N812

    targets = F.pad(ids_BS[:, 1:], (0, 1), value=IGNORED)  # shifting these copies no logits
    losses = F.cross_entropy(
        logits_BSV.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return losses.view(ids_BS.shape)[:, :-1]


@cache
def _compiled() -> Any:
    """Return `_cross_entropies` compiled: it keeps neither float32 logits nor their softmax."""
    import torch

    return torch.compile(_cross_entropies)


EXACT = 1e-6  # nats: what is masked adds an exact zero


def check_apart(engine: Any, sequences: Any, world: World) -> None:
    """Raise a ConfigError where a text's losses change with the text before it.

    The first packed sequence is read twice, the second time with other tokens in its first text.
    Every process has to call this.

    Args:
        engine: the DeepSpeed engine, or a model.
        sequences: of a fine-tuning set.
        world: this process's place.
    """
    import torch

    packed = np.flatnonzero(np.asarray(sequences["texts"]) > 1)
    if not len(packed):
        return
    batch = read_batch(sequences, packed[:1]).to(world.device)
    assert batch.texts_BS is not None
    own = batch.texts_BS[0]
    other = torch.where(own == own[0], batch.ids_BS.roll(1, dims=1), batch.ids_BS)
    other[0, 0] = batch.ids_BS[0, 1]
    engine.eval()
    differs = _losses(engine, batch.ids_BS, batch) - _losses(engine, other, batch)
    engine.train()
    others = (own[1:] == own[:-1]) & (own[1:] != own[0]) & (own[1:] >= 0)
    if float(differs[0][others].abs().max()) > EXACT:
        raise _refusal(engine, "a text's losses change with the text before it in its sequence")


def _losses(engine: Any, ids_BS: torch.Tensor, batch: Batch) -> torch.Tensor:  # noqa: N803
    import torch

    try:
        with torch.no_grad():
            return token_losses(engine, ids_BS, batch.positions_BS)
    except TypeError as error:
        raise _refusal(engine, f"it takes no positions ({said(error)})") from error


def _refusal(engine: Any, why: str) -> ConfigError:
    kind = getattr(engine, "module", engine).config.model_type
    return ConfigError(
        f"model.path: this {kind} does not keep packed texts apart: {why}. Make the fine-tuning "
        "set with finetuning.layout=padded."
    )
