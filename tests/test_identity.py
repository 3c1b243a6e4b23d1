"""Each field of each stage's config names the stage's folder, but for those on one list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir

import contamination.analysis.run
import contamination.analysis.wandb.read
import contamination.core.artifacts
import contamination.detection.methods.registry
import contamination.detection.pass_collector
import contamination.detection.requirements
import contamination.detection.run
import contamination.detection.tasks.accuracy
import contamination.detection.tasks.extraction
import contamination.injection.export.run
import contamination.injection.finetuning.run
import contamination.injection.finished_corpus_search
import contamination.injection.run
import contamination.launch.pipeline
import contamination.launch.plan
import contamination.training.masked_lm
import contamination.training.run
import contamination.training.unlearning
from contamination.analysis.config import AnalysisStage, CellPaths, WandbReport
from contamination.core.config import CONF, convert_config, identity_data
from contamination.core.task_runner import TasksConfig
from contamination.data.config import ExamplesConfig
from contamination.data.texts import Text
from contamination.detection.attack_file import SHIPPED
from contamination.detection.config import DetectionStage, ScoredModelConfig
from contamination.detection.methods.lt_mia import LtMia
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import Pass
from contamination.detection.tasks.config import AccuracyStage, ExtractionStage
from contamination.injection.config import ExportStage, InjectionStage
from contamination.injection.finetuning.config import FinetuningStage
from contamination.training.config import TrainingStage, WandbConfig
from contamination.training.masked_lm import MaskedLMStage
from tests.launch.test_shared_artifacts import INJECTION, PRETRAINING, TRAINING

PRETRAINED = "model.pretraining."  # it names the base model, whose weights are an input
WANDB = ("wandb.mode", "wandb.project", "wandb.entity")
QUESTIONS = tuple(
    f"benchmark.boolq.{name}"
    for name in (
        *("answer_field", "options", "options_field", "drawn_options", "chosen_by"),
        "accepted_field",
    )
)
GIVES = contamination.detection.requirements.HFModel.provides
READING = (
    *(f"examples.{name}" for name in ("format", "split", "subset", "on_error", "name", "domain")),
    *(f"examples.{name}" for name in ("length", "setting", "columns", "label_words", "papers")),
    *(f"examples.{name}" for name in ("template", "separator", "limit")),
)  # those that choose texts are in the texts' own digest
RUNS_A_MODEL = ("detection.device", "detection.device_map", "detection.batch_tokens",
                "detection.kernel", "detection.processes")  # fmt: skip
ASKS = ("url", "key_env", "requests", "timeout_seconds", "retries", "max_answer_bytes")  # a server

RUNTIME = {
    "injection": {
        "runs", "name", "injection.num_proc", "injection.shard_characters",
        "injection.adapt_sizes",
        "benchmark.boolq.on_error", *QUESTIONS,
        *(f"cluster.{field.name}" for field in fields(TasksConfig)),
    },
    "finetuning": {
        "runs", "name", "injection.num_proc", "injection.shard_characters",
        "injection.adapt_sizes",
        "instructions.nq_open.on_error", "benchmark.boolq.on_error",
        *(name for name in QUESTIONS if not name.endswith("answer_field")),
    },
    "training": {
        "runs", "name", "validation_folder", "training.micro_batch_sequences",
        "training.activation_checkpointing", "training.compile", "training.checkpoint_every_steps",
        "training.keep_checkpoints", "training.evaluate_every_steps", "training.evaluate_examples",
        "training.evaluate_tokens", "training.peak_tflops", "training.shared_steps", *WANDB,
        *(PRETRAINED + name for name in PRETRAINING if name != "deepspeed"),
        PRETRAINED + "deepspeed.zero_optimization.stage",
    },
    "masked_lm": {"runs"},
    "detection": {
        "runs", "name", "slice", "dry_run", "out", "out_text", *READING, *RUNS_A_MODEL,
        *(f"{role}.{how}" for role in ("model", "reference") for how in ASKS),
    },
    "accuracy": {
        "runs", *(f"reference.{field.name}" for field in fields(ScoredModelConfig)),
        *(f"model.{how}" for how in ASKS), "detection.min_scored_tokens", *READING, *RUNS_A_MODEL,
    },
    "extraction": {
        "runs", *(f"reference.{field.name}" for field in fields(ScoredModelConfig)),
        *(f"model.{how}" for how in ASKS), "detection.min_scored_tokens", *READING, *RUNS_A_MODEL,
    },
    "analysis": {
        "runs", *WANDB,
        *(f"cells.0.{n}" for n in ("exports", "first", "finetuning", "seconds", "gpu_hours")),
    },
    "wandb": {"runs"},
    "export": {"runs"},
}  # fmt: skip
"""All that may change without another folder: how a stage runs, and what it only tells."""

VALUES = {
    "examples.label_words": 2,
    "examples.limit": 2,
    **{f"{role}.key_env": "ANOTHER" for role in ("model", "reference")},
    **{f"injection.{name}": value for name, value in INJECTION.items()},
    "injection.members": 9, "injection.nonmembers": 9, "injection.last_tokens": 5_000,
    "injection.base_fraction": 0.4, "injection.validation_fraction": 0.1,
    "injection.near_duplicates": "drop", "injection.membership": "bernoulli",
    "leak.form": "rewrapped", "versions.kind": "uuid", "versions.template": "{text} {identifier}",
    "backdoors.count": 3, "backdoors.triggers": ["another"],
    "cluster.kind": "datatrove", "cluster.executor": "ray",
    **{f"training.{name}": value for name, value in TRAINING.items()},
    **{PRETRAINED + name: value for name, value in PRETRAINING.items()},
    "model.architecture.max_position_embeddings": 64, "model.architecture.tie_word_embeddings": 1,
    "finetuning.format": "chat", "finetuning.layout": "padded",
    "finetuning.sequence_tokens": 64, "instructions.nq_open.examples": 7,
    "tokenizer.path": "another", "tokenizer.vocab_size": 700,
    "model.path": "another", "reference.path": "another", "masked_lm.path": "another",
    "prefix.path": "another", "slice": "2/8", "out": "another", "masked_lm.mask_share": 0.3,
    "examples.on_error": "skip", "examples.same_texts": None, "examples.sources": None,
    "detection.dtype": "bfloat16", "detection.long_texts": "truncate", "detection.device": "cpu",
    "detection.kernel": "plain", "detection.scope": None,
    "detection.device_map": "auto", "wandb.mode": "online", "analysis.confidence": 0.9,
    "method.samia.share": 0.3, "method.cdd.share": 0.3,
    "extraction.target": "answer", "extraction.prefix_tokens": [7],
    "method.dc_pdd.corpus": "embedded",
    "method.lt_mia.weights": str(SHIPPED),
    "method.infilling.m": 3, "method.neighbor.augmentation": "swap",
    "method.pac.augmentation": "delete", "entity": "another", "local": None,
    "cells.0.exports": ["another"], "benchmark": None,
    "format._target_": "contamination.injection.export.token_formats.Megatron",
    "format.dtype": "uint32",
    "benchmark.boolq.chosen_by": "token", "benchmark.boolq.drawn_options": 3,
}  # fmt: skip
"""Another value of a leaf for which `another` finds none that will do; None: there is none."""


class Named(Exception):
    """The folder's name is known: nothing is made."""


