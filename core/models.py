"""Loading causal language models and their tokenizers from a folder or the hub."""

from __future__ import annotations

import copy
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contamination.core.artifacts import check_owner
from contamination.core.errors import ConfigError, said
from contamination.core.hashing import digests, file_digest, files_digest, folder_digest
from contamination.core.hub import commit, commit_digest, not_asked, prepare_hub


def own_part(parameter: Any) -> Any:
    """The values that this process holds, in one dimension where they are a part."""
    return getattr(parameter, "ds_tensor", parameter)


def whole_shape(parameter: Any) -> tuple[int, ...]:
    """The shape that all processes' parts have together."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


BUFFER = re.compile(r"(.*\.)?attn\.(attention\.)?(bias|masked_bias)")
"""A causal mask that older releases saved with GPT-2, GPT-J and GPT-Neo: it was never learned."""


def check_whole(field: str, path: str, model: Any, loaded: Mapping[str, Any]) -> None:
    """Refuse a model that transformers would complete with random weights, or run on NaN.

    `loaded` is the loading information of `from_pretrained`, and `field` the config field that
    holds `path`. Partitions of ZeRO stage 3 are looked at each where it is.

    Raises:
        ConfigError: a tensor is missing, surplus, of another shape, or not finite.
    """
    for wrong in _wrong(model, loaded):
        raise ConfigError(
            f"{field} is {path!r}: {wrong}. Its weights are damaged, or its config.json is another "
            "model's. Copy or download the model again, or give another one."
        )


def _wrong(model: Any, loaded: Mapping[str, Any]) -> Iterator[str]:
    surplus = [name for name in loaded["unexpected_keys"] if not BUFFER.fullmatch(name)]
    for names, what in ((loaded["missing_keys"], "lack"), (surplus, "have a surplus")):
        if names:
            yield f"its weights {what} {_some(sorted(names))}"
    for name, given, wanted in sorted(loaded["mismatched_keys"]):
        yield f"{name} has the shape {tuple(given)}, not {tuple(wanted)}"
    if names := [name for name, weights in model.named_parameters() if not _finite(weights)]:
        yield f"NaN or infinite values are in {_some(names)}"


def _finite(weights: Any) -> bool:
    here = own_part(weights)
    if here.is_meta or not here.numel():  # it is not loaded here, or there is none
        return True
    least, most = here.aminmax()  # NaN wherever one value is; needs no copy of the weights
    return bool(least.isfinite() & most.isfinite())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


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
