"""Weights that are not whole are refused by name, never completed or scored."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTJConfig,
    GPTNeoConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from contamination.core.errors import ConfigError
from contamination.core.models import load_config, load_model

QUERY = "model.layers.1.self_attn.q_proj.weight"


def llama(folder, **changes):
    shape = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2,
             "num_attention_heads": 2, "tie_word_embeddings": False, **changes}  # fmt: skip
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    return folder


def edit(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_value(value):
    def change(tensors):
        tensors[QUERY][0, 0] = value

    return change


SHAPES = rf"{QUERY} .*\(16, 8\), not \(16, 16\)"
DAMAGE = {
    "missing": (lambda t: t.pop(QUERY), f"lack {QUERY}"),
    "surplus": (lambda t: t.update({"model.extra": torch.ones(2)}), "unexpected model.extra"),
    "narrow": (lambda t: t.update({QUERY: torch.ones(16, 8)}), SHAPES),
    "nan": (with_value(float("nan")), f"NaN or infinite values are in {QUERY}"),
    "infinite": (with_value(float("-inf")), f"NaN or infinite values are in {QUERY}"),
    "all": (lambda t: t.clear(), "lack .* more"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(tmp_path, kind):
    change, said = DAMAGE[kind]
    edit(llama(tmp_path), change)
    with pytest.raises(ConfigError, match=f"^model.path is .*{said}"):
        load_model("model.path", str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", None])
def test_a_file_that_is_no_safetensors_is_named(tmp_path, content):
    file = llama(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ConfigError, match="^reference.path is .*can't be loaded"):
        load_model("reference.path", str(tmp_path))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("tied", [True, False])
def test_whole_weights_are_loaded_as_they_are(tmp_path, tied, dtype):
    made = LlamaForCausalLM.from_pretrained(llama(tmp_path, tie_word_embeddings=tied))
    model = load_model("model.path", str(tmp_path), dtype)
    for name, weights in made.named_parameters():
        assert torch.equal(weights.to(getattr(torch, dtype)), model.get_parameter(name))


def test_a_value_beyond_float16_is_refused_there_only(tmp_path):
    edit(llama(tmp_path), with_value(1e6))
    load_model("model.path", str(tmp_path), "bfloat16")
    with pytest.raises(ConfigError, match="infinite"):
        load_model("model.path", str(tmp_path), "float16")


def test_buffers_of_older_releases_are_no_surplus(tmp_path):
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    edit(llama(tmp_path), lambda tensors: tensors.update(old))
    load_model("model.path", str(tmp_path))


@pytest.mark.parametrize(
    ("config", "mask"),
    [
        (GPT2Config(vocab_size=32, n_embd=16, n_layer=2, n_head=2), "h.1.attn."),
        (GPTJConfig(vocab_size=32, n_embd=16, n_layer=2, n_head=2, rotary_dim=4),
         "transformer.h.1.attn."),
        (GPTNeoConfig(vocab_size=32, hidden_size=16, num_heads=2, num_layers=2,
                      attention_types=[[["global", "local"], 1]]),
         "transformer.h.1.attn.attention."),
    ],
    ids=["gpt2", "gptj", "gpt_neo"],
)  # fmt: skip
def test_causal_masks_in_published_models_are_no_surplus(tmp_path, config, mask):
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    masks = {f"{mask}bias": torch.ones(1, 1, 8, 8), f"{mask}masked_bias": torch.tensor(-1e9)}
    edit(tmp_path, lambda tensors: tensors.update(masks))
    load_model("model.path", str(tmp_path))
    edit(tmp_path, lambda tensors: tensors.update({f"{mask}other": torch.ones(2)}))
    with pytest.raises(ConfigError, match=f"include unexpected {mask}other. "):
        load_model("model.path", str(tmp_path))


def test_another_models_config_is_named(tmp_path):
    config = json.loads((llama(tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(ConfigError, match="lack model.layers.2"):
        load_model("model.path", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_hidden_layers", 10**8), ("vocab_size", 10**9), ("intermediate_size", 10**9)],
)
@pytest.mark.parametrize("load", [load_model, load_config])
def test_sizes_that_the_weights_can_not_have_are_refused_before_a_model_is_built(
    tmp_path, monkeypatch, name, value, load
):
    folder = llama(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, name: value}))
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", None)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", None)
    with pytest.raises(ConfigError, match=f"model.path is .*: {name} of its config.json is 1.*000"):
        load("model.path", str(folder))
