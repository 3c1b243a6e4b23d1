"""Bad inputs of `python -m training`: recipes, models, corpora, `memory`."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

from contamination.core.files import HASH_KEY
from tests.bad_inputs.material import GOLDEN
from tests.bad_inputs.row import M, Row, bad, values

train = partial(bad, "training")
memory = partial(bad, "training memory")
which = partial(bad, "training which-step")

VALUES = {
    "training.learning_rate": "0 -1 nan fast",
    "training.schedule": "step",
    "training.warmup_steps": "-1 1000000 1.5",
    "training.decay_steps": "0 -1 1.5",
    "training.tail_after_steps": "0 1000000 x",
    "training.tail_learning_rate": "0 -1 nan 0.001",
    "training.tail_weight_decay": "-1 inf 0.1",
    "training.shared_steps": "0 -1 1000000",
    "training.batch_sequences": "3 0 -4",
    "training.micro_batch_sequences": "0 3",
    "training.weight_decay": "-1 inf",
    "training.beta1": "1 -0.1 nan",
    "training.beta2": "1 -1 inf",
    "training.clip_norm": "0 -1 nan",
    "training.dtype": "float16 int8",
    "training.order": "random",
    "training.order_seed": "x",
    "training.init_seed": "1.5",
    "training.checkpoint_every_steps": "0",
    "training.keep_checkpoints": "0",
    "training.export_steps": "[0] [1000000] [x] 5",
    "training.export_tokens": "[0] [1000000000]",
    "training.evaluate_every_steps": "0 -1",
    "training.evaluate_examples": "0",
    "training.evaluate_tokens": "0",
    "training.peak_tflops": "0 nan inf",
    "training.activation_checkpointing": "perhaps",
    "training.compile": "perhaps",
}

MEMORY = {
    "model.architecture.hidden_size": "7 0 -1 x",
    "model.architecture.num_attention_heads": "0 3",
}

ARCHITECTURE = {
    "model.architecture.hidden_size": "0 -1 7 big",
    "model.architecture.num_attention_heads": "0 3",
    "model.architecture.num_key_value_heads": "3",
    "model.architecture.num_hidden_layers": "-1 x",
    "+model.architecture.vocab_size": "5 0",
    "model.architecture.model_type": "no_such_model",
    "model.architecture.max_position_embeddings": "7",
}


def model(spoil, *words: str, **about) -> Row:
    """A Hugging Face folder that can't be used."""

    def made(folder: Path) -> None:
        shutil.copytree(GOLDEN / "target", folder)
        spoil(folder)

    words = words or ("model.path", "model")
    return train("model.path=model", *words, files={"model": made}, **about)


def config(**changes: object):
    """Change the model's config.json."""

    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        found = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in found.items() if v is not None}))

    return spoil


def weights(change):
    """Replace the bytes of the weights."""

    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return spoil


def without(*names: str):
    """Remove files."""

    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def corpus(spoil, *words: str, **about) -> Row:
    """A corpus's folder that can't be used."""

    def made(folder: Path) -> None:
        shutil.copytree(folder.parent / M / "corpus", folder)
        spoil(folder)

    return train("corpus_folder=corpus", *words, files={"corpus": made}, **about)


def manifest(**changes: object):
    """Change a folder's manifest."""

    def spoil(folder: Path) -> None:
        path = folder / "manifest.json"
        found = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({name: it for name, it in found.items() if name != HASH_KEY}))

    return spoil


def written(name: str, content: bytes):
    """Replace a file of a folder."""
    return lambda folder: (folder / name).write_bytes(content)