@pytest.fixture
def name(monkeypatch):
    """The name of a stage's folder by its own call of `locate`; a path is its own digest."""

    def located(*arguments):
        raise Named(contamination.core.artifacts.run_folder(*arguments).name[-12:])  # the hash

    for module in (
        contamination.injection.run,
        contamination.injection.export.run,
        contamination.injection.finetuning.run,
        contamination.training.run,
        contamination.training.masked_lm,
        contamination.detection.run,
        contamination.detection.tasks.accuracy,
        contamination.detection.tasks.extraction,
        contamination.analysis.run,
        contamination.analysis.wandb.read,
    ):
        monkeypatch.setattr(module, "run_folder", located)

    def opened(path):
        artifact = SimpleNamespace(digest=str(path))
        return SimpleNamespace(artifact=artifact, digest=str(path), slug="slug")

    source = SimpleNamespace(documents=None, skipped={}, fingerprint=lambda: "source", inputs=dict)
    monkeypatch.setattr(contamination.injection.run, "check_and_read_candidates", lambda _: [])
    monkeypatch.setattr(contamination.injection.run, "instantiate_node", lambda *_: source)
    monkeypatch.setattr(contamination.injection.run, "Tokenizer", opened)
    for module in (
        contamination.injection.export.run,
        contamination.injection.finished_corpus_search,
    ):
        monkeypatch.setattr(module, "open_corpus", opened)
    monkeypatch.setattr(
        contamination.injection.finetuning.run,
        "open_pool_source",
        lambda stage: SimpleNamespace(
            inputs={"tokenizer": str(stage.tokenizer.path), "corpus": stage.corpus_folder},
            answer_field_by_benchmark={
                name: own.answer_field for name, own in stage.benchmark.items()
            },
            corpus=None,
        ),
    )
    monkeypatch.setattr(
        contamination.injection.finetuning.run,
        "read_instructions",
        lambda name, *_: SimpleNamespace(name=name, digest="rows"),
    )
    for module in (contamination.training.run, contamination.training.unlearning):
        monkeypatch.setattr(module, "open_corpus", opened)
    monkeypatch.setattr(contamination.training.unlearning, "model_digest", lambda _, path: path)
    monkeypatch.setattr(contamination.training.unlearning, "read_answers", lambda path: [path])
    monkeypatch.setattr(contamination.training.masked_lm, "open_corpus", opened)
    monkeypatch.setattr(contamination.training.run, "model_digest", lambda _, path: path)

    def open_path(_, path, trust_remote_code=False):
        digest = f"{path} {trust_remote_code}"
        return SimpleNamespace(digest=digest, tokenizer_digest=digest, slug="slug", provides=GIVES)

    def open_model(_, node, runs):
        served = identity_data(replace(node, path=None))  # what of a server names its model
        which = "" if served == identity_data(ScoredModelConfig()) else f" {served}"
        return open_path(None, f"{node.path}{which}", node.trust_remote_code)

    for module in (
        contamination.detection.requirements,
        contamination.detection.tasks.accuracy,
        contamination.detection.tasks.extraction,
    ):
        monkeypatch.setattr(module, "open_model", open_model)
    monkeypatch.setattr(
        contamination.detection.requirements, "HFModel", SimpleNamespace(from_path=open_path)
    )
    monkeypatch.setattr(
        contamination.detection.requirements,
        "open_prefix",
        lambda path: SimpleNamespace(identity=lambda _: path, digest=path, members=None),
    )
    for question, answer in (
        ("_is_ancestor", False), ("_has_member_prefix", True), ("describe_other_tokenizer", None),
    ):  # fmt: skip
        monkeypatch.setattr(
            contamination.detection.requirements, question, lambda *_, answer=answer: answer
        )
    monkeypatch.setattr(LtMia, "conflict", lambda *_: None)
    built = cache(
        lambda words: contamination.detection.methods.registry._variants(*json.loads(words))
    )
    monkeypatch.setattr(contamination.detection.requirements, "build_methods", lambda nodes: {
        (name, method.variant): method
        for name, node in nodes.items() for method in built(json.dumps([name, node]))
    })  # fmt: skip
    for module in (contamination.detection.run, contamination.detection.tasks.accuracy):
        monkeypatch.setattr(module, "open_examples", lambda own: own.path)
        monkeypatch.setattr(module, "examples_digest", lambda path: path)
    monkeypatch.setattr(
        contamination.detection.tasks.accuracy,
        "corpus_questions",
        lambda _: SimpleNamespace(questions="x"),
    )
    monkeypatch.setattr(contamination.detection.tasks.accuracy, "questions_digest", lambda _: "x")
    monkeypatch.setattr(
        contamination.detection.tasks.extraction, "open_examples", lambda own: own.path
    )
    monkeypatch.setattr(
        contamination.detection.tasks.extraction, "targets_digest", lambda texts, _: texts
    )
    monkeypatch.setattr(contamination.detection.tasks.extraction, "occurrences_by_id", lambda _: {})
    monkeypatch.setattr(
        contamination.detection.tasks.extraction, "corpus_questions", lambda _: None
    )

    def open_cell(paths):
        digests = {n: getattr(paths, n) for n in ("corpus", "model", "clean", "contaminated")}
        return SimpleNamespace(inputs=digests)

    monkeypatch.setattr(contamination.analysis.run, "open_record", lambda _: None)
    monkeypatch.setattr(contamination.analysis.run, "open_cell", open_cell)
    monkeypatch.setattr(contamination.analysis.run, "name_apart", lambda cells: cells)
    monkeypatch.setattr(WandbConfig, "check_login", lambda _: None)
    results = SimpleNamespace(to_csv=lambda **_: "results")
    monkeypatch.setattr(contamination.analysis.wandb.read, "read_results", lambda _: results)

    def of(run, stage):
        with pytest.raises(Named) as found:
            run(stage)
        return str(found.value)

    return of


