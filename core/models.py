"""Loads causal language models and their tokenizers from a folder, a GGUF file or the hub."""

from __future__ import annotations

import copy
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from contamination.core.artifacts import check_owning_run_folder
from contamination.core.errors import ConfigError, describe_error
from contamination.core.hashing import combined_digest, digests_by_name, file_digest, folder_digest
from contamination.core.hub import (
    cache_only_hint,
    commit_digest,
    commit_on_hub,
    go_offline_if_hub_unreachable,
)
from contamination.core.stored_files import read_json
from contamination.core.tokenizer_panics import field_by_tokenizer


def _local_partition(parameter: Any) -> Any:
    return getattr(parameter, "ds_tensor", parameter)


def full_shape(parameter: Any) -> tuple[int, ...]:
    """Returns the shape of the whole parameter, even if ZeRO partitions it among processes."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


CAUSAL_MASK_NAME = re.compile(r"(.*\.)?attn\.(attention\.)?(bias|masked_bias)")
"""Matches causal masks that older releases saved with the weights of GPT-2, GPT-J and GPT-Neo."""


def check_loaded_weights(field: str, path: str, model: Any, loaded: Mapping[str, Any]) -> None:
    """Checks the weights of a loaded model; transformers initialises missing weights randomly.

    With ZeRO stage 3, each process checks its own partition.

    Args:
        field: the config field with the value `path`.
        path: the path of the model.
        model: the loaded model.
        loaded: the loading information returned by `from_pretrained`.

    Raises:
        ConfigError: a tensor is missing, unexpected, of another shape, or not finite.
    """
    for problem in _weight_problems(model, loaded):
        raise ConfigError(
            f"{field} is {path!r}: {problem}. Its weights are damaged, or its config.json belongs "
            "to another model. Copy or download the model again, or give another one."
        )


def _weight_problems(model: Any, loaded: Mapping[str, Any]) -> Iterator[str]:
    unexpected = [
        name for name in loaded["unexpected_keys"] if not CAUSAL_MASK_NAME.fullmatch(name)
    ]
    for names, verb in ((loaded["missing_keys"], "lack"), (unexpected, "include unexpected")):
        if names:
            yield f"its weights {verb} {_format_first_three(sorted(names))}"
    for name, stored_shape, model_shape in sorted(loaded["mismatched_keys"]):
        yield f"{name} has the shape {tuple(stored_shape)}, not {tuple(model_shape)}"
    if names := [
        name for name, weights in model.named_parameters() if not _has_finite_values(weights)
    ]:
        yield f"NaN or infinite values are in {_format_first_three(names)}"


def _has_finite_values(weights: Any) -> bool:
    values = _local_partition(weights)
    if values.is_meta or not values.numel():  # not loaded in this process, or empty
        return True
    lowest, highest = values.aminmax()  # NaN if any value is NaN; copies no weights
    return bool(lowest.isfinite() & highest.isfinite())


def _format_first_three(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


GGUF_SUFFIX = ".gguf"
REPORTING_OPTIONS = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""Options of `from_pretrained` that make it report missing and mismatched tensors."""
SPECIAL_TOKENS = ("special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = ("tokenizer*", *SPECIAL_TOKENS, "vocab*", "merges*", "*.model")
MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.py", "*.jinja")
NODES_THAT_TRUST = ("model", "reference")  # the config nodes that have `trust_remote_code`


def is_gguf(path: str | Path) -> bool:
    """Returns whether `path` names a GGUF file: one file with a (quantized) model and tokenizer."""
    return Path(path).suffix.lower() == GGUF_SUFFIX


def resolve_model_path(field: str, path: str) -> str:
    """Returns the absolute path of a local folder or GGUF file, or a hub id unchanged.

    Raises:
        ConfigError: `path` can only be a local path, and it does not exist.
        ArtifactError: the path is in a damaged run folder.
    """
    resolved = _resolve_unchecked(field, path)
    check_owning_run_folder(Path(path).expanduser())
    return resolved


def _resolve_unchecked(field: str, path: str) -> str:
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
    """Returns a hash of the model's files, or of its commit on the hub.

    Raises:
        ConfigError: there is no such folder, or the hub can't provide it.
    """
    resolved = resolve_model_path(field, path)
    local = Path(resolved)
    if local.is_file():
        return file_digest(local)
    if local.is_dir():
        return folder_digest(local)
    return commit_digest(resolved, commit_on_hub(field, resolved))


def tokenizer_digest(folder: Path) -> str:
    """Returns a hash of the tokenizer's files in a Hugging Face folder."""
    files = {path.name: path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)}
    return combined_digest(digests_by_name(files))