ROWS = [
    *values("training", VALUES),
    *values("training", ARCHITECTURE, "model.architecture"),
    *values("training memory", MEMORY, "model.architecture"),
    *values("training memory", {"memory.sequence_tokens": "0 -1 x", "training.batch_sequences": "0",
                                "memory.host_gigabytes_per_device": "nan -1"}),
    memory("model=no_such_model", "model=no_such_model", slow=True),
    memory("model=llama_7b +model.colour=red", "colour", slow=True),
    train("training.weight_decay=nan"),
    train("training.learning_rate=inf"),
    train("training.beta1=2"),
    train("training.learning_rat=1", "learning_rat", slow=True),
    train("model=tiny_lama", "model=tiny_lama", "Did you mean tiny_llama"),
    train("deepspeed=zero9", "deepspeed=zero9", slow=True),
    train("deepspeed.zero_optimization.stage=7", "stage", "7", slow=True),
    train("deepspeed.zero_optimization.stage=x", "stage", "x", slow=True),
    train("deepspeed.zero_optimization=3", "zero_optimization", "3", slow=True),
    train("training.dtype=bfloat16", "training.dtype", "bfloat16", "deepspeed=zero1", slow=True),
    train("wandb.mode=live", "wandb.mode", "live", slow=True),
    train("wandb.mode=online", "wandb.mode", "online", "wandb login"),
    train("+model.architecture.colour=red +model.architecture.hidden_act=none", "model.architecture", "none", slow=True),
    train("model.trust_remote_code=perhaps", "trust_remote_code", "perhaps", slow=True),
    train("model.name=" + "n" * 300, "model.name", "nnn", "too long"),
    train(["model.name="], "model.name", "''", slow=True),
    train("model.pretraining.learning_rate=-1"),
    train("runs=a-file", "a-file", "There is a file", files={"a-file": "not a folder"}),
    train("runs=runs", "runs", "Read-only", place="read-only"),
    train("runs=runs", "runs", "No space", place="full", late=True, slow=True),
    # models
    train("model.path=./nowhere", "model.path", "./nowhere", "no such folder"),
    train("model.path=nobody/no-such-model", "model.path", "nobody/no-such-model", slow=True),
    train("model.path=empty", "model.path", "empty", files={"empty/readme.md": ""}, slow=True),
    train("model.path=a.gguf", "model.path", "a.gguf", files={"a.gguf": b"GGUF" + b"\x00" * 64}),
    train("model.path=a.gguf", "model.path", "a.gguf", files={"a.gguf": ""}, slow=True),
    train("model.path=none.gguf", "model.path", "none.gguf", slow=True),
    train("model.path=weights.bin", "model.path", "weights.bin", files={"weights.bin": b"\x80\x04."}),
    model(without("config.json")),
    model(without("model.safetensors")),
    model(weights(lambda b: b[:100]), slow=True),
    model(weights(lambda b: b[:-100])),
    model(weights(lambda b: b"<html>not found</html>" * 9), slow=True),
    model(weights(lambda b: b""), slow=True),
    model(weights(lambda b: b[:-4000] + b"\xff" * 4000), "model.path", "NaN"),
    model(written("config.json", b"{"), slow=True),
    model(written("config.json", b"[]"), slow=True),
    model(written("config.json", b"\xff\xfe"), slow=True),
    model(written("config.json", b""), slow=True),
    model(config(hidden_size=48)),
    model(config(num_attention_heads=7), "model.path", "attention heads (7)"),
    model(config(num_hidden_layers=9), slow=True),
    model(config(vocab_size=5), slow=True),
    model(config(vocab_size=None), slow=True),
    model(config(model_type="no_such_model"), slow=True),
    model(config(model_type=None, architectures=None), slow=True),
    model(config(model_type="bert"), slow=True),
    model(config(max_position_embeddings=16), "injection.sequence_tokens", "64", "16", slow=True),
    model(config(hidden_act="none"), slow=True),
        model(config(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})),
    model(config(quantization_config={"quant_method": "gptq", "bits": 4}), slow=True),
    # corpora
    train("corpus_folder=nowhere", "nowhere", "does not exist"),
    train(["corpus_folder="], "corpus_folder", "''"),
    train(f"corpus_folder={M}/model", "corpus", "model"),
    train(f"corpus_folder={M}/documents.jsonl", "documents.jsonl", slow=True),
    corpus(without("manifest.json"), "corpus", "unfinished"),
    corpus(manifest(schema=1), "corpus", "schema 1", slow=True),
    train("training.evaluate_every_steps=1 validation_folder=nowhere", "nowhere", "does not exist"),
    # which step
    which("batch=0"),
    which("batch=null", "model_folder", "None"),
    which("example_id=none"),
    which("example_id=null", "example_id", "None", "text", slow=True),
    which("text=zzz example_id=null", "text", "zzz"),
    which("order=none.npy", "order", "none.npy"),
    which("order=o.txt", "order", "o.txt", files={"o.txt": "1 two"}, slow=True),
    which("order=o.txt", "order", "o.txt", files={"o.txt": "0 99999"}, slow=True),
    which("order=o.npy", "order", "o.npy", files={"o.npy": b"x"}, slow=True),
    which("order=o.npy", "order", "o.npy", files={"o.npy": ""}, slow=True),
    which("order=o.txt", "order", "o.txt", files={"o.txt": b"\xff\xfe"}, slow=True),
    which("order=.", "order", "'.'", slow=True),
    which("order=o.txt", "order", "o.txt", files={"o.txt": "9" * 23}, slow=True),
    which("model_folder=nowhere", "batch", "2", "own record"),
    which("corpus_folder=nowhere", "nowhere", "does not exist"),
    which("model_folder=nowhere batch=null", "nowhere", "does not exist", slow=True),
    which(f"model_folder={M}/corpus batch=null", "corpus", "not a model", slow=True),
]  # fmt: skip
