"""The runs of a cell in their order: what each is given, and which folders the cell names."""

import logging
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir

import contamination.analysis.run
import contamination.detection.run
import contamination.injection.early_search
import contamination.injection.finetuning.run
import contamination.injection.run
import contamination.training.run
from contamination.analysis.config import CellPaths
from contamination.core import progress
from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.core.seeds import derive_seed
from contamination.injection.config import BackdoorsConfig, InjectionConfig, TokenizerConfig
from contamination.injection.finetuning.config import FinetuningStage
from contamination.launch import labelled_benchmark, pipeline, second_stage, stage_runner
from contamination.launch.config import ClusterConfig, LaunchConfig, LaunchSettings
from contamination.launch.plan import plan
from contamination.launch.processes import Processes
from contamination.launch.saved_config import load_config
from contamination.launch.stage_runner import Stages
from contamination.training.config import TrainingStage
from contamination.training.masked_lm import MaskedLMStage, train_masked_lm

QUICK = ("experiment=quickstart", "training.export_steps=[3]")
ALL_MODELS = (*QUICK, "method=[loss,reference,neighbor]", "training.evaluate_every_steps=10")
TUNED = (
    *QUICK, "method=[loss]", "+instructions@second_stage.instructions=[siqa]",
    "second_stage.copies=7", "second_stage.training.learning_rate=1e-5",
)  # fmt: skip


