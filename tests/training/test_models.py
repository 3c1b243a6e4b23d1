"""Model presets and given models: shape, context and weights."""

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from contamination.core import models
from contamination.core.config import convert_config
from contamination.core.errors import ConfigError
from contamination.core.hashing import file_digest
from contamination.core.models import load_config, load_model, load_tokenizer, resolve_model_path
from contamination.detection.models.hf_model import HFModel
from contamination.training.config import ModelConfig, TrainingStage
from contamination.training.models import (
    check_architecture,
    hf_folder,
    load_or_create_model,
    model_digest,
)
from contamination.training.resources import model_shape

GOLDEN = "tests/golden/target"
SMOLLM2 = os.environ.get("SMOLLM2_GGUF", "")
CODE = """
from transformers import LlamaConfig
class OwnConfig(LlamaConfig):
    model_type = "own"
"""


def preset(name, *overrides):
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(Path("conf").resolve()), version_base="1.3"):
        return convert_config(
            compose("training", [f"model={name}", *overrides]), TrainingStage
        ).model


@pytest.mark.parametrize(
    ("name", "hub", "parameters"),
    [
        ("llama_7b", "huggyllama/llama-7b", 6_738_415_616),
        ("llama_13b", "huggyllama/llama-13b", 13_015_864_320),
        ("smollm2_135m", "HuggingFaceTB/SmolLM2-135M", 134_515_008),
    ],
)
def test_presets_name_the_hub_and_have_its_shape(name, hub, parameters):
    found = preset(name)
    assert (found.name, found.path) == (name, hub)
    assert model_shape(found).parameters == parameters
    assert preset(name, "model.path=null").path is None


def test_without_a_path_a_preset_gives_random_weights_of_its_shape():
    found = preset("smollm2_135m", "model.path=null", "model.architecture.num_hidden_layers=1")
    model = load_or_create_model(found, 1000, 8192, 0)
    assert model.config.vocab_size == 49152
    assert model.config.rope_parameters["rope_theta"] == 100000.0
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.config.num_hidden_layers == 1


def test_a_given_model_keeps_its_own_context():
    given = ModelConfig(path=GOLDEN)
    assert load_or_create_model(given, 512, 16, 0).config.max_position_embeddings == 512
    with pytest.raises(ConfigError, match="sequence_tokens is 513, but the model's context is 512"):
        load_or_create_model(given, 512, 513, 0)


def test_a_path_goes_before_the_architecture():
    found = preset("llama_7b", f"model.path={GOLDEN}")
    model = load_or_create_model(found, 512, 16, 0)
    expected = load_model("model.path", GOLDEN).state_dict()
    assert all(torch.equal(v, expected[k]) for k, v in model.state_dict().items())


def test_an_architecture_that_transformers_refuses_is_said():
    with pytest.raises(ConfigError, match="model.architecture is .*'lama'.*Give a model_type"):
        load_or_create_model(ModelConfig(architecture={"model_type": "lama"}), 10, 10, 0)


@pytest.fixture(scope="module")
def small_gguf(tmp_path_factory):
    """A LLaMA of one layer, its weights as llama.cpp stores them, without a tokenizer."""
    gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
    place = tmp_path_factory.mktemp("gguf") / "small.GGUF"
    out = gguf.GGUFWriter(place, "llama")
    for add, value in (
        (out.add_block_count, 1), (out.add_context_length, 64), (out.add_embedding_length, 32),
        (out.add_feed_forward_length, 64), (out.add_head_count, 2), (out.add_head_count_kv, 2),
        (out.add_layer_norm_rms_eps, 1e-5), (out.add_rope_freq_base, 1e4),
        (out.add_rope_dimension_count, 16), (out.add_vocab_size, 48),
    ):  # fmt: skip
        add(value)
    shapes = {
        "token_embd": (48, 32), "output_norm": (32,), "blk.0.attn_norm": (32,),
        "blk.0.ffn_norm": (32,), "blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32),
        "blk.0.ffn_down": (32, 64),
        **{f"blk.0.attn_{name}": (32, 32) for name in ("q", "k", "v", "output")},
    }  # fmt: skip
    torch.manual_seed(0)
    for name, shape in shapes.items():
        out.add_tensor(f"{name}.weight", torch.randn(shape).numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return place


def test_a_gguf_file_is_a_model_that_trains_and_is_saved(small_gguf, tmp_path):
    model = load_or_create_model(ModelConfig(path=str(small_gguf)), 48, 64, 0)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    ids = torch.arange(40).reshape(2, 20)
    model(input_ids=ids).logits.sum().backward()
    model.save_pretrained(tmp_path / "saved")
    assert "quantization_config" not in json.loads((tmp_path / "saved/config.json").read_text())
    again = load_model("model.path", str(tmp_path / "saved"))
    torch.testing.assert_close(again(input_ids=ids).logits, model(input_ids=ids).logits)
    half = load_model("model.path", str(small_gguf), "bfloat16")
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}


