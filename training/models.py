"""The model that training starts from: a loaded model, or an architecture with random weights."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from contamination.core import models
from contamination.core.errors import ConfigError, describe_error
from contamination.core.models import is_gguf, load_model, resolve_model_path
from contamination.training.config import ModelConfig
from contamination.training.deepspeed_engine import zero_stage
from contamination.training.trained_model import is_checkpoint, open_checkpoint

CONTEXT_FIELD = "max_position_embeddings"


def hf_folder(field: str, path: str) -> str:
    """Returns the Hugging Face folder, GGUF file or hub id at `path`, or a model folder's `hf`."""
    return str(open_checkpoint(path).hf) if is_checkpoint(path) else resolve_model_path(field, path)


def model_digest(field: str, path: str) -> str:
    """Returns the digest of the model folder or other model at `path`."""
    if is_checkpoint(path):
        return open_checkpoint(path).artifact.digest
    return models.model_digest(field, path)


def make_hf_config(config: ModelConfig, vocabulary: int) -> Any:
    """Returns the Hugging Face config of `config.architecture`.

    Args:
        config: the model, whose architecture is given.
        vocabulary: the vocabulary size, unless the architecture has one.

    Raises:
        ConfigError: transformers rejects it.
    """
    fields = {k: v for k, v in (config.architecture or {}).items() if v is not None}
    try:
        return copy.deepcopy(_checked_hf_config(json.dumps({"vocab_size": vocabulary, **fields})))
    except Exception as error:  # model code may raise any error for invalid values
        raise ConfigError(
            f"model.architecture is {config.architecture!r}: transformers rejects it "
            f"({describe_error(error)}). Give a model_type that it supports, and fields of that "
            "model's config.json."
        ) from error


@lru_cache
def _checked_hf_config(fields: str) -> Any:
    """Returns the Hugging Face config with these fields (JSON), checked by the model's own code.

    The cells of a sweep mostly have one architecture, and each check takes some 50 ms.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = json.loads(fields)
    hf_config = AutoConfig.for_model(values.pop("model_type", "llama"), **values)
    with torch.device("meta"):  # runs the model's own checks without allocating weights
        AutoModelForCausalLM.from_config(hf_config)
    _check_head_counts(hf_config)
    return hf_config


def _check_head_counts(config: Any) -> None:
    """Raises a ValueError for errors that model code would only report in a forward pass."""
    heads = getattr(config, "num_attention_heads", 1)
    groups = getattr(config, "num_key_value_heads", None) or heads
    if heads % groups:
        raise ValueError(
            f"num_attention_heads={heads} is not a multiple of {groups} key-value heads"
        )
    if getattr(config, "num_hidden_layers", 1) < 1:
        raise ValueError(f"num_hidden_layers={config.num_hidden_layers} is below 1")


def check_architecture(config: ModelConfig, vocabulary: int, sequence_tokens: int) -> Any:
    """Returns the Hugging Face config of a model with random weights, checked against its corpus.

    Its context length is the sequence length: at later positions, on which it is not trained, its
    predictions would be worse without a warning.

    Raises:
        ConfigError: transformers rejects it, or its vocabulary or its context does not fit.
    """
    context = (config.architecture or {}).get(CONTEXT_FIELD)
    if context not in (None, sequence_tokens):
        raise ConfigError(
            f"model.architecture.{CONTEXT_FIELD} is {context}, but a model with random weights is "
            f"trained on sequences of {sequence_tokens} tokens: leave it out (null), or pack "
            "sequences of as many (model.pretraining.sequence_tokens; injection.sequence_tokens "
            "without one)."
        )
    shape = {**(config.architecture or {}), CONTEXT_FIELD: sequence_tokens}
    hf_config = make_hf_config(replace(config, architecture=shape), vocabulary)
    _check_fits_corpus(hf_config, vocabulary, sequence_tokens)
    return hf_config


def load_or_create_model(
    config: ModelConfig,
    vocabulary: int,
    sequence_tokens: int,
    seed: int,
    deepspeed: dict[str, Any] | None = None,
) -> Any:
    """Returns the model in float32, checked against its corpus.

    It has the weights at `config.path`, or random weights. With ZeRO stage 3, a model is loaded in
    partitions, in the engine's dtype, so that no process needs memory for the whole model. Random
    weights are drawn unpartitioned, so that they are the same at any stage.

    Args:
        config: the model.
        vocabulary: the size of the corpus's vocabulary, and of a random model's unless its
            architecture has one.
        sequence_tokens: the corpus's sequence length, and a random model's context.
        seed: the seed for random weights.
        deepspeed: the engine's configuration, if there will be an engine.

    Raises:
        ConfigError: its vocabulary or its context is too small for the corpus, or a random model's
            context is longer than the sequences that it will be trained on.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if config.path is not None:
        folder = hf_folder("model.path", config.path)
        with _load_partitioned(None if is_gguf(folder) else deepspeed):  # GGUF is loaded whole
            model = load_model("model.path", folder, trust_remote_code=config.trust_remote_code)
        _check_not_quantized(config.path, model)
    else:
        hf_config = check_architecture(config, vocabulary, sequence_tokens)
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(hf_config)
    _check_fits_corpus(model.config, vocabulary, sequence_tokens)
    return model


@contextmanager
def _load_partitioned(deepspeed: dict[str, Any] | None) -> Iterator[None]:
    """Makes transformers load models directly into ZeRO stage 3's partitions."""
    if deepspeed is None or zero_stage(deepspeed) != 3:
        yield
        return
    from transformers.integrations import HfDeepSpeedConfig

    in_force = HfDeepSpeedConfig(deepspeed)  # has an effect as long as it exists
    yield
    del in_force


def _check_not_quantized(path: str, model: Any) -> None:
    """Raises a ConfigError for quantized weights, which can be neither trained nor saved."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        method = quantizer.quantization_config.quant_method
        raise ConfigError(
            f"model.path is {path!r}: its config.json has a quantization_config "
            f"({getattr(method, 'value', method)}), and quantized weights can't be trained. Give "
            "unquantized weights; if they are unquantized, remove that entry."
        )


def _check_fits_corpus(config: Any, vocabulary: int, sequence_tokens: int) -> None:
    if config.vocab_size < vocabulary:
        raise ConfigError(
            f"The model has {config.vocab_size} tokens (model.path's, or "
            f"model.architecture.vocab_size), the corpus's tokenizer {vocabulary}: pack the corpus "
            "with the model's own tokenizer (tokenizer.path=<the model's folder>)."
        )
    context = getattr(config, CONTEXT_FIELD)
    if context < sequence_tokens:
        raise ConfigError(
            f"injection.sequence_tokens is {sequence_tokens}, but the model's context is "
            f"{context}: pack the corpus in shorter sequences."
        )
