"""What names the base model: its own recipe, and nothing of what the cells vary."""

import shutil
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hydra import compose, initialize_config_dir

import contamination.injection.run
import contamination.training.run
from contamination.core.artifacts import WrittenFiles, write_manifest
from contamination.core.config import CONF
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.integrity import read_manifest
from contamination.injection.config import InjectionConfig
from contamination.launch import shared_artifacts
from contamination.launch.config import ClusterConfig
from contamination.launch.pipeline import _make_corpora
from contamination.launch.plan import plan
from contamination.launch.stage_runner import Stages
from contamination.training.config import PretrainingConfig, TrainingConfig

TRAINING = {
    "learning_rate": 1e-3, "schedule": "linear", "warmup_steps": 3, "batch_sequences": 8,
    "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.99, "clip_norm": 0.5, "dtype": "bfloat16",
    "order": "corpus", "order_seed": 7, "init_seed": 7, "micro_batch_sequences": 4,
    "activation_checkpointing": True, "compile": True, "checkpoint_every_steps": 7,
    "keep_checkpoints": 3, "export_steps": [3], "export_tokens": [9000], "evaluate_every_steps": 5,
    "evaluate_examples": 8, "evaluate_tokens": 512, "peak_tflops": 1.0,
    "epochs": 2, "loss_on": "output", "objective": "npo", "retain_folder": "kept",
    "retain_weight": 2.0, "npo_beta": 0.5, "relabel_strength": 2.0, "reinforced_path": "another",
    "forget_weight": 0.5, "retain_loss": "kl", "simnpo_beta": 2.0, "simnpo_delta": 1.0,
    "rmu_layer": 1, "rmu_coefficient": 3.0, "idk_beta": 0.5, "idk_answers": "another",
    "decay_steps": 4, "tail_after_steps": 5, "tail_learning_rate": 1e-4, "tail_weight_decay": 0.2,
    "shared_steps": 6,
}  # fmt: skip
INJECTION = {
    "membership": "bernoulli",
    "members": 20, "nonmembers": 20, "adapt_sizes": True, "held_out": 3, "budget_tokens": 300_000,
    "sequence_tokens": 128, "example_max_tokens": 60, "benchmark_source": "hub", "part": "all",
    "separator": " ", "boundary": "token", "window": [0.5, 1.0], "last_tokens": 50_000,
    "token_window": [0, 20_000],
    "copy_distance_tokens": 5, "split_copies": True, "swap_members": True,
    "decontamination": "drop", "near_duplicates": "drop", "num_proc": 2, "shard_characters": 9,
    "pool_seed": 4, "membership_seed": 4, "occurrence_seed": 4, "position_seed": 4,
}  # fmt: skip
PRETRAINING = {
    **{name: TRAINING[name] for name in (
        "learning_rate", "schedule", "warmup_steps", "batch_sequences", "weight_decay", "beta1",
        "beta2", "clip_norm", "dtype", "order", "order_seed", "init_seed", "decay_steps",
    )},
    "budget_tokens": 300_000, "sequence_tokens": 128, "vocab_size": 512,
    "tokenizer_characters": 9_000, "deepspeed": {"zero_optimization": {"stage": 1}}, "seed": 4,
}  # fmt: skip
HERE = Stages(ClusterConfig())
DIVIDES = ("base_fraction", "validation_fraction")  # the corpus's documents, into disjoint parts


@pytest.fixture
def base(monkeypatch):
    """The base model's folder by a plan: nothing is tokenised, nothing trained."""

    def at(folder, *_):
        counts = {"near_duplicates": {"members": 0}}
        return SimpleNamespace(path=folder, digest=folder.name, counts=counts)

    monkeypatch.setattr(contamination.injection.run, "build_or_open", at)

    def opened(folder):
        return SimpleNamespace(artifact=at(Path(folder)), slug="corpus")

    monkeypatch.setattr(contamination.training.run, "open_corpus", opened)
    monkeypatch.setattr(contamination.training.run, "_check_stage", lambda *_: None)
    monkeypatch.setattr(
        contamination.training.run,
        "_train_with_all_processes",
        lambda stage, corpus, folder, *_: at(folder),
    )

    def name(cell, make=shared_artifacts.train_base_model):
        own = cell.training.model.pretraining
        corpus = shared_artifacts.make_base_corpus(cell.injection, cell.base_corpus, own, HERE)
        return make(cell.training, own, corpus, HERE).path.name

    return name