def load_tokenizer(field: str, path: str, **options: Any) -> Any:
    """Returns the fast tokenizer at `path` (a folder, a GGUF file or a hub id)."""
    from transformers import AutoTokenizer

    field_by_tokenizer[path] = field
    tokenizer = load_pretrained(AutoTokenizer, field, path, **options)
    _disable_word_cache(tokenizer)
    return tokenizer


def _disable_word_cache(tokenizer: Any) -> None:
    """Turns off the tokenizer's cache of words if several threads tokenize.

    In tokenizers 0.23 the cache needs 4 MB per thread, which are not freed with the tokenizer. A
    process that tokenizes in a single thread keeps the cache, which saves a fifth of the time.
    """
    if os.environ.get("TOKENIZERS_PARALLELISM") == "false":
        return
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    resize = getattr(model, "_resize_cache", None)  # only BPE and Unigram have one
    if resize is not None:
        resize(0)


def load_config(field: str, path: str, *, trust_remote_code: bool = False) -> Any:
    """Returns the Hugging Face config at `path` (a folder, a GGUF file or a hub id).

    Each GGUF file is read once while it does not change: its vocabulary takes seconds.
    """
    from transformers import AutoConfig

    if not is_gguf(path) or not Path(path).is_file():
        return load_pretrained(AutoConfig, field, path, trust_remote_code=trust_remote_code)
    file = Path(path).resolve()
    status = file.stat()
    version = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    if _gguf_configs.get(file, (None, None))[0] != version:
        _gguf_configs[file] = version, load_pretrained(AutoConfig, field, path)
    return copy.deepcopy(_gguf_configs[file][1])


_gguf_configs: dict[Path, tuple[tuple[int, ...], Any]] = {}
"""The version and the config of each GGUF file that this process has read."""


def load_model(field: str, path: str, dtype: str = "float32", **options: Any) -> Any:
    """Returns the causal language model at `path` in evaluation mode, from safetensors or GGUF.

    The weights of a GGUF file are expanded to `dtype`: float32, bfloat16 or float16. Further
    options are passed to `from_pretrained` (device_map, trust_remote_code, …).

    Raises:
        ConfigError: the model can't be loaded, or its weights are incomplete or not finite.
    """
    import torch
    from transformers import AutoModelForCausalLM

    options = {"dtype": getattr(torch, dtype), "use_safetensors": True, **options}
    model, loaded = load_pretrained(
        AutoModelForCausalLM, field, path, **options, **REPORTING_OPTIONS
    )
    check_loaded_weights(field, path, model, loaded)
    if is_gguf(path) and "device_map" not in options:
        model = _copy_without_quantization(model)
    return model.eval()


