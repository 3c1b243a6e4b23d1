"""The loss of next-token prediction.

Shapes: B sequences, S tokens.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.core.distributed import World
from contamination.core.errors import ConfigError, describe_error
from contamination.training.data import Batch, read_batch

if TYPE_CHECKING:
    import torch

IGNORED_LABEL = -100


def token_losses(
    model: Any,
    ids_BS: torch.Tensor,
    positions_BS: torch.Tensor | None = None,
    *,
    compiled: bool = False,
    labels_BS: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns −log p(x_t | x_<t) of each token after the first, shape (B, S-1), in nats.

    Args:
        model: a causal language model, or its engine.
        ids_BS: the tokens x.
        positions_BS: each token's position in its text, from which transformers creates a mask
            that separates the texts. The losses of the texts' first tokens are then meaningless.
        compiled: whether to compile the loss.
        labels_BS: labels to predict instead of x_t.
    """
    logits_BSV = compute_logits(model, ids_BS, positions_BS)
    targets_BS = ids_BS if labels_BS is None else labels_BS
    return (_compiled_cross_entropies() if compiled else _cross_entropies)(logits_BSV, targets_BS)


def compute_logits(
    model: Any, ids_BS: torch.Tensor, positions_BS: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns the logits, shape (B, S, V)."""
    position_options = {} if positions_BS is None else {"position_ids": positions_BS}
    logits_BSV: torch.Tensor = model(input_ids=ids_BS, use_cache=False, **position_options).logits
    return logits_BSV


def token_loss_sum(model: Any, batch: Batch, *, compiled: bool = False) -> torch.Tensor:
    """Returns the sum of `token_losses` over the tokens and sequences of the batch that count."""
    losses_BS = token_losses(model, batch.ids_BS, batch.positions_BS, compiled=compiled)
    return sum_counted_losses(losses_BS, batch)


def sum_counted_losses(losses_BS: torch.Tensor, batch: Batch) -> torch.Tensor:  # noqa: N803
    """Returns the sum of the losses, shape (B, S-1), of the batch's tokens that count."""
    if batch.counted_BS is not None:
        losses_BS = losses_BS * batch.counted_BS
    return (losses_BS.sum(dim=1) * batch.real_B).sum()


def _cross_entropies(logits_BSV: torch.Tensor, ids_BS: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional as F  # noqa: N812

    # the targets are shifted, not the logits, which would copy them
    targets = F.pad(ids_BS[:, 1:], (0, 1), value=IGNORED_LABEL)
    losses = F.cross_entropy(
        logits_BSV.float().flatten(0, 1),
        targets.flatten(),
        ignore_index=IGNORED_LABEL,
        reduction="none",
    )
    return losses.view(ids_BS.shape)[:, :-1]


@cache
def _compiled_cross_entropies() -> Any:
    """Returns `_cross_entropies` compiled: it keeps neither float32 logits nor their softmax."""
    import torch

    return torch.compile(_cross_entropies)


MAX_LOSS_DIFFERENCE = 1e-6  # nats; masked tokens contribute exactly zero


def check_texts_are_separate(engine: Any, sequences: Any, world: World) -> None:
    """Raises a ConfigError if a text's losses depend on the text before it in its sequence.

    The first sequence with several texts is evaluated twice, the second time with different tokens
    in its first text. Every process has to call this.

    Args:
        engine: the DeepSpeed engine, or a model.
        sequences: the sequences of a fine-tuning set.
        world: this process's rank and device.
    """
    import torch

    packed = np.flatnonzero(np.asarray(sequences["texts"]) > 1)
    if not len(packed):
        return
    batch = read_batch(sequences, packed[:1]).to(world.device)
    assert batch.texts_BS is not None
    texts_S = batch.texts_BS[0]
    changed_BS = torch.where(texts_S == texts_S[0], batch.ids_BS.roll(1, dims=1), batch.ids_BS)
    changed_BS[0, 0] = batch.ids_BS[0, 1]
    engine.eval()
    differences_BS = _losses_without_gradients(
        engine, batch.ids_BS, batch
    ) - _losses_without_gradients(engine, changed_BS, batch)
    engine.train()
    later_texts_S = (texts_S[1:] == texts_S[:-1]) & (texts_S[1:] != texts_S[0]) & (texts_S[1:] >= 0)
    if float(differences_BS[0][later_texts_S].abs().max()) > MAX_LOSS_DIFFERENCE:
        raise _not_separate_error(
            engine, "a text's losses change with the text before it in its sequence"
        )


def _losses_without_gradients(engine: Any, ids_BS: torch.Tensor, batch: Batch) -> torch.Tensor:  # noqa: N803
    import torch

    try:
        with torch.no_grad():
            return token_losses(engine, ids_BS, batch.positions_BS)
    except TypeError as error:
        raise _not_separate_error(
            engine, f"it accepts no positions ({describe_error(error)})"
        ) from error


def _not_separate_error(engine: Any, reason: str) -> ConfigError:
    kind = getattr(engine, "module", engine).config.model_type
    return ConfigError(
        f"model.path: this {kind} does not separate packed texts: {reason}. Create the "
        "fine-tuning set with finetuning.layout=padded."
    )
