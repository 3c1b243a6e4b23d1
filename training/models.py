"""The model that training starts from: loaded, or random weights of an architecture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from contamination.core import models
from contamination.core.errors import ConfigError, said
from contamination.core.models import is_gguf, load_model, resolve
from contamination.training.config import ModelConfig
from contamination.training.engine import zero_stage
from contamination.training.trained_model import is_checkpoint, open_checkpoint

CONTEXT = "max_position_embeddings"


def hf_folder(field: str, path: str) -> str:
    """The Hugging Face folder, GGUF file or hub id that `path` means; an artefact's own folder."""
    return str(open_checkpoint(path).hf) if is_checkpoint(path) else resolve(field, path)


def model_digest(field: str, path: str) -> str:
    """What names the model at `path`: its artefact's digest, or that of its files."""
    if is_checkpoint(path):
        return open_checkpoint(path).artifact.digest
    return models.model_digest(field, path)


def make_config(config: ModelConfig, vocabulary: int) -> Any:
    """The Hugging Face config of `architecture`.

    Args:
        config: which model; its architecture is given.
        vocabulary: the model's entries, where the architecture does not say.

    Raises:
        ConfigError: transformers refuses it.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    given = {k: v for k, v in (config.architecture or {}).items() if v is not None}
    fields = {"vocab_size": vocabulary, **given}
    kind = fields.pop("model_type", "llama")
    try:
        made = AutoConfig.for_model(kind, **fields)
        with torch.device("meta"):  # what a model's own code refuses, without its weights
            AutoModelForCausalLM.from_config(made)
        _check_heads(made)
    except Exception as error:  # whatever that code makes of the user's numbers
        raise ConfigError(
            f"model.architecture is {config.architecture!r}: transformers refuses it "
            f"({said(error)}). Give a model_type that it knows and fields of that model's "
            "config.json."
        ) from error
    return made


def _check_heads(config: Any) -> None:
    """Raise a ValueError for what a model's code notices only in its first forward pass."""
    heads = getattr(config, "num_attention_heads", 1)
    groups = getattr(config, "num_key_value_heads", None) or heads
    if heads % groups:
        raise ValueError(f"num_attention_heads={heads} is no multiple of {groups} key-value heads")
    if getattr(config, "num_hidden_layers", 1) < 1:
        raise ValueError(f"num_hidden_layers={config.num_hidden_layers} is below 1")


def check_architecture(config: ModelConfig, vocabulary: int, sequence_tokens: int) -> Any:
    """The Hugging Face config of a model that is made here, checked against its corpus.

    It accepts no other positions than those that it is trained on: there its predictions would be
    worse, and nothing would say so.

    Raises:
        ConfigError: transformers refuses it, or its vocabulary or its context does not fit.
    """
    given = (config.architecture or {}).get(CONTEXT)
    if given not in (None, sequence_tokens):
        raise ConfigError(
            f"model.architecture.{CONTEXT} is {given}, but a model that is made here is trained on "
            f"sequences of {sequence_tokens} tokens: leave it out (null), or pack sequences of as "
            "many (model.pretraining.sequence_tokens; injection.sequence_tokens without one)."
        )
    shape = {**(config.architecture or {}), CONTEXT: sequence_tokens}
    made = make_config(replace(config, architecture=shape), vocabulary)
    _check(made, vocabulary, sequence_tokens)
    return made


def make_model(
    config: ModelConfig,
    vocabulary: int,
    sequence_tokens: int,
    seed: int,
    deepspeed: dict[str, Any] | None = None,
) -> Any:
    """The model in float32, checked against the corpus that it will read.

    The weights at `config.path`, or else random ones. Under ZeRO stage 3 a model that is loaded
    comes up partitioned, in the engine's own type, so that no process ever holds it whole. Random
    weights are drawn whole: the same at any stage.

    Args:
        config: which model.
        vocabulary: the entries of the corpus's tokenizer; also a random model's own, where its
            architecture does not say.
        sequence_tokens: the corpus's sequence length; also a random model's context.
        seed: draws random weights.
        deepspeed: the engine's configuration, where there will be an engine.

    Raises:
        ConfigError: its vocabulary or its context is too small for the corpus, or a random model's
            context is longer than what it is going to be trained on.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if config.path is not None:
        given = hf_folder("model.path", config.path)
        with _partitioned(None if is_gguf(given) else deepspeed):  # GGUF is expanded whole
            model = load_model("model.path", given, trust_remote_code=config.trust_remote_code)
        _check_plain(config.path, model)
    else:
        hf_config = check_architecture(config, vocabulary, sequence_tokens)
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


def _check_plain(path: str, model: Any) -> None:
    """Refuse quantized weights: they can be neither trained nor, at the end, saved."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        method = quantizer.quantization_config.quant_method
        raise ConfigError(
            f"model.path is {path!r}: its config.json has a quantization_config "
            f"({getattr(method, 'value', method)}), and quantized weights can't be trained. Give "
            "plain weights; where they are plain, remove that entry."
        )


def _check(config: Any, vocabulary: int, sequence_tokens: int) -> None:
    if config.vocab_size < vocabulary:
        raise ConfigError(
            f"The model has {config.vocab_size} tokens (model.path's, or "
            f"model.architecture.vocab_size), the corpus's tokenizer {vocabulary}: pack the corpus "
            "with the model's own tokenizer (tokenizer.path=<the model's folder>)."
        )
    context = getattr(config, CONTEXT)
    if context < sequence_tokens:
        raise ConfigError(
            f"injection.sequence_tokens is {sequence_tokens}, but the model's context is "
            f"{context}: pack the corpus in shorter sequences."
        )
