"""Loading causal language models and their tokenizers from a folder or the hub."""

from __future__ import annotations

import copy
import importlib.util
import os
from pathlib import Path
from typing import Any

from core.artifacts import check_owner
from core.content import digests, file_digest, files_digest, folder_digest
from core.errors import ConfigError, said
from core.hub import commit, commit_digest, not_asked, prepare_hub
from core.weights import check_whole

GGUF = ".gguf"
LOADING = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""What `from_pretrained` is told so that it reports what does not fit: `check_whole` refuses it."""
SPECIAL_TOKENS = ("special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = ("tokenizer*", *SPECIAL_TOKENS, "vocab*", "merges*", "*.model")
MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.py", "*.jinja")
TRUSTING = ("model", "reference")  # the config nodes that have `trust_remote_code`


def is_gguf(path: str | Path) -> bool:
    """Whether `path` names a GGUF file: one file with a (quantized) model and its tokenizer."""
    return Path(path).suffix.lower() == GGUF


def resolve(field: str, path: str) -> str:
    """A local folder's or GGUF file's absolute path, or a hub id as it stands.

    Raises:
        ConfigError: `path` can only be a local path, and nothing fit is there.
        ArtifactError: it is in a finished run folder that is damaged.
    """
    found = _resolve(field, path)
    check_owner(Path(path).expanduser())
    return found


def _resolve(field: str, path: str) -> str:
    local = Path(path).expanduser()
    if local.is_dir() or (is_gguf(local) and local.is_file()):
        return str(local.resolve())
    if is_gguf(local):
        raise ConfigError(f"{field} is {path!r}: there is no such file. Give a local GGUF file.")
    if local.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise ConfigError(
            f"{field} is {path!r}: there is no such folder. Give a Hugging Face folder "
            "(config.json, model.safetensors, tokenizer.json), a GGUF file or a hub id "
            "(huggyllama/llama-7b)."
        )
    return path


def model_digest(field: str, path: str) -> str:
    """What names the model at `path`: a hash of its files, or of its commit on the hub.

    Raises:
        ConfigError: there is no such folder, or the hub can't give it.
    """
    found = Path(given := resolve(field, path))
    if found.is_file():
        return file_digest(found)
    return folder_digest(found) if found.is_dir() else commit_digest(given, commit(field, given))


def tokenizer_digest(folder: Path) -> str:
    """A hash of the tokenizer's files in a Hugging Face folder."""
    found = {p.name: p for pattern in TOKENIZER_FILES for p in folder.glob(pattern)}
    return files_digest(digests(found))


def load_tokenizer(field: str, path: str, **options: Any) -> Any:
    """The fast tokenizer at `path` (a folder, a GGUF file or a hub id)."""
    from transformers import AutoTokenizer

    tokenizer = load(AutoTokenizer, field, path, **options)
    _drop_cache(tokenizer)
    return tokenizer


def _drop_cache(tokenizer: Any) -> None:
    """Let it remember no words where threads share the work (tokenizers 0.23).

    It would keep 4 MB a thread, which outlive the tokenizer. A process that tokenises in one thread
    alone keeps them, which saves it a fifth of the time.
    """
    if os.environ.get("TOKENIZERS_PARALLELISM") == "false":
        return
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    resize = getattr(model, "_resize_cache", None)  # a BPE or Unigram has one
    if resize is not None:
        resize(0)


def load_config(field: str, path: str, **options: Any) -> Any:
    """The Hugging Face config at `path` (a folder, a GGUF file or a hub id)."""
    from transformers import AutoConfig

    return load(AutoConfig, field, path, **options)


def load_model(field: str, path: str, dtype: str = "float32", **options: Any) -> Any:
    """The causal language model at `path` in evaluation mode, from safetensors or GGUF only.

    The weights of a GGUF file are expanded to `dtype`: float32, bfloat16 or float16. The options
    are passed to `from_pretrained` (device_map, trust_remote_code, …).

    Raises:
        ConfigError: it can't be loaded, or its weights are not whole.
    """
    import torch
    from transformers import AutoModelForCausalLM

    options = {"dtype": getattr(torch, dtype), "use_safetensors": True, **options}
    model, loaded = load(AutoModelForCausalLM, field, path, **options, **LOADING)
    check_whole(field, path, model, loaded)
    if is_gguf(path) and "device_map" not in options:
        model = _unquantized(model)
    return model.eval()


def load(factory: Any, field: str, path: str, **options: Any) -> Any:
    """What an `Auto…` class of transformers makes of `path` (a folder, a GGUF file or a hub id).

    The options are passed to `from_pretrained`. Code that comes with the model runs only with
    `trust_remote_code=True`.

    Raises:
        ConfigError: it can't.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    where, source = _source(field, path)
    if not source:
        prepare_hub()
    trusted = options.pop("trust_remote_code", False)
    try:
        return factory.from_pretrained(where, trust_remote_code=trusted, **source, **options)
    except Exception as error:  # whatever the library's readers make of the user's files
        if "trust_remote_code" in str(error):
            raise ConfigError(_needs_trust(field, path)) from error
        first = said(error)
        raise ConfigError(
            f"{field} is {path!r}: it can't be loaded as a {factory.__name__} ({first}). Give a "
            "local Hugging Face folder, or a hub id on a machine that reaches the hub."
            f"{'' if source else not_asked(path)}"
        ) from error


def _source(field: str, path: str) -> tuple[str, dict[str, Any]]:
    """What `from_pretrained` is given to find `path`: its first argument and some of the others."""
    target = _resolve(field, path)  # whoever named it has checked it
    if not is_gguf(target):
        return target, {"local_files_only": True} if os.path.isdir(target) else {}
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(
            f"{field} is {path!r}: to read a GGUF file the package gguf is needed. Install it "
            "with pip install 'gguf>=0.10', or give a Hugging Face folder."
        )
    file = Path(target)
    return str(file.parent), {"gguf_file": file.name, "local_files_only": True}


def _needs_trust(field: str, path: str) -> str:
    node, _, _ = field.rpartition(".")
    named = f"{node}.trust_remote_code" if node in TRUSTING else None
    remedy = f"Read it, then set {named}=true" if named else "Such a model can't be used here"
    return (
        f"{field} is {path!r}: it comes with Python code of its own (auto_map in its config), "
        f"which is not run unasked. {remedy}, or give a model that transformers itself knows."
    )


def _unquantized(model: Any) -> Any:
    """A new model with these weights: one read from GGUF refuses to be saved or trained."""
    from transformers import AutoModelForCausalLM

    config = copy.deepcopy(model.config)
    del config.quantization_config
    fresh = AutoModelForCausalLM.from_config(config, dtype=model.dtype)
    fresh.load_state_dict(model.state_dict())  # tied weights are the fresh model's own ties
    return fresh
