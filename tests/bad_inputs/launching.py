"""Bad inputs of `python -m launch`: the whole way, sweeps, clusters, its tools."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bad_inputs.row import M, bad, values

launch = partial(bad, "launch")
power = partial(bad, "launch plan-power")


def _without(name: str, folder: str = "hf") -> Callable[[Path], None]:
    """Makes a copy of a folder of the material that lacks a file."""

    def make(place: Path) -> None:
        base = next(above for above in place.parents if (above / "material").is_dir())
        shutil.copytree(base / "material" / folder, place)
        if name:
            (place / name).unlink()

    return make


PRETRAINING = {
    "model.pretraining.budget_tokens": "1000000000000 0",
    "model.pretraining.sequence_tokens": "128 0 7",
    "model.pretraining.vocab_size": "10 0 -1",
    "model.pretraining.tokenizer_characters": "0 -1",
    "model.pretraining.learning_rate": "inf nan 0",
    "model.pretraining.weight_decay": "nan",
    "model.pretraining.beta1": "2",
    "model.pretraining.warmup_steps": "1000000",
    "model.pretraining.batch_sequences": "0",
    "model.pretraining.dtype": "bfloat16",
    "model.pretraining.seed": "x",
}  # fmt: skip
CLUSTER = {
    "cluster.kind": "cloud",
    "cluster.processes": "0 -1 x",
    "cluster.nodes": "0 2",
    "cluster.retries": "-1",
    "cluster.grace_seconds": "-1",
    "cluster.requeues": "-1",
    "cluster.hostfile": "hosts",
    "cluster.rendezvous": "none",
    "cluster.port": "-1 0 70000 x",
}
POWER = {
    "plan.shift": "0 10 nan",
    "plan.members": "1 -1",
    "plan.power": "0 1",
    "plan.level": "0 nan",
    "plan.find": "fewest",
    "plan.copies": "0",
    "plan.learning_rate": "0 nan",
}

ROWS = [
    *values("launch plan-power", POWER),
    power("seed=0", "fit", "plan.shift", "give one of them"),
    power("plan.shift=1 fit=nowhere", "fit", "nowhere", "give one of them", slow=True),
    power("plan.find=copies plan.shift=1", "plan.find", "copies", "fit=runs/law/DIR"),
    power("fit=nowhere", "law folder nowhere", "does not exist"),
    power("report=nowhere", "report folder nowhere", "does not exist", slow=True),
    *values("launch", PRETRAINING),
    *values("launch", CLUSTER),
    launch("experiment=quikstart", "experiment=quikstart", "Did you mean quickstart?"),
    launch("name=" + "n" * 300, "name", "nnn", "too long"),
    launch("cluster.processes=3", "training.batch_sequences", "processes = 16 × 3", slow=True),
    launch("launch.stage=chart", slow=True),
    launch("runs=", "runs", "give a folder"),
    launch("launch.dry_run=perhaps", "dry_run", "perhaps", slow=True),
    launch("cluster=cloud", "cluster=cloud", slow=True),
    launch("cluster=torchrun cluster.node_rank=2", "cluster.node_rank is 2", "give 0 to 1", slow=True),
    launch("cluster=deepspeed cluster.hostfile=nowhere cluster.address=a", "cluster.hostfile", "nowhere", slow=True),
    launch("cluster=deepspeed cluster.address=a", "cluster.hostfile", slow=True),
    launch("cluster=deepspeed cluster.hostfile=h cluster.address=a", "cluster.hostfile", files={"h": "no slots here\n"}, slow=True),
    launch("cluster=slurm cluster.jobs.all.time=soon", "cluster.jobs.all.time", "soon", slow=True),
    launch("cluster=slurm cluster.jobs.all.time=null", "cluster.jobs.all.time", slow=True),
    launch("cluster=slurm +cluster.jobs.cook.time=5", "cluster.jobs.cook", slow=True),
    launch("benchmark=[imdb] injection.members=150", "imdb", "200", "150"),
    launch("benchmark=[]", "benchmark", "[]", slow=True),
    launch("injection.budget_tokens=1000000000000"),
    launch("injection.window=[0.5,1]", "training.order", slow=True),
    launch("injection.sequence_tokens=512", "injection.sequence_tokens", "512"),
    launch("tokenizer.path=" + f"{M}/hf", "tokenizer.path", "hf", slow=True),
    launch("model=llama_7b model.path=./nowhere", "model.path", "./nowhere", "no such folder"),
    launch(f"model.path={M}/corpus", "corpus", "not a model", slow=True),
    launch(f"model.path={M}/texts.jsonl", "model.path", "texts.jsonl", slow=True),
    launch("model.architecture.num_attention_heads=7", "model.architecture", "attention heads (7)"),
    launch("+model.architecture.hidden_act=none", "model.architecture", "none", slow=True),
    launch("model.architecture.max_position_embeddings=64", "max_position_embeddings", "64", slow=True),
    launch("+model.architecture.vocab_size=10", "model.architecture.vocab_size", "10", slow=True),
    launch("training.export_steps=[1000000]", "training.export_steps", "1000000", slow=True),
    launch("training.batch_sequences=3", "training.batch_sequences is 3", slow=True),
    launch("training.warmup_steps=1000000", "training.warmup_steps", slow=True),
    launch("method=[recall] injection.held_out=0", "prefix.path", slow=True),
    launch("method=[reference] reference.path=./nowhere", "reference.path", "./nowhere", slow=True),
    launch("method=[neighbor] masked_lm.path=./nowhere", "masked_lm.path", "./nowhere"),
    launch("prefix.path=nowhere.txt method=[recall]", "prefix.path", "nowhere.txt", slow=True),
    launch("wandb.mode=online", "wandb.mode", "online", "wandb login"),
    launch("wandb.project=a/b", "wandb.project", "a/b", slow=True),
    launch("analysis.draws=nan", "analysis.draws", "nan"),
    launch("detection.processes=0", slow=True),
    launch("runs=a-file", "a-file", "There is a file", files={"a-file": "not a folder"}),
    launch("runs=a-file/below", "a-file", "There is a file", files={"a-file": "not a folder"}),
    launch("runs=" + "r" * 300, "rrr", "too long"),
    launch("runs=runs", "runs", "Read-only", place="read-only"),
    launch("runs=runs", "No space", place="full", late=True),
    launch("-m runs=a-file seed=0,1", "a-file", "There is a file", files={"a-file": "not a folder"}),
    launch("-m seed=0,1 runs=runs", "runs", "Read-only", place="read-only"),
    launch("runs=/proc", "/proc", "no folder can be created"),
    launch("-m runs=/proc seed=0,1", "/proc", "no folder can be created", slow=True),
    launch("-m seed=range(0,0)", "seed is range(0,0)", "nothing to run"),
    launch("-m experiment=glob(zz*)", "experiment is glob(zz*)", "nothing to run", slow=True),
    # its tools
    launch("status runs=nowhere", "nowhere", "no launch is there", slow=True),
    launch("status a-file", "a-file", "no launch", files={"a-file": ""}),
    launch("report nowhere", "nowhere", "not a launch", slow=True),
    launch("adopt", "kind", "give one of model, corpus", slow=True),
    launch(f"adopt kind=scores path={M}/scores", "kind", "scores", "give one of model, corpus"),
    launch("adopt kind=model path=nowhere", "path", "nowhere", "no such folder"),
    launch("adopt kind=model", "path", "no such folder", slow=True),
    launch("adopt kind=model path=empty", "path", "empty", "config.json", files={"empty/notes": ""}),
    launch(f"adopt kind=corpus path={M}/hf", "path", "hf", "no manifest.json"),
    launch(f"adopt kind=model path={M}/corpus", "corpus", "not a model"),
    launch("adopt kind=model path=hf", "path", "can't be loaded", files={"hf": _without("model.safetensors")}),
    launch("adopt kind=model path=hf", "path", "can't be loaded", files={"hf": _without("tokenizer.json")}, slow=True),
    launch("adopt kind=corpus path=corpus", "damaged", "ledger.parquet", files={"corpus": _without("ledger.parquet", "corpus")}),
    launch(f"adopt kind=model path={M}/model/hf", "path", "part of the artefact"),
    launch("adopt kind=corpus path=runs/corpus/mine", "already", files={"runs/corpus/mine": _without("", "corpus")}, slow=True),
    launch(f"adopt kind=model path={M}/hf folder=runs", "folder", "Known: kind, path, runs", slow=True),
    launch(f"adopt kind=model path={M}/hf runs=", "runs", "give a folder", slow=True),
    launch(f"adopt kind=model path={M}/hf runs=a-file", "a-file", "is not a folder", files={"a-file": ""}),
    launch(f"adopt kind=model path={M}/hf runs=runs", "runs", "can't be written", place="read-only"),
    launch(f"adopt kind=model path={M}/hf runs=runs", "No space", place="full", late=True),
]  # fmt: skip