def planned(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plan(compose("pipeline", list(words)), read_benchmarks=False)


@pytest.fixture
def runs(monkeypatch):
    """Each run's make function and its arguments by title; nothing is made."""
    recorded = {}

    def make_artifact(self, stage_name, run_name, make, processes=1):
        title = f"{stage_name} {run_name}"
        recorded[title] = SimpleNamespace(make=make.func, args=make.args, processes=processes)
        return SimpleNamespace(path=Path(title), counts={"copies": 5})

    def opened(path):
        exports = {3: Path(path) / "exports" / "step-00000003"}
        return SimpleNamespace(artifact=SimpleNamespace(path=path), exports=exports)

    monkeypatch.setattr(Stages, "make_artifact", make_artifact)
    monkeypatch.setattr(pipeline, "open_checkpoint", opened)
    monkeypatch.setattr(pipeline, "check_methods", lambda *_: None)
    return recorded


def stage_of(runs, title):
    return runs[title].args[0]


def test_the_runs_of_a_cell_and_what_they_are_given(runs):
    cell = planned(*ALL_MODELS)
    paths = pipeline.run_cell(cell, Stages(ClusterConfig()))
    assert [*runs] == [
        "inject base", "inject study", "inject validation", "train base", "train study",
        "train reference", "train masked_lm", "detect clean", "detect contaminated",
        "detect step-00000003",
    ]  # fmt: skip
    functions = {
        "inject": contamination.injection.run.run, "train": contamination.training.run.run,
        "detect": contamination.detection.run.run,
    }  # fmt: skip
    for title, run in runs.items():
        expected = functions[title.split()[0]] if title != "train masked_lm" else train_masked_lm
        assert run.make is expected, title
    assert paths == CellPaths(
        corpus="inject study", model="train study", clean="detect clean",
        contaminated="detect contaminated", exports=["detect step-00000003"],
    )  # fmt: skip
    study = stage_of(runs, "inject study")
    assert study == replace(
        cell.injection, compared={"base": "inject base"},
        tokenizer=replace(cell.injection.tokenizer, path="inject base/tokenizer"),
    )  # fmt: skip
    training = stage_of(runs, "train study")
    assert training == replace(
        cell.training, corpus_folder="inject study", validation_folder="inject validation",
        model=replace(cell.training.model, path="train base", architecture=None),
    )  # fmt: skip
    assert stage_of(runs, "train base").corpus_folder == "inject base"
    assert stage_of(runs, "train reference").corpus_folder == "inject base"
    assert stage_of(runs, "train masked_lm") == MaskedLMStage(cell.injection.runs, "inject base")
    for name, model in (
        ("clean", "train base"),
        ("contaminated", "train study"),
        ("step-00000003", "train study/exports/step-00000003"),
    ):
        stage = stage_of(runs, f"detect {name}")
        assert (stage.model.path, stage.model.trust_remote_code) == (model, False)
        assert (stage.reference.path, stage.masked_lm.path) == (
            "train reference", "train masked_lm/hf"
        )  # fmt: skip
        assert stage.examples.path == "inject study"
        assert stage.method == cell.detection.method


def test_the_shared_texts_have_nothing_of_the_study(runs):
    cell = planned(*ALL_MODELS, "seed=4", "training.evaluate_tokens=1000")
    pipeline.run_cell(cell, Stages(ClusterConfig()), "inject")
    pretraining, study = cell.pretraining, stage_of(runs, "inject study")
    shares = {
        name: getattr(cell.injection.injection, name)
        for name in ("base_fraction", "validation_fraction", "num_proc")
    }
    base = stage_of(runs, "inject base")
    assert base.injection == InjectionConfig(
        members=0, nonmembers=0, part="base", budget_tokens=pretraining.budget_tokens,
        sequence_tokens=pretraining.sequence_tokens, **shares,
    )  # fmt: skip
    assert base.tokenizer == TokenizerConfig(
        vocab_size=pretraining.vocab_size, train_characters=pretraining.tokenizer_characters
    )
    assert (base.runs, base.seed, base.name, base.corpus, base.cluster) == (
        study.runs, pretraining.seed, study.name, cell.base_corpus, study.cluster
    )  # fmt: skip
    assert (base.benchmark, base.compared) == ({}, {})
    check = runs["inject base"].args[1]
    assert check.func is (
        contamination.injection.early_search.check_first_documents_contain_no_example
    )
    assert check.args == (cell.injection,)
    assert runs["inject study"].args[1] is None
    validation = stage_of(runs, "inject validation")
    assert validation.injection == InjectionConfig(
        members=0, nonmembers=0, part="validation", budget_tokens=1000,
        sequence_tokens=cell.injection.injection.sequence_tokens, **shares,
    )  # fmt: skip
    assert (validation.seed, study.seed) == (0, 4)
    empty = ("benchmark", "occurrences", "rewording", "compared", "matcher")
    assert [getattr(validation, name) for name in empty] == [{}] * 5
    assert validation.backdoors == BackdoorsConfig()
    assert validation.tokenizer == study.tokenizer


def test_the_base_model_is_trained_by_its_own_recipe(runs):
    cell = planned(*ALL_MODELS, "training.micro_batch_sequences=6", "training.batch_sequences=12")
    pipeline.run_cell(cell, Stages(ClusterConfig(), slice="1/2"), "train")
    pretraining = cell.pretraining
    base, reference = (stage_of(runs, f"train {name}") for name in ("base", "reference"))
    assert base.training.micro_batch_sequences == 2  # of 16 and 6
    assert base.training.batch_sequences == pretraining.batch_sequences == 16
    assert base.training.learning_rate == pretraining.learning_rate
    assert base.training.checkpoint_every_steps == cell.training.training.checkpoint_every_steps
    unset = ("evaluate_every_steps", "shared_steps", "retain_folder", "reinforced_path")
    assert [getattr(base.training, name) for name in (*unset, "idk_answers")] == [None] * 5
    assert base.training.export_steps == []
    assert (base.seed, base.deepspeed) == (pretraining.seed, pretraining.deepspeed)
    assert reference.seed == derive_seed(pretraining.seed, "reference") != pretraining.seed
    assert reference == replace(base, seed=reference.seed)
    assert base.training.init_seed is base.training.order_seed is None


@pytest.mark.parametrize(
    ("until", "last_title"), [("inject", "inject study"), ("train", "train study")]
)
def test_a_cell_stops_after_the_stage_that_is_asked_for(runs, until, last_title):
    cell = planned(*QUICK, "method=[loss]", "training.evaluate_every_steps=null")
    assert pipeline.run_cell(cell, Stages(ClusterConfig()), until) is None
    titles = ["inject base", "inject study", "train base", "train study"]
    assert [*runs] == titles[: titles.index(last_title) + 1]
    if until == "train":
        assert stage_of(runs, "train study").validation_folder == ""


def test_a_slice_of_the_detection_is_made_for_each_scored_model(runs):
    cell = planned(*QUICK, "method=[loss]", "detection.processes=3")
    assert pipeline.run_cell(cell, Stages(ClusterConfig(), slice="2/8")) is None
    detections = {title: run for title, run in runs.items() if title.startswith("detect")}
    names = ["clean", "contaminated", "step-00000003"]
    assert [*detections] == [f"detect {name} 2/8" for name in names]
    for run in detections.values():
        assert run.make is contamination.detection.run.run_slice
        assert (run.args[0].slice, run.args[1], run.processes) == ("2/8", None, 3)


def test_a_given_model_is_the_start_and_the_reference_base_is_itself(runs):
    cell = planned(
        "experiment=quickstart", "model.path=tests/golden/target", "model.pretraining=null",
        "method=[loss,reference]", "reference.path=base",
        "training.evaluate_every_steps=10",
    )  # fmt: skip
    cell = replace(cell, training=replace(cell.training, validation_folder="own text"))
    pipeline.run_cell(cell, Stages(ClusterConfig()))
    assert [*runs] == [
        "inject study", "train study", "detect clean", "detect contaminated",
        "detect step-00000003",
    ]  # fmt: skip
    study = stage_of(runs, "inject study")
    assert (Path(study.tokenizer.path).name, study.compared) == ("target", {})
    training = stage_of(runs, "train study")
    assert (training.model.path, training.validation_folder) == (
        "tests/golden/target", "own text"
    )  # fmt: skip
    clean, contaminated = (stage_of(runs, f"detect {name}") for name in ("clean", "contaminated"))
    assert clean.reference.path == contaminated.reference.path == "tests/golden/target"
    assert (clean.model.path, contaminated.model.path) == ("tests/golden/target", "train study")
    assert clean.masked_lm.path is None


def test_a_second_stage_trains_the_pretrained_model_on_its_texts(runs, monkeypatch):
    checks = []
    monkeypatch.setattr(second_stage, "check_finetuning_set", lambda *args: checks.append(args))
    cell = planned(*TUNED, "second_stage.members_in=finetuning", "seed=3")
    paths = pipeline.run_cell(cell, Stages(ClusterConfig()))
    assert [*runs] == [
        "inject base", "inject study", "inject clean", "inject finetuning", "train base",
        "train study", "train finetuning", "detect clean", "detect contaminated",
        "detect step-00000003",
    ]  # fmt: skip
    assert runs["inject finetuning"].make is contamination.injection.finetuning.run.run
    occurrences = {"_target_": "contamination.injection.occurrences.Fixed", "count": 7}
    assert stage_of(runs, "inject finetuning") == FinetuningStage(
        runs=cell.injection.runs, seed=cell.injection.seed, name=cell.injection.name,
        corpus_folder="inject study", instructions=cell.second.clean_sets,
        occurrences=occurrences, finetuning=cell.second.finetuning,
        compared={"pretraining": "inject clean"},
    )  # fmt: skip
    clean, study = stage_of(runs, "inject clean"), stage_of(runs, "inject study")
    assert clean.injection.members == 0
    assert (clean.injection.part, clean.injection.budget_tokens) == (
        "study", study.injection.budget_tokens
    )  # fmt: skip
    pretrained, finetuned = stage_of(runs, "train study"), stage_of(runs, "train finetuning")
    assert pretrained.corpus_folder == "inject clean"
    assert finetuned == replace(
        pretrained, training=cell.second.training, corpus_folder="inject finetuning",
        model=replace(pretrained.model, path="train study"),
    )  # fmt: skip
    assert finetuned.training.learning_rate == 1e-5
    assert stage_of(runs, "detect clean").examples.path == "inject finetuning"
    assert paths == CellPaths(
        corpus="inject study", model="train finetuning", clean="detect clean",
        contaminated="detect contaminated", first="train study", finetuning="inject finetuning",
        exports=["detect step-00000003"],
    )  # fmt: skip
    ((stage, texts, deepspeed),) = checks
    assert (stage, texts.path, deepspeed) == (
        cell.second, Path("inject finetuning"), cell.training.deepspeed
    )  # fmt: skip


def test_members_in_pretraining_alone_are_not_in_the_second_stages_texts(runs, monkeypatch):
    monkeypatch.setattr(second_stage, "check_finetuning_set", lambda *_: None)
    cell = planned(*TUNED, "second_stage.members_in=pretraining")
    pipeline.run_cell(cell, Stages(ClusterConfig()), "train")
    texts = stage_of(runs, "inject finetuning")
    assert (texts.occurrences["count"], texts.compared) == (0, {})
    assert stage_of(runs, "train study").corpus_folder == "inject study"


def test_the_recipe_is_compared_with_the_texts_once_they_are_made(monkeypatch):
    corpus = SimpleNamespace(sequences=range(40), sequence_tokens=256)
    opened = []
    monkeypatch.setattr(
        "contamination.injection.corpus.open_corpus", lambda path: opened.append(path) or corpus
    )
    stage = planned(*TUNED, "second_stage.members_in=both").second
    recipe = replace(stage.training, batch_sequences=4, warmup_steps=9)
    texts = SimpleNamespace(path=Path("texts"))
    second_stage.check_finetuning_set(replace(stage, training=recipe), texts, {})
    assert opened == [Path("texts")]
    recipe = replace(recipe, warmup_steps=10)
    message = r"^second_stage\.training\.warmup_steps is 10, but .* has 10 steps"
    with pytest.raises(ConfigError, match=message):
        second_stage.check_finetuning_set(replace(stage, training=recipe), texts, {})


@pytest.fixture
def started(monkeypatch):
    """The processes that are started: their stage, folders, run and artefact."""
    calls = []

    def run_with_retries(self, run_name, artifact):
        calls.append((self.stage, self.folder, self.code, self.cluster, run_name, artifact))

    monkeypatch.setattr(Processes, "run_with_retries", run_with_retries)
    return calls


def test_processes_of_a_stage_read_the_configuration_that_is_saved_for_them(
    runs, started, tmp_path
):
    cluster = ClusterConfig(processes=2)
    stages = Stages(cluster, tmp_path / "cell", tmp_path / "code", slice="1/2")
    cell = planned(*QUICK, "method=[loss]")
    stages.train("study", replace(cell.training, corpus_folder="corpus"))
    stages.detect("clean", cell.detection)
    stages.detect_slice("clean", cell.detection)
    for title, folder in (
        ("train study", "train-study"),
        ("detect clean", "detect-clean"),
        ("detect clean 1/2", "detect-clean-1-2"),
    ):
        stage, start = runs[title].args
        start(tmp_path / "made")
        assert started.pop() == (
            title.split()[0], tmp_path / "cell", tmp_path / "code", cluster,
            folder.partition("-")[2], tmp_path / "made",
        )  # fmt: skip
        saved = load_config(tmp_path / "cell" / "stages" / folder)
        assert saved.records == str(tmp_path / "cell")
        assert saved.verify == "changed"
        assert saved.runs == stage.runs
        assert saved.hydra.searchpath == [f"file://{tmp_path}/code/conf"]
        assert saved.get("slice") == getattr(stage, "slice", None)
    assert load_config(tmp_path / "cell/stages/train-study").corpus_folder == "corpus"


def test_a_run_is_named_for_its_bars_and_its_cost_is_of_all_its_processes(tmp_path, monkeypatch):
    recorded = []

    def record(folder, stage_name, run_name, devices, make):
        recorded.append((folder, stage_name, run_name, devices))
        return make()

    monkeypatch.setattr(stage_runner, "make_and_record_cost", record)
    stages = Stages(ClusterConfig(processes=4), tmp_path)

    def make():
        return progress.os.environ[progress.STAGE], progress.os.environ.get(progress.LATER_RUNS)

    for stage_name, processes, devices in (
        ("train", 1, 4), ("train", 6, 6), ("inject", 1, 1), ("detect", 2, 4)
    ):  # fmt: skip
        environment = stages.make_artifact(stage_name, "x", make, processes)
        assert environment[0] == f"{stage_name} x"
        assert recorded.pop() == (tmp_path, stage_name, "x", devices)
    assert Stages(ClusterConfig()).make_artifact("train", "y", make)[0] == "train y"
    assert recorded == []


def test_a_report_is_on_distinct_cells_and_of_the_configurations_own_name(monkeypatch, caplog):
    stages, audited = [], []
    monkeypatch.setattr(
        contamination.analysis.run, "run", lambda stage: stages.append(stage) or "the report"
    )
    monkeypatch.setattr(pipeline, "run_audits", lambda *arguments: audited.append(arguments))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("pipeline", [*QUICK, "name=herons", "runs=far", "seed=9"])
    cell = CellPaths("corpus", "model", "clean", "contaminated")
    with caplog.at_level(logging.INFO):
        assert pipeline.report(config, [cell, cell]) == "the report"
    (stage,) = stages
    assert (stage.name, stage.seed, stage.runs, stage.cells) == ("herons", 0, "far", [cell])
    assert asdict(stage.wandb)["mode"] == config.wandb.mode
    assert audited == [(config, "the report")]
    assert "report: 1 of 2 cells are equal to another cell and are reported once" in caplog.text


BENCHMARK = ("experiment=wikimia", "examples.path=files", "method=[loss,zlib]")


def composed(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("pipeline", list(words))


def test_a_cell_of_a_labelled_benchmark_is_one_detection(runs):
    config = composed(*BENCHMARK, "model.path=a/model", "model.trust_remote_code=true", "seed=3")
    outcome = labelled_benchmark.run_cell(config, Stages(ClusterConfig()))
    assert [*runs] == ["detect benchmark"]
    stage = stage_of(runs, "detect benchmark")
    assert (stage.model.path, stage.model.trust_remote_code) == ("a/model", True)
    assert (stage.seed, stage.runs, sorted(stage.method)) == (3, config.runs, ["loss", "zlib"])
    assert (outcome.state, outcome.paths) == (
        "done", {"model": "a/model", "scores": str(Path("detect benchmark").absolute())}
    )  # fmt: skip
    assert labelled_benchmark.describe_cell(config) == "score wikimia with a/model: loss, zlib"
    assert labelled_benchmark.is_benchmark(config)
    assert not labelled_benchmark.is_benchmark(composed(*QUICK))


@pytest.mark.parametrize(
    ("cluster", "launch", "words", "message"),
    [
        (
            {"kind": "slurm", "jobs": {"all": {"time": 5}}}, {}, ["model.path=tests/golden/target"],
            "cluster.kind is 'slurm': a benchmark is scored here: give cluster=local, or "
            "cluster=torchrun for one cell.",
        ),
        (
            {}, {"stage": "train"}, ["model.path=tests/golden/target"],
            "launch.stage is 'train': a benchmark has no stage but its scores: leave it out.",
        ),
        ({}, {}, [], "model.path is None: give the model to score, or several: a,b,c."),
    ],
)  # fmt: skip
def test_a_labelled_benchmark_that_can_not_be_run_says_why(cluster, launch, words, message):
    settings = LaunchSettings(cluster=ClusterConfig(**cluster), launch=LaunchConfig(**launch))
    with pytest.raises(ConfigError) as raised:
        labelled_benchmark.check_cell(composed(*BENCHMARK, *words), settings)
    assert str(raised.value) == message


@pytest.mark.parametrize("stage", [None, "detect"])
def test_a_labelled_benchmark_is_scored_with_a_model_that_is_here(stage):
    settings = LaunchSettings(launch=LaunchConfig(stage=stage))
    labelled_benchmark.check_cell(composed(*BENCHMARK, "model.path=tests/golden/target"), settings)
    with pytest.raises(ConfigError, match=r"^model\.path is './nowhere'"):
        labelled_benchmark.check_cell(composed(*BENCHMARK, "model.path=./nowhere"), settings)


def test_the_training_stage_is_that_of_the_configuration(runs):
    cell = planned(*QUICK, "method=[loss]")
    Stages(ClusterConfig()).train("study", cell.training)
    assert runs["train study"].args == (cell.training, None)
    assert isinstance(cell.training, TrainingStage)
