"""A LLaMA of a Hugging Face folder as a GGUF file in float32, for llama.cpp's server.

Its tokenizer is a byte-level BPE, of GPT-2's pattern or of SmolLM2's. Needs the package gguf, which
tests/servers/make.sh puts beside llama.cpp: `.servers/llamacpp/bin/python tests/servers/to_gguf.py
FOLDER OUT`.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def main(folder: Path, out: Path) -> None:
    """Write the file."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(str(out), "llama")
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    add_tokenizer(writer, folder)
    tied = config["tie_word_embeddings"]
    for name, weight in load_file(folder / "model.safetensors").items():
        given = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
        stem = name.removesuffix(".weight")
        if stem == "lm_head":
            if not tied:
                writer.add_tensor("output.weight", weight)
            continue
        if stem.startswith("model.layers."):
            _, _, layer, part = stem.split(".", 3)
            given[stem] = f"blk.{layer}.{NAMES[part]}"
            if part == "self_attn.q_proj":
                weight = interleaved(weight, heads)
            elif part == "self_attn.k_proj":
                weight = interleaved(weight, key_heads)
        writer.add_tensor(f"{given[stem]}.weight", np.ascontiguousarray(weight, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """The rows of each head as GGUF has them: the two of a rotary pair beside each other."""
    halves = weight.reshape(heads, 2, len(weight) // heads // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path) -> None:
    """The vocabulary, the merges, the special tokens, and the chat template if there is one."""
    record = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    ids = dict(record["model"]["vocab"])
    added = {token["content"]: token["id"] for token in record["added_tokens"]}
    ids |= added
    tokens = sorted(ids, key=ids.__getitem__)
    types = [gguf.TokenType.CONTROL if t in added else gguf.TokenType.NORMAL for t in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in record["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if len(tokens) == 49152 else "gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for name in ("bos", "eos"):
        if config.get(f"{name}_token") in ids:
            getattr(writer, f"add_{name}_token_id")(ids[config[f"{name}_token"]])
    writer.add_add_bos_token(bool((record["post_processor"] or {}).get("special_tokens")))
    template = folder / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
