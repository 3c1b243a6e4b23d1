"""Do the texts of one sequence stay apart? Asked of the model itself, before it is trained.

transformers makes the mask from the positions, which begin anew with each text. A model that makes
no such mask, or hands a state from token to token, would learn a text with the one before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from core.errors import ConfigError, said
from core.world import World
from training.data import Batch, read_batch
from training.loss import token_losses

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


@torch.no_grad()
def _losses(engine: Any, ids_BS: torch.Tensor, batch: Batch) -> torch.Tensor:  # noqa: N803
    try:
        return token_losses(engine, ids_BS, batch.positions_BS)
    except TypeError as error:
        raise _refusal(engine, f"it takes no positions ({said(error)})") from error


def _refusal(engine: Any, why: str) -> ConfigError:
    kind = getattr(engine, "module", engine).config.model_type
    return ConfigError(
        f"model.path: this {kind} does not keep packed texts apart: {why}. Make the fine-tuning "
        "set with finetuning.layout=padded."
    )
