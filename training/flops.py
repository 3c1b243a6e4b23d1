"""Model FLOPs utilization (MFU; Chowdhery et al. 2022, PaLM, appendix B)."""

from __future__ import annotations

from typing import Any


def flops_per_token(model_config: Any, parameters: int, sequence_tokens: int) -> float:
    """Floating-point operations of a training step for each token: 6·N + 12·L·H·Q·T.

    N counts the weights that multiply: all but the input embedding, which is looked up (where it
    is tied to the output's, it multiplies there). Recomputed activations don't count.

    Args:
        model_config: a Hugging Face config.
        parameters: all weights of the model.
        sequence_tokens: T.
    """
    config = model_config.get_text_config(decoder=True)
    lookup = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attention = config.num_hidden_layers * config.num_attention_heads * head * sequence_tokens
    return float(6 * (parameters - lookup) + 12 * attention)


def masked_lm_flops_per_token(model_config: Any, sequence_tokens: int) -> float:
    """The same of a masked language model, whose position embeddings don't multiply either.

    Args:
        model_config: its Hugging Face config.
        sequence_tokens: T.
    """
    import torch
    from transformers import AutoModelForMaskedLM

    with torch.device("meta"):
        empty = AutoModelForMaskedLM.from_config(model_config)
    sizes = {name: weight.numel() for name, weight in empty.named_parameters()}
    multiply = sum(n for name, n in sizes.items() if "position_embeddings" not in name)
    return flops_per_token(model_config, multiply, sequence_tokens)


def utilization(
    tokens_per_second: float, per_token: float, peak_tflops: float, devices: int
) -> float:
    """MFU, from 0 to 1, of so many devices of a stated peak each."""
    return tokens_per_second * per_token / (peak_tflops * 1e12 * devices)