def load_pretrained(factory: Any, field: str, path: str, **options: Any) -> Any:
    """Returns what an `Auto…` class of transformers loads from `path`.

    Args:
        factory: the class, such as `AutoTokenizer`.
        field: the config field with the value `path`.
        path: a folder, a GGUF file or a hub id.
        options: options of `from_pretrained`. Code that comes with the model runs only with
            `trust_remote_code=True`.

    Raises:
        ConfigError: it can't be loaded.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    location, source_options = _pretrained_arguments(field, path)
    _check_config_fits_weights(field, path, Path(location))
    if not source_options:
        go_offline_if_hub_unreachable()
    trusted = options.pop("trust_remote_code", False)
    try:
        return factory.from_pretrained(
            location, trust_remote_code=trusted, **source_options, **options
        )
    except Exception as error:  # transformers may raise any error for a user's files
        if "trust_remote_code" in str(error):
            raise ConfigError(_trust_error_message(field, path)) from error
        reason = describe_error(error)
        raise ConfigError(
            f"{field} is {path!r}: it can't be loaded as a {factory.__name__} ({reason}). Give a "
            "local Hugging Face folder, or a hub id on a machine that reaches the hub."
            f"{'' if source_options else cache_only_hint(path)}"
        ) from error


LAYER_COUNTS = frozenset({"num_hidden_layers", "n_layer", "n_layers", "num_layers"})
WIDTHS = frozenset({"vocab_size", "hidden_size", "n_embd", "intermediate_size"})
EXPERT_COUNTS = frozenset({"num_experts", "num_local_experts", "n_routed_experts"})
"""Fields of config.json that determine the size of the model that is built before loading
weights."""
HARMLESS_SIZE = 1000
"""Values up to this one are not checked: such a model is built, and its weights are compared."""


def _check_config_fits_weights(field: str, path: str, folder: Path) -> None:
    """Checks that the weights of a local folder can have the sizes in its config.json.

    Each layer has at least one tensor, and each width is a dimension of some tensor.

    Raises:
        ConfigError: a size in config.json is too large for the weights.
    """
    files = sorted(folder.glob("*.safetensors"))
    config: Any = None
    with suppress(ValueError, OSError):  # transformers reports the problem
        config = read_json(folder / "config.json")
    if not files or not isinstance(config, dict):
        return
    try:
        n_tensors, max_width = _tensor_count_and_width(files)
    except Exception:  # safetensors may raise any error; transformers reports the problem
        return
    limits = {
        **dict.fromkeys(LAYER_COUNTS, n_tensors),
        **dict.fromkeys(WIDTHS, max_width),
        **dict.fromkeys(EXPERT_COUNTS, max(n_tensors, max_width)),
    }
    for name, value in _iter_fields(config):
        if isinstance(value, int) and value > max(HARMLESS_SIZE, limits.get(name, value)):
            raise ConfigError(
                f"{field} is {path!r}: {name} of its config.json is {value:,}, but its weights "
                f"are {n_tensors:,} tensors of at most {max_width:,} rows or columns. Copy or "
                "download the model again, or give another one."
            )


def _tensor_count_and_width(files: list[Path]) -> tuple[int, int]:
    """Returns the number of tensors and the largest dimension of any of them."""
    from safetensors import safe_open

    shapes: list[list[int]] = []
    for file in files:
        with safe_open(file, "pt") as tensors:
            shapes += [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
    return len(shapes), max((size for shape in shapes for size in shape), default=0)


def _iter_fields(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the fields of a config and of its nested configs."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, dict):
            yield from _iter_fields(value)


def _pretrained_arguments(field: str, path: str) -> tuple[str, dict[str, Any]]:
    """The first argument of `from_pretrained` for `path`, and the options that it requires."""
    target = _resolve_unchecked(field, path)  # `resolve_model_path` checks its run folder
    if not is_gguf(target):
        return target, {"local_files_only": True} if os.path.isdir(target) else {}
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(
            f"{field} is {path!r}: reading a GGUF file needs the package gguf. Install it "
            "with pip install 'gguf>=0.10', or give a Hugging Face folder."
        )
    file = Path(target)
    return str(file.parent), {"gguf_file": file.name, "local_files_only": True}


def _trust_error_message(field: str, path: str) -> str:
    node, _, _ = field.rpartition(".")
    option = f"{node}.trust_remote_code" if node in NODES_THAT_TRUST else None
    remedy = f"Read it, then set {option}=true" if option else "Such a model can't be used here"
    return (
        f"{field} is {path!r}: it comes with its own Python code (auto_map in its config), which "
        f"is not run by default. {remedy}, or give a model that transformers supports."
    )


def _copy_without_quantization(model: Any) -> Any:
    """A new model with the same weights: a model read from GGUF can't be saved or trained."""
    from transformers import AutoModelForCausalLM

    config = copy.deepcopy(model.config)
    del config.quantization_config
    new_model = AutoModelForCausalLM.from_config(config, dtype=model.dtype)
    new_model.load_state_dict(model.state_dict())  # the new model ties weights itself
    return new_model