def test_a_gguf_file_is_named_by_its_hash(small_gguf):
    assert hf_folder("model.path", str(small_gguf)) == str(small_gguf)
    assert model_digest("model.path", str(small_gguf)) == file_digest(small_gguf)
    scored = HFModel.from_path("model.path", str(small_gguf))
    assert scored.digest == scored.tokenizer_digest == file_digest(small_gguf)
    assert (scored.slug, scored.folder) == ("small", small_gguf)
    assert load_config("model.path", str(small_gguf)).max_position_embeddings == 64
    assert model_shape(ModelConfig(path=str(small_gguf))).hidden == 32


def test_the_config_of_a_gguf_file_is_read_once_while_the_file_is_the_same(
    small_gguf, tmp_path, monkeypatch
):
    path = tmp_path / "copy.gguf"
    path.write_bytes(small_gguf.read_bytes())
    first = load_config("model.path", str(path))
    with monkeypatch.context() as patched:
        patched.setattr(models, "load_pretrained", None)
        again = load_config("model.path", str(path))
    assert again.to_dict() == first.to_dict()
    again.hidden_size = 1  # a caller's change is its own
    assert load_config("model.path", str(path)).hidden_size == 32
    changed = path.stat()
    path.write_bytes(b"x" * changed.st_size)  # of the same size and time
    os.utime(path, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    with pytest.raises(ConfigError, match=r"copy.gguf.*can't be loaded"):
        load_config("model.path", str(path))


def test_a_gguf_file_that_is_not_there_is_said():
    for path in ("/nowhere/model.gguf", "model.gguf", "owner/model.gguf"):
        with pytest.raises(ConfigError, match=f"model.path is '{path}': there is no such file"):
            resolve_model_path("model.path", path)


def test_a_gguf_file_that_is_none_is_said(tmp_path):
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    for content in (b"", b"not a model" * 100):
        (tmp_path / "bad.gguf").write_bytes(content)
        with pytest.raises(ConfigError, match="model.path is .*bad.gguf.*can't be loaded"):
            load_model("model.path", str(tmp_path / "bad.gguf"))


def test_the_package_that_reads_gguf_is_named(tmp_path, monkeypatch):
    (tmp_path / "model.gguf").touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="model.path is .*pip install .gguf"):
        load_model("model.path", str(tmp_path / "model.gguf"))


@pytest.mark.slow
@pytest.mark.skipif(not Path(SMOLLM2).is_file(), reason="SMOLLM2_GGUF names no GGUF file")
def test_smollm2_from_gguf_scores_as_its_converted_folder(tmp_path):
    model = load_model("model.path", SMOLLM2)
    model.save_pretrained(tmp_path / "saved")
    tokenizer = load_tokenizer("tokenizer.path", SMOLLM2)
    tokenizer.save_pretrained(tmp_path / "saved")
    again = load_model("model.path", str(tmp_path / "saved"))
    ids = torch.tensor([tokenizer("The capital of France is")["input_ids"]])
    with torch.inference_mode():
        logits = model(input_ids=ids).logits
        assert torch.equal(again(input_ids=ids).logits, logits)
    assert tokenizer.decode(logits[0, -1].argmax()).strip() == "Paris"
    converted = os.environ.get("SMOLLM2_FOLDER")  # the same file, converted by hand
    if converted:
        with torch.inference_mode():
            other = load_model("model.path", converted)(input_ids=ids).logits
        assert torch.equal(other, logits)
        assert load_tokenizer("tokenizer.path", converted).get_vocab() == tokenizer.get_vocab()


@pytest.fixture
def own_code(tmp_path):
    """A folder whose config needs Python code that lies beside it."""
    folder = tmp_path / "own"
    shutil.copytree(GOLDEN, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE)
    return str(folder)


def test_a_models_own_code_is_not_run_unasked(own_code):
    refused = "model.path is .*auto_map.*set model.trust_remote_code=true"
    with pytest.raises(ConfigError, match=refused):
        load_or_create_model(ModelConfig(path=own_code), 10, 10, 0)
    with pytest.raises(ConfigError, match="masked_lm.path is .*can't be used here"):
        load_config("masked_lm.path", own_code)