@pytest.fixture
def reference(base):
    """The fair reference's folder by a plan."""
    return partial(base, make=shared_artifacts.train_reference_model)


def planned(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plan(
            compose("pipeline", ["experiment=quickstart", *overrides]), read_benchmarks=False
        )


@pytest.fixture(scope="module")
def quickstart():
    return planned()


def changed(cell, stage, node, **values):
    """The plan with some fields of a stage's node changed."""
    own = getattr(cell, stage)
    return replace(cell, **{stage: replace(own, **{node: replace(getattr(own, node), **values)})})


def tail(name):
    """What a field of the tail needs."""
    return {"tail_after_steps": 5} if name in ("tail_learning_rate", "tail_weight_decay") else {}


def test_no_field_of_the_contaminated_training_names_it(base, quickstart):
    assert {field.name for field in fields(TrainingConfig)} == set(TRAINING)
    for name, value in TRAINING.items():
        cell = changed(quickstart, "training", "training", **tail(name), **{name: value})
        assert base(cell) == base(quickstart), name


def test_no_field_of_the_injection_names_it_but_the_shares(base, quickstart):
    assert {field.name for field in fields(InjectionConfig)} == {*INJECTION, *DIVIDES}
    for name, value in INJECTION.items():
        swap = {"members": 9, "nonmembers": 9} if name in ("members", "nonmembers") else {}
        cell = changed(quickstart, "injection", "injection", **{**swap, name: value})
        assert base(cell) == base(quickstart), name
    for name in DIVIDES:
        assert base(changed(quickstart, "injection", "injection", **{name: 0.25})) != base(
            quickstart
        ), name


def test_every_field_of_its_recipe_names_it(base, quickstart):
    assert {field.name for field in fields(PretrainingConfig)} == set(PRETRAINING)
    own = quickstart.training.model.pretraining
    found = {base(quickstart)}
    for name, value in PRETRAINING.items():
        recipe = replace(own, **{name: value})
        found.add(base(changed(quickstart, "training", "model", pretraining=recipe)))
    assert len(found) == 1 + len(PRETRAINING)


def test_each_shared_text_is_a_part_of_its_own_with_nothing_inserted(quickstart, monkeypatch):
    monkeypatch.setattr(contamination.injection.run, "run", lambda stage, _=None: stage.injection)
    pretraining, injection = quickstart.training.model.pretraining, quickstart.injection
    made = [
        shared_artifacts.make_base_corpus(injection, quickstart.base_corpus, pretraining, HERE),
        shared_artifacts.make_validation_corpus(injection, 512, HERE),
    ]
    assert [each.part for each in made] == ["base", "validation"]
    assert {(each.members, each.nonmembers) for each in made} == {(0, 0)}


def test_a_command_that_sweeps_everything_else_leaves_it(base, quickstart):
    words = [
        "training.order=corpus", "training.schedule=cosine", "training.warmup_steps=1",
        "training.batch_sequences=4", "training.micro_batch_sequences=4",
        "training.weight_decay=0.1", "training.clip_norm=0.1", "training.dtype=bfloat16",
        "training.learning_rate=1e-3", "deepspeed=zero2", "injection.budget_tokens=90_000",
        "injection.example_max_tokens=50", "tokenizer.vocab_size=700", "occurrences=fixed",
        "tokenizer.train_characters=10_000", "corpus=news", "benchmark=[news]", "seed=5",
        "rewording=swap", "injection.window=[0.5,1.0]", "name=other",
    ]  # fmt: skip
    assert base(planned(*words)) == base(quickstart)
    assert base(planned("deepspeed@model.pretraining.deepspeed=zero2")) != base(quickstart)
    assert base(planned("corpus@base_corpus=news")) != base(quickstart)


def test_the_reference_is_another_models_only_by_its_seeds(base, reference, quickstart):
    own = reference(quickstart)
    assert own != base(quickstart)
    for name, value in TRAINING.items():
        cell = changed(quickstart, "training", "training", **tail(name), **{name: value})
        assert reference(cell) == own, name
    assert reference(planned("seed=5", "injection.swap_members=true", "benchmark=[boolq]")) == own
    recipe = quickstart.training.model.pretraining
    for change in ({"seed": 5}, {"learning_rate": 1e-3}, {"budget_tokens": 300_000}):
        cell = changed(quickstart, "training", "model", pretraining=replace(recipe, **change))
        assert reference(cell) != own, change


def test_the_base_corpus_is_compared_with_the_pool_of_every_cell(quickstart, monkeypatch):
    """By the contaminated corpora alone: what cells share stays the same for all of them."""
    made = {}

    def inject(_, name, stage, checked=None):
        made[name] = stage
        return SimpleNamespace(path=Path(name))

    monkeypatch.setattr(Stages, "inject", inject)
    monkeypatch.setattr("contamination.launch.pipeline.check_methods", lambda *_: None)
    cell = changed(quickstart, "training", "training", evaluate_every_steps=10)
    corpora = _make_corpora(cell, HERE)
    assert made["study"].compared == {"base": "base"}
    assert made["base"].compared == made["validation"].compared == {}
    assert corpora.base == SimpleNamespace(path=Path("base"))


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Two models, the second trained from the first, each with its corpus."""

    def finished(kind, name, config, inputs):
        folder = tmp_path / kind / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "content").write_text(name)
        write_manifest(folder, inputs, WrittenFiles(["content"]))
        return folder

    start = None
    for name in ("first", "second"):
        corpus = finished("corpus", name, {}, {})
        config = {"corpus_folder": str(corpus), "model": {"path": start}}
        inputs = {"corpus": read_manifest(corpus)["digest"]}
        start = str(finished("model", name, config, inputs))
    return Path(start)


def test_the_corpora_of_a_given_model_are_found_through_its_folders(trained, caplog):
    corpora = trained.parent.parent / "corpus"
    both = {"base": str(corpora / "second"), "base-2": str(corpora / "first")}
    for path in (trained, trained / "hf", trained / "exports" / "step-00000003"):
        assert shared_artifacts.find_training_corpora(str(path)) == both
    assert shared_artifacts.find_training_corpora("someone/model") == {}
    assert not caplog.messages
    shutil.rmtree(corpora / "second")
    assert shared_artifacts.find_training_corpora(str(trained)) == {"base": str(corpora / "first")}
    assert caplog.messages == [
        f"model.path: {trained} was trained on {corpora / 'second'}, which has been removed or "
        "changed: it can't be compared with the benchmarks."
    ]
    manifest = read_manifest(corpora / "first")
    (corpora / "first" / "content").write_text("other")
    write_manifest(corpora / "first", manifest["inputs"], WrittenFiles(["content"]))
    assert shared_artifacts.find_training_corpora(str(trained)) == {}
    assert len(caplog.messages) == 3


def test_a_model_that_was_trained_from_itself_is_named(trained):
    config = {"corpus_folder": str(trained), "model": {"path": f"{trained}/hf"}}
    (trained / "config.yaml").write_text(yaml.safe_dump(config))
    write_manifest(trained, read_manifest(trained)["inputs"], WrittenFiles(["content"]))
    with pytest.raises(ArtifactError) as raised:
        shared_artifacts.find_training_corpora(f"{trained}/hf")
    assert str(raised.value) == (
        f"model.path is '{trained}/hf': {trained} says it was trained from itself. Give another "
        "model."
    )


def test_a_model_that_was_adopted_has_no_corpora(trained, caplog):
    (trained / "config.yaml").write_text(yaml.safe_dump({"adopted_from": "x", "model": {}}))
    write_manifest(trained, {}, WrittenFiles(["content"]))
    assert shared_artifacts.find_training_corpora(str(trained)) == {}
    assert not caplog.messages


def test_a_batch_that_the_processes_can_not_share_is_named(quickstart):
    stage, pretraining = quickstart.training, quickstart.training.model.pretraining
    with pytest.raises(ConfigError) as raised:
        shared_artifacts.make_base_training_stage(stage, pretraining, 3)
    assert str(raised.value) == (
        "model.pretraining.batch_sequences is 16: give a multiple of the processes, 3."
    )


def test_a_validation_text_has_a_sequence_at_least(quickstart):
    width = quickstart.injection.injection.sequence_tokens
    for tokens, budget in ((1, width), (width, width), (width + 1, width + 1)):
        stage = shared_artifacts.validation_corpus_stage(quickstart.injection, tokens)
        assert stage.injection.budget_tokens == budget


@pytest.mark.parametrize(
    ("edited", "words"),
    [
        (lambda folder: {"corpus_folder": "x", "model": {"path": f"{folder}/hf"}}, "from itself"),
        (lambda _: {"corpus_folder": ["a"], "model": {"path": None}}, "is not a string"),
        (lambda _: {"corpus_folder": "x", "model": "x"}, "can't be used"),
    ],
)
def test_a_given_model_whose_config_makes_no_sense_is_an_error(trained, edited, words):
    (trained / "config.yaml").write_text(yaml.safe_dump(edited(trained)))
    write_manifest(trained, read_manifest(trained)["inputs"], WrittenFiles(["content"]))
    with pytest.raises(ArtifactError, match=words):
        shared_artifacts.find_training_corpora(str(trained))


@pytest.mark.parametrize("seeds", [{}, {"init_seed": 7, "order_seed": 7}])
def test_the_reference_shares_no_seed_with_the_base_model(quickstart, monkeypatch, seeds):
    made = {}

    def train(_, name, stage):
        made[name] = stage.resolved()
        return SimpleNamespace(path=Path(name))

    monkeypatch.setattr(Stages, "train", train)
    own = replace(quickstart.training.model.pretraining, **seeds)
    corpus, stages = SimpleNamespace(path=Path("corpus")), HERE
    for make in (shared_artifacts.train_base_model, shared_artifacts.train_reference_model):
        make(quickstart.training, own, corpus, stages)
    base, other = made["base"], made["reference"]
    assert base.training.init_seed != other.training.init_seed
    assert base.training.order_seed != other.training.order_seed
    same = replace(other.training, init_seed=base.training.init_seed,
                   order_seed=base.training.order_seed)  # fmt: skip
    assert replace(other, seed=base.seed, training=same) == base


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["warmup_steps=245"], "model.pretraining.warmup_steps is 245, but .* has 245 steps"),
        (["dtype=bfloat16"], "model.pretraining.dtype is bfloat16 with ZeRO stage 0"),
        (["learning_rate=0"], "model.pretraining.learning_rate is 0.0"),
        (["order=random"], "model.pretraining.order is 'random'"),
        (["budget_tokens=9"], "model.pretraining.budget_tokens is 9: give 256 or more"),
        (["sequence_tokens=128"], "injection.sequence_tokens is 256: .* sequences of 128"),
    ],
)
def test_a_recipe_that_can_not_be_is_refused_by_its_own_name(words, said):
    with pytest.raises(ConfigError, match=said):
        planned(*(f"model.pretraining.{word}" for word in words))


def test_a_tokenizer_beside_its_own_is_refused():
    with pytest.raises(ConfigError, match="tokenizer.path is 'DIR': a base model .* its own"):
        planned("tokenizer.path=DIR")


def test_a_context_that_is_not_trained_is_refused_before_any_work():
    said = "max_position_embeddings is 512, but .* on sequences of 256 tokens"
    with pytest.raises(ConfigError, match=said):
        planned("model.architecture.max_position_embeddings=512")


def test_its_batch_is_divided_among_the_processes(quickstart):
    stage, own = quickstart.training, quickstart.training.model.pretraining
    stage = replace(stage, training=replace(stage.training, micro_batch_sequences=12))
    assert (
        shared_artifacts.make_base_training_stage(stage, own, 2).training.micro_batch_sequences == 4
    )
    with pytest.raises(ConfigError, match="batch_sequences is 16: give a multiple of .* 3"):
        shared_artifacts.make_base_training_stage(stage, own, 3)


@pytest.mark.parametrize(
    "words",
    [
        ["occurrences=fixed"],
        ["rewording=swap"],
        ["benchmark=[boolq]", "seed=5", "injection.near_duplicates=drop"],
        ["injection.last_tokens=170_000", "training.order=corpus"],
    ],
)
def test_what_is_inserted_does_not_name_the_validation_text(base, quickstart, words):
    """With the fixture `base` nothing is made."""

    def name(cell):
        return shared_artifacts.make_validation_corpus(cell.injection, 512, HERE).path.name

    assert name(planned(*words)) == name(quickstart)
    assert name(planned("corpus=news")) != name(quickstart)
