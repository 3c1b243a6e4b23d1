"""A LLaMA with heads as wide as vLLM's attention on a CPU takes, which computes the same.

Those of tiny_llama and of the golden model have 16 units; vLLM takes 32, 64 and more. A head is
widened by zeros: its rotary pair i becomes pair i·w of one that is w times as wide, which turns at
the same rate, and its queries grow by √w, for scores are divided by the root of the width.

`python -m tests.servers.wide FOLDER OUT`
"""

from __future__ import annotations

import copy
import sys

import torch
from transformers import LlamaForCausalLM

from contamination.core.models import load_model, load_tokenizer

WIDTH = 64


def widen(folder: str, out: str) -> None:
    """Write the model of the folder, and its tokenizer, with heads of WIDTH units."""
    given = load_model("model.path", folder)
    config = copy.deepcopy(given.config)
    old, config.head_dim = given.model.layers[0].self_attn.head_dim, WIDTH
    wide = LlamaForCausalLM(config)
    state = {name: value for name, value in given.state_dict().items() if "self_attn" not in name}
    pairs = torch.arange(old // 2) * (WIDTH // old)
    turned = torch.cat([pairs, pairs + WIDTH // 2])
    for name, value in given.state_dict().items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            scale = (WIDTH / old) ** 0.5 if name.endswith("q_proj.weight") else 1.0
            state[name] = _spread(value * scale, old, turned)
        elif name.endswith("v_proj.weight"):
            state[name] = _spread(value, old, torch.arange(old))
        elif name.endswith("o_proj.weight"):
            state[name] = _spread(value.T, old, torch.arange(old)).T.contiguous()
    wide.load_state_dict(state)
    wide.save_pretrained(out)
    load_tokenizer("model.path", folder).save_pretrained(out)


def _spread(rows: torch.Tensor, old: int, places: torch.Tensor) -> torch.Tensor:
    """Each head's `old` rows (heads · old, n) at these places of WIDTH rows, zeros elsewhere."""
    heads = rows.reshape(-1, old, rows.shape[1])
    wide = torch.zeros(len(heads), WIDTH, rows.shape[1])
    wide[:, places] = heads
    return wide.reshape(-1, rows.shape[1])


if __name__ == "__main__":
    widen(*sys.argv[1:3])