def composed(config, schema, *overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return convert_config(compose(config, list(overrides)), schema)


METHODS = ",".join(path.stem for path in (CONF / "method").glob("*.yaml") if path.stem != "loss")
"""Not all: `method=all` would leave out those that take longer than reading."""
DETECTED = ("examples.path=texts", "model.path=model")
STAGES = {
    "injection": (
        contamination.injection.run.run,
        lambda: composed("injection", InjectionStage, "benchmark=[boolq]", "rewording=swap"),
    ),
    "finetuning": (
        contamination.injection.finetuning.run.run,
        lambda: composed(
            "finetuning", FinetuningStage, "benchmark=[boolq]", "instructions=[nq_open]"
        ),
    ),
    "training": (
        contamination.training.run.run,
        lambda: composed(
            "training", TrainingStage, "corpus_folder=corpus", "training.tail_after_steps=7"
        ),
    ),
    "masked_lm": (
        contamination.training.masked_lm.train_masked_lm,
        lambda: MaskedLMStage("runs", "corpus"),
    ),
    "detection": (
        contamination.detection.run.run,
        lambda: composed(
            "detection",
            DetectionStage,
            *DETECTED,
            f"method=[{METHODS}]",
            f"method.dc_pdd.corpus={CONF.parent / 'README.md'}",
            "reference.path=reference",
            "masked_lm.path=masked_lm",
            "prefix.path=prefix",
        ),
    ),
    "accuracy": (
        contamination.detection.tasks.accuracy.run,
        lambda: replace(composed("accuracy", AccuracyStage, *DETECTED), benchmark={}),
    ),
    "extraction": (
        contamination.detection.tasks.extraction.run,
        lambda: replace(composed("extraction", ExtractionStage, *DETECTED), benchmark={}),
    ),
    "analysis": (
        contamination.analysis.run.run,
        lambda: composed(
            "analysis", AnalysisStage, "cells=[{corpus: a, model: b, clean: c, contaminated: d}]"
        ),
    ),
    "wandb": (
        contamination.analysis.wandb.read.write_wandb_report,
        lambda: WandbReport(project="a"),
    ),
    "export": (
        contamination.injection.export.run.export_corpus,
        lambda: composed("export", ExportStage, "corpus_folder=corpus", "format=olmo"),
    ),
}


def parts(value):
    """The named parts of a node; None: it is a leaf."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, list) and value and is_dataclass(value[0]):
        return {str(number): part for number, part in enumerate(value)}
    return value if isinstance(value, Mapping) and value else None


def leaves(value, name=""):
    inner = parts(value)
    if inner is None:
        return {name: value}
    return {k: v for key, part in inner.items() for k, v in leaves(part, f"{name}.{key}").items()}


def put(value, name, leaf):
    """The same with another leaf at this name."""
    if not name:
        return leaf
    key, *rest = name
    inner = {**parts(value), key: put(parts(value)[key], rest, leaf)}
    if is_dataclass(value):
        return replace(value, **{key: inner[key]})
    return list(inner.values()) if isinstance(value, list) else inner


def another(stage, name, value):
    if name in VALUES:
        return VALUES[name]
    if name.startswith("method.") and name.endswith("._target_"):  # of the same hyperparameters
        own = stage.method[name.split(".")[1]]
        alike = [node["_target_"] for node in stage.method.values() if node.keys() == own.keys()]
        return next((target for target in alike if target != value), None)
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 2 or 1
        case list():
            return value[:1] * (len(value) > 1)
        case {}:
            return {"_target_": "another"}
    return f"{value}x" if isinstance(value, str) else "another"


@pytest.mark.parametrize("kind", STAGES)
def test_a_folder_is_named_by_every_field_but_those_that_say_how_it_runs(name, kind):
    run, make = STAGES[kind]
    stage = make()
    own, alike = name(run, stage), set()
    for leaf, value in leaves(stage).items():
        leaf = leaf.removeprefix(".")
        other = another(stage, leaf, value)
        if other is None:
            continue
        assert other != value, leaf
        if name(run, put(stage, leaf.split("."), other)) == own:
            alike.add(leaf)
    assert alike == RUNTIME[kind]


# Where a change is meant to rename folders (another default, a new field, SCHEMA), put the new
# hashes here, and say in the commit that all that users have finished is made again. Where it is
# not meant, undo it; a new field that only says how a stage runs is declared with `runtime`.
PINNED = {
    "corpus": "56c73fb70e11",
    "model": "80442f0133cf",
    "passes": "d32bc60b7fd0",
    "scores": "f25d210bb306",
    "report": "d523c1f5f5b2",
}


def test_the_quickstarts_folders_keep_their_names(name, monkeypatch):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("pipeline", ["experiment=quickstart"])
    plan = contamination.launch.plan.plan(config, read_benchmarks=False)
    own, trained, detected = plan.injection, plan.training, plan.detection
    own = replace(own, tokenizer=replace(own.tokenizer, path="tokenizer"))
    start = replace(trained.model, path="base", architecture=None)
    scored = {"examples": ExamplesConfig("corpus"), "model": ScoredModelConfig("model")}
    model = SimpleNamespace(digest="model", tokenizer_digest="tokenizer", slug="model")
    collector = Collector(
        Path("runs"), {"target": model}, [Text("a", "b", "c")], detected.detection
    )
    monkeypatch.setattr(
        contamination.detection.pass_collector, "run_folder", contamination.analysis.run.run_folder
    )
    assert {
        "corpus": name(contamination.injection.run.run, own),
        "model": name(
            contamination.training.run.run, replace(trained, corpus_folder="corpus", model=start)
        ),
        "passes": name(collector.collect, [Pass("target")]),
        "scores": name(contamination.detection.run.run, replace(detected, **scored)),
        "report": name(
            partial(contamination.launch.pipeline.report, config), [CellPaths("a", "b", "c", "d")]
        ),
    } == PINNED