def test_trust_is_handed_to_what_loads_the_model(monkeypatch):
    calls, model = [], load_model("model.path", GOLDEN)
    loading = "contamination.training.models.load_model"
    monkeypatch.setattr(loading, lambda *args, **keywords: calls.append((args, keywords)) or model)
    for trusted in (True, False):
        load_or_create_model(ModelConfig(path=GOLDEN, trust_remote_code=trusted), 512, 16, 0)
    arguments = "model.path", str(Path(GOLDEN).resolve())
    assert calls == [(arguments, {"trust_remote_code": trusted}) for trusted in (True, False)]


LLAMA = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
         "num_attention_heads": 2}  # fmt: skip


def test_an_architecture_that_does_not_fit_is_said():
    cases = {
        "^model.architecture.max_position_embeddings is 64, but a model with random weights is "
        r"trained on sequences of 32 tokens: leave it out \(null\), or pack sequences of as many "
        r"\(model.pretraining.sequence_tokens; injection.sequence_tokens without one\).$":
            {"max_position_embeddings": 64},
        r"^The model has 100 tokens \(model.path's, or model.architecture.vocab_size\), the "
        r"corpus's tokenizer 101: pack the corpus with the model's own tokenizer "
        r"\(tokenizer.path=<the model's folder>\).$": {"vocab_size": 100},
        "num_attention_heads=3 is not a multiple of 2 key-value heads":
            {"hidden_size": 18, "num_attention_heads": 3, "num_key_value_heads": 2},
        "num_hidden_layers=0 is below 1": {"num_hidden_layers": 0},
    }  # fmt: skip
    for message, fields in cases.items():
        with pytest.raises(ConfigError, match=message):
            check_architecture(ModelConfig(architecture={**LLAMA, **fields}), 101, 32)
    for fields, size in (({"vocab_size": 101}, 101), ({"vocab_size": None}, 101), ({}, 101)):
        architecture = {**LLAMA, **fields, "max_position_embeddings": 32}
        config = check_architecture(ModelConfig(architecture=architecture), 101, 32)
        assert (config.vocab_size, config.max_position_embeddings) == (size, 32)
    with pytest.raises(ConfigError) as error:
        ModelConfig()
    assert str(error.value) == (
        "model.path is None: give a Hugging Face folder or hub id, or a model.architecture."
    )


def test_random_weights_are_drawn_from_the_seed():
    config = ModelConfig(architecture=LLAMA)
    weights = [
        load_or_create_model(config, 101, 32, seed).get_output_embeddings().weight
        for seed in (3, 3, 4)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_models_own_code_runs_where_it_is_trusted(own_code, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    config = load_config("model.path", own_code, trust_remote_code=True)
    assert type(config).__name__ == "OwnConfig"


def test_trust_is_part_of_what_names_a_scored_model():
    plain = HFModel.from_path("model.path", GOLDEN)
    trusted = HFModel.from_path("model.path", GOLDEN, trust_remote_code=True)
    assert trusted.trust_remote_code
    assert plain.digest != trusted.digest


def test_quantized_weights_are_refused_before_any_training(tmp_path):

    folder = tmp_path / "quantized"
    shutil.copytree("tests/golden/target", folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gguf", "gguf_file": "x.gguf"}
    (folder / "config.json").write_text(json.dumps(config))
    message = f"model.path is {str(folder)!r}: its config.json has a quantization_config (gguf)"
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_or_create_model(ModelConfig(path=str(folder)), 1024, 64, 0)


def test_a_folder_is_named_by_the_content_of_its_files(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN, folder)
    before = model_digest("model.path", str(folder))
    weights = folder / "model.safetensors"
    was, content = weights.stat(), weights.read_bytes()
    (folder / ".cache").mkdir()
    (folder / ".cache" / "fetched").write_text("just now")  # as the hub's client leaves it
    os.utime(weights, ns=(0, 0))
    assert model_digest("model.path", str(folder)) == before
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(weights, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert model_digest("model.path", str(folder)) != before
    assert (
        model_digest("model.path", str(folder))
        == HFModel.from_path("model.path", str(folder)).digest
    )


def test_a_hub_model_is_named_by_its_commit(monkeypatch, tmp_path):
    commits = ["c1", "c1", "c2"]

    def snapshot(name, **options):
        assert (name, options["repo_type"], options["revision"]) == ("me/it", "model", None)
        return str(tmp_path / commits.pop(0))

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    first = model_digest("model.path", "me/it")
    assert HFModel.from_path("model.path", "me/it").digest == first  # detection calls it the same
    assert model_digest("model.path", "me/it") != first
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="model.path is 'me/it': no such folder here"):
        model_digest("model.path", "me/it")
