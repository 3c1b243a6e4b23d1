"""The model that training starts from: loaded, or random weights of an architecture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.artifacts import folder_digest
from core.errors import ConfigError
from core.models import load_model, resolve
from training.checkpoint import is_checkpoint, open_checkpoint
from training.config import ModelConfig
from training.engine import zero_stage


def hf_folder(field: str, path: str) -> str:
    """The Hugging Face folder or hub id that `path` means; a model artefact's own folder."""
    return str(open_checkpoint(path).hf) if is_checkpoint(path) else resolve(field, path)


def model_digest(field: str, path: str) -> str:
    """What names the model at `path`: its artefact's digest, its files' hash, or its hub id."""
    if is_checkpoint(path):
        return open_checkpoint(path).artifact.digest
    folder = Path(hf_folder(field, path))
    return folder_digest(folder) if folder.is_dir() else f"hub:{path}"


def make_model(config: ModelConfig, vocabulary: int, sequence_tokens: int, seed: int,
               deepspeed: dict[str, Any] | None = None) -> Any:  # fmt: skip
    """The model in float32, checked against the corpus that it will read.

    Under ZeRO stage 3 a model that is loaded comes up partitioned, in the engine's own type, so
    that no process ever holds it whole. Random weights are drawn whole: the same at any stage.

    Args:
        config: which model.
        vocabulary: the entries of the corpus's tokenizer.
        sequence_tokens: the corpus's sequence length.
        seed: draws random weights.
        deepspeed: the engine's configuration, where there will be an engine.

    Raises:
        ConfigError: its vocabulary or its context is too small for the corpus.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if config.path is not None:
        with _partitioned(deepspeed):
            model = load_model("model.path", hf_folder("model.path", config.path))
    else:
        fields = dict(config.architecture or {})
        kind = fields.pop("model_type", "llama")
        hf_config = AutoConfig.for_model(kind, vocab_size=vocabulary, **fields)
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(hf_config)
    _check(model.config, vocabulary, sequence_tokens)
    return model


@contextmanager
def _partitioned(deepspeed: dict[str, Any] | None) -> Iterator[None]:
    """Where transformers loads straight into ZeRO stage 3's partitions."""
    if deepspeed is None or zero_stage(deepspeed) != 3:
        yield
        return
    from transformers.integrations import HfDeepSpeedConfig

    alive = HfDeepSpeedConfig(deepspeed)  # in force as long as it lives
    yield
    del alive


def _check(config: Any, vocabulary: int, sequence_tokens: int) -> None:
    if config.vocab_size < vocabulary:
        raise ConfigError(
            f"The model has {config.vocab_size} tokens, the corpus's tokenizer {vocabulary}: pack "
            "the corpus with the model's own tokenizer (tokenizer.path=<the model's folder>)."
        )
    if config.max_position_embeddings < sequence_tokens:
        raise ConfigError(
            f"injection.sequence_tokens is {sequence_tokens}, but the model's context is "
            f"{config.max_position_embeddings}: pack the corpus in shorter sequences."
        )
