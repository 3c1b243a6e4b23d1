"""What the pipeline's plan refuses before any work, and what files it names."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace

import pytest
from hydra import compose, initialize_config_dir

from contamination.core.cli import run_hydra_command
from contamination.core.config import CONF, convert_config
from contamination.core.errors import ConfigError, UserError
from contamination.injection.config import InjectionConfig, InjectionStage
from contamination.injection.finetuning.config import FinetuningConfig
from contamination.injection.finetuning.sources import read_instructions
from contamination.launch import slurm
from contamination.launch.cells import CellFolder, Launch, Outcome
from contamination.launch.config import LaunchSettings, SecondStage
from contamination.launch.plan import input_digests, plan, run_names_by_stage
from contamination.launch.run import _is_cell_done, run
from contamination.launch.saved_config import save_config
from contamination.launch.second_stage import max_finetuning_sequences


def composed(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("pipeline", list(overrides))


def planned(*overrides):
    return plan(composed("experiment=quickstart", *overrides))


def test_recall_needs_a_file_where_nothing_is_held_out(tmp_path):
    assert planned("method=[recall]").injection.injection.held_out == 12
    with pytest.raises(ConfigError, match="recall needs prefix.path.*held-out"):
        planned("method=[recall]", "injection.held_out=0")
    (tmp_path / "given.txt").write_text("A ladder leans on the orchard wall.\n")
    planned("method=[recall]", "injection.held_out=0", f"prefix.path={tmp_path}/given.txt")


def test_recall_needs_a_file_where_a_finetuned_model_is_scored(tmp_path):
    """The fine-tuning set is scored, and holds no texts out, as the corpus does."""
    (tmp_path / "given.txt").write_text("A ladder leans on the orchard wall.\n")
    with pytest.raises(ConfigError, match="recall needs prefix.path, which is null"):
        second_stage(tmp_path, whole_words=["method=[recall]"])
    second_stage(tmp_path, whole_words=["method=[recall]", f"prefix.path={tmp_path}/given.txt"])


def test_an_experiments_own_values_stand():
    assert composed("experiment=paper/table3").masked_lm.path == "bert-base-uncased"


def test_a_value_may_name_another_node():
    cell = plan(
        composed("experiment=model_size", "model.architecture.hidden_size=32"),
        read_benchmarks=False,
    )
    assert cell.training.model.name == "tiny_llama_32"


@pytest.mark.parametrize("path", sorted((CONF / "experiment/paper").glob("*.yaml")))
def test_the_papers_design(path):
    """Shi et al. 2024, section 6.1: each member once, a constant rate; Poisson in figure 5c."""
    config = composed(f"experiment=paper/{path.stem}")
    kind = config.occurrences._target_.rpartition(".")[-1]
    assert kind == ("Poisson" if path.stem == "frequency" else "Fixed")
    assert config.occurrences.get("count", 1) == 1
    assert (config.training.schedule, config.training.warmup_steps) == ("constant", 0)


def test_a_warm_up_that_is_never_over_is_refused_before_any_work():
    assert planned("training.warmup_steps=146").sequence_order.steps == 147
    with pytest.raises(ConfigError, match="training.warmup_steps is 147, but .* has 147 steps"):
        planned("training.warmup_steps=147")


def test_a_pretraining_that_its_corpus_can_not_fill_is_refused_before_any_work():
    words = r"model.pretraining.budget_tokens is 1000000000: the corpus has [\d,]+ bytes"
    with pytest.raises(ConfigError, match=words):
        planned("model.pretraining.budget_tokens=1_000_000_000")


def test_a_refused_cell_leaves_no_folder(tmp_path, monkeypatch, capsys):
    words = ("experiment=quickstart", "injection.window=[0.5,1]", f"runs={tmp_path}/runs")
    monkeypatch.setattr(sys, "argv", ["launch", *words])
    assert run_hydra_command("pipeline", run) == 2
    assert "training.order is 'shuffled'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def second_stage(tmp_path, *words, whole_words=()):
    """A plan whose second stage reads 30 questions of a file, and 2 benchmarks' 100 members."""
    rows = [{"question": f"Which of {n} is it?", "answer": f"The {n}th."} for n in range(30)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = (
        "{mine: {template: 'Q: {question}\\nA: {answer}', output_field: answer, rows: {_target_: "
        f"contamination.data.readers.files.FileRows, path: {path}}}, "
        "fields: {question: '{question}', "
        "answer: '{answer}'}}}"
    )
    own = ["benchmark=[boolq,truthfulqa]", "second_stage.members_in=both",
           f"+second_stage.instructions={texts}"]  # fmt: skip
    return planned(*own, *whole_words, *(f"second_stage.{word}" for word in words))


def test_a_second_stages_recipe_is_refused_before_any_work(tmp_path):
    padded = ["finetuning.layout=padded", "training.batch_sequences=10"]
    second_stage(tmp_path, *padded, "training.warmup_steps=22")
    message = r"second_stage.training.warmup_steps is 23, but .* 23 steps .* at most 230 sequences"
    with pytest.raises(ConfigError, match=message):
        second_stage(tmp_path, *padded, "training.warmup_steps=23")
    with pytest.raises(ConfigError, match="second_stage.training.export_steps has 24, but"):
        second_stage(tmp_path, *padded, "training.export_steps=[24]")
    with pytest.raises(ConfigError, match="second_stage.training.warmup_steps is 500"):
        second_stage(tmp_path, "training.warmup_steps=500")
    dtype = "second_stage.training.dtype is bfloat16"
    with pytest.raises(
        ConfigError, match=f"^{dtype} .* deepspeed@model.pretraining.deepspeed=zero1"
    ):
        second_stage(tmp_path, "training.dtype=bfloat16")
    with pytest.raises(ConfigError, match="second_stage.training.retain_folder"):
        second_stage(tmp_path, "training.objective=difference")


@pytest.mark.parametrize(
    "window", ["window=[0.5,1.0]", "last_tokens=50_000", "token_window=[0,50_000]"]
)
def test_a_window_of_time_needs_the_corpus_order(window):
    with pytest.raises(ConfigError, match="training.order is 'shuffled'"):
        planned(f"injection.{window}")
    planned(f"injection.{window}", "training.order=corpus")


REFERENCE = "method=[loss,reference]"


def test_the_reference_is_made_only_where_a_method_needs_one(tmp_path):
    made = {
        REFERENCE: True, "method=[loss]": False, f"reference.path={tmp_path}": False,
        "reference.path=base": False,
    }  # fmt: skip
    for words, expected in made.items():
        cell = planned(*dict.fromkeys([REFERENCE, words] if "path" in words else [words]))
        assert cell.makes_reference is expected
        assert ("reference" in run_names_by_stage(cell)["train"]) is expected


def test_with_a_given_model_no_reference_is_made_up():
    given = ("model.path=tests/golden/target", "model.pretraining=null")
    with pytest.raises(ConfigError, match="reference needs reference.path.*`base`.* upper bound"):
        planned(REFERENCE, *given)
    planned(REFERENCE, *given, "reference.path=base")
    planned("method=all", *given)


@pytest.fixture
def named(tmp_path):
    """The files that a cell's configuration names, and the words that name them."""
    rows = [{"question": f"Is {n} a number?", "answer": "yes"} for n in range(40)]
    files = {name: tmp_path / name for name in ("corpus.jsonl", "mine.jsonl", "prefix.txt")}
    for file in files.values():
        more = 200 if file.stem == "corpus" else 1  # enough for the budget
        file.write_text("".join(json.dumps(row) + "\n" for row in rows * more))
    for role in ("model", "reference"):
        shutil.copytree("tests/golden/target", tmp_path / role)
        files[role] = tmp_path / role / "config.json"
    words = (
        "corpus=local_jsonl", f"corpus.paths={files['corpus.jsonl']}", "corpus.text=question",
        "benchmark=[user]", "injection.benchmark_source=file",
        f"benchmark.user.sources.file.rows.path={files['mine.jsonl']}", "injection.members=6",
        "injection.nonmembers=6", "injection.held_out=6", "method=[loss,reference,recall]",
        f"prefix.path={files['prefix.txt']}", f"model.path={tmp_path / 'model'}",
        f"reference.path={tmp_path / 'reference'}", "model.pretraining=null",
    )  # fmt: skip
    return files, words


def test_a_cell_is_known_by_the_content_of_all_that_it_names(named):
    files, words = named
    before = input_digests(planned(*words))
    names = {"corpus.jsonl": "corpus", "mine.jsonl": "benchmark.user", "prefix.txt": "prefix",
             "model": "model", "reference": "reference"}  # fmt: skip
    assert before.keys() >= set(names.values())
    for file, name in names.items():
        content = files[file].read_text()
        files[file].write_text(content.replace("number", "NUMBER").replace("silu", "gelu"))
        after = input_digests(planned(*words))
        assert {n for n in before if after[n] != before[n]} == {name}
        files[file].write_text(content)
    assert input_digests(planned(*words)) == before
    fewer = input_digests(planned(*words, "method=[loss]"))
    assert fewer == {n: d for n, d in before.items() if n not in ("reference", "prefix")}


def test_a_base_model_made_here_is_known_by_its_corpus():
    content = input_digests(planned())
    assert content["base_corpus"] == content["corpus"]
    assert "model" not in content


def test_a_done_cell_whose_files_were_edited_is_not_done(named, tmp_path):
    """Where cells are jobs, a done one is not even submitted."""
    files, words = named
    config, cell = composed("experiment=quickstart", *words), CellFolder(tmp_path / "cell")
    artefact = tmp_path / "artefact"
    artefact.mkdir()
    (artefact / "manifest.json").touch()
    save_config(cell.folder, config, CONF)
    assert not _is_cell_done(cell, config, input_digests(plan(config)))
    paths = {"corpus": str(artefact)}
    cell.write_outcome(Outcome("done", paths=paths, content=input_digests(plan(config))))
    assert _is_cell_done(cell, config, input_digests(plan(config)))
    rows = files["mine.jsonl"].read_text()
    files["mine.jsonl"].write_text(rows.replace("yes", "noo"))
    assert not _is_cell_done(cell, config, input_digests(plan(config)))
    files["mine.jsonl"].write_text(rows)
    assert _is_cell_done(cell, config, input_digests(plan(config)))
    cell.write_outcome(Outcome("done", paths=paths))  # as a launch without SLURM leaves it
    assert not _is_cell_done(cell, config, input_digests(plan(config)))


def test_a_corpus_is_made_in_the_tasks_of_the_cluster():
    config = composed("experiment=quickstart", "cluster=datatrove", "cluster.workers=5")
    tasks = plan(config, read_benchmarks=False, check_base_model=False).injection.cluster
    assert (tasks.kind, tasks.workers) == ("datatrove", 5)


DOCS = (CONF.parent / "docs" / "launch.md").read_text()


@pytest.mark.parametrize("line", re.findall(r"^'?\+?cluster\..*$", DOCS, re.MULTILINE))
def test_a_documented_option_is_one_that_hydra_takes(line):
    config = composed("cluster=slurm", *shlex.split(line))
    assert convert_config(config, LaunchSettings).cluster.kind == "slurm"


ASKED = {
    "inject": {"partition": "cpu", "cpus-per-task": "16", "time": "480", "nodes": "1"},
    "train": {"partition": "gpu", "cpus-per-task": "8", "gpus-per-node": "8",
              "ntasks-per-node": "8", "nodes": "1"},
    "analyse": {"partition": "cpu", "nodes": "1"},
}  # fmt: skip
ASKED["detect"] = ASKED["train"]


def test_the_documented_jobs_ask_for_gpus_where_models_run_and_nowhere_else(tmp_path):
    (said,) = re.findall(r"cluster=slurm (cluster.jobs.inject.*?)\npython", DOCS, re.DOTALL)
    words = said.replace("\\\n", " ").split()
    config = composed("experiment=paper/frequency", "corpus.paths=/data", "cluster=slurm", *words)
    cluster, launch = convert_config(config, LaunchSettings).cluster, Launch(tmp_path / "study-1")
    text = slurm.render_batch_scripts(launch, launch.folder / "code-1", cluster, 1, None)
    kept = ("partition", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task")
    for script in text.split("#!/bin/bash")[1:]:
        asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script, re.MULTILINE))
        expected = ASKED[asked["job-name"].removeprefix("study-1-")]
        assert {name: asked[name] for name in (*kept, *expected) if name in asked} == expected


def test_detection_takes_a_node_of_the_training_and_gpus_may_be_of_a_kind_or_none():
    given = ["ntasks_per_node=4", "gpus_per_node=a100:4", "nodes=2", "time=900"]
    given = ["injection.num_proc=4", *(f"cluster.jobs.train.{word}" for word in given)]
    cluster = convert_config(composed("cluster=slurm", *given), LaunchSettings).cluster
    kept = ("ntasks_per_node", "gpus_per_node", "nodes", "cpus_per_task", "time")
    jobs = {
        stage: [cluster.job_options(stage).get(name) for name in kept] for stage in cluster.jobs
    }
    assert jobs["inject"] == [None, None, None, 4, 240]
    assert jobs["train"] == [4, "a100:4", 2, 8, 900]
    assert jobs["detect"] == [4, "a100:4", 1, 8, 240]
    assert jobs["analyse"] == [None, None, None, None, 60]
    config = composed("cluster=slurm", "cluster.jobs.train.gpus_per_node=null")
    assert "gpus_per_node" not in convert_config(config, LaunchSettings).cluster.job_options(
        "detect"
    )


def lightly_planned(*words):
    return plan(composed("experiment=quickstart", *words), read_benchmarks=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["injection.window=[0.5,1]"],
            "training.order is 'shuffled': give training.order=corpus with injection.window, "
            "injection.token_window or injection.last_tokens: a shuffled order spreads the copies "
            "over the whole training.",
        ),
        (
            ["injection.sequence_tokens=257"],
            "injection.sequence_tokens is 257: the base model is pretrained on sequences of 256, "
            "its context. Lower it, or raise model.pretraining.sequence_tokens.",
        ),
        (
            ["tokenizer.path=tests/golden/target"],
            "tokenizer.path is 'tests/golden/target': a base model that is made here has its own "
            "tokenizer: leave it out.",
        ),
        (
            ["model.pretraining=null"],
            "model.pretraining is None: say how the base model is pretrained, or give model.path.",
        ),
    ],
)
def test_a_base_model_or_an_order_that_does_not_fit_is_named(words, message):
    with pytest.raises(ConfigError) as raised:
        lightly_planned("method=[loss]", *words)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["model.path=./gone", "model.pretraining=null"], "model.path"),
        (["method=[loss,reference]", "reference.path=./gone"], "reference.path"),
        (["method=[loss,neighbor]", "masked_lm.path=./gone"], "masked_lm.path"),
        (["method=[loss,recall]", "prefix.path=./gone"], "prefix.path"),
        (["model.pretraining.warmup_steps=9999"], "model.pretraining.warmup_steps"),
    ],
)
def test_what_is_not_there_is_named_before_any_work(words, field):
    with pytest.raises(UserError, match=f"^{re.escape(field)} is ") as raised:
        lightly_planned("method=[loss]", *words)
    assert "\n" not in str(raised.value)


def test_the_detection_of_a_plan_has_its_own_nodes(tmp_path):
    (tmp_path / "given.txt").write_text("A ladder leans on the orchard wall.\n")
    cell = lightly_planned(
        "name=herons", "seed=5", "runs=far", "method=[loss,reference,recall]",
        "detection.batch_tokens=999", "reference.path=tests/golden/reference",
        f"prefix.path={tmp_path}/given.txt", "masked_lm.path=tests/golden/target",
    )  # fmt: skip
    detection = cell.detection
    assert (detection.name, detection.seed, detection.runs) == ("herons", 5, "far")
    assert sorted(detection.method) == ["loss", "recall", "reference"]
    assert detection.detection.batch_tokens == 999
    assert (detection.reference.path, detection.masked_lm.path, detection.prefix.path) == (
        "tests/golden/reference", "tests/golden/target", f"{tmp_path}/given.txt"
    )  # fmt: skip
    assert (cell.injection.seed, cell.injection.name, cell.training.seed) == (5, "herons", 5)
    assert cell.injection.cluster.kind == "local"
    assert (cell.makes_base_model, cell.makes_reference, cell.makes_masked_lm) == (
        True, False, False
    )  # fmt: skip


def test_the_runs_of_a_plan_that_may_be_processes_of_their_own(tmp_path):
    texts = "+instructions@second_stage.instructions=[siqa]"
    stage = ["second_stage.members_in=both", texts, "second_stage.training.export_steps=[5]"]
    runs = run_names_by_stage(lightly_planned("method=[loss,reference]", *stage))
    assert runs == {
        "train": ["base", "study", "finetuning", "reference"],
        "detect": ["clean", "contaminated", "step-00000005"],
    }
    given_model = ["model.path=tests/golden/target", "model.pretraining=null", "method=[loss]"]
    runs = run_names_by_stage(lightly_planned(*given_model, "training.export_steps=[]"))
    assert runs == {"train": ["study"], "detect": ["clean", "contaminated"]}


@pytest.fixture
def tuned(tmp_path):
    """A second stage of 30 texts of a file, all of 19 bytes, and its study of two benchmarks."""
    rows = [{"q": f"{n:02d} is what number", "a": "x"} for n in range(30)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = {
        "template": "{q} {a}", "output_field": "a", "fields": {"q": "{q}", "a": "{a}"},
        "rows": {"_target_": "contamination.data.readers.files.FileRows",
                 "path": str(tmp_path / "rows.jsonl")},
    }  # fmt: skip
    injection = InjectionConfig(members=10, nonmembers=10, sequence_tokens=100)
    study = InjectionStage(
        runs="runs", injection=injection, benchmark={"a": None, "b": None}, corpus={}
    )

    def make_second_stage(layout="packed", format_="template", **fields):
        finetuning = FinetuningConfig(layout=layout, format=format_)
        fields = {"members_in": "both", "copies": 3, "instructions": {"own": texts}, **fields}
        return SecondStage(finetuning=finetuning, **fields)

    return make_second_stage, study, texts


def test_how_many_sequences_a_second_stage_may_have(tuned):
    """Packed: of 60 copies of 100 tokens, and 30 texts of 19 bytes and 4 special tokens."""
    make_second_stage, study, _ = tuned
    (text, *_) = read_instructions("own", make_second_stage().clean_sets["own"], 0).texts
    assert len(text.own_text) == 19
    assert max_finetuning_sequences(make_second_stage("padded"), study) == 60 + 30
    tokens = 60 * 100 + 30 * (19 + 4)
    assert max_finetuning_sequences(make_second_stage(), study) == min(90, 2 * tokens // 100 + 1)
    cut_study = replace(study, injection=replace(study.injection, example_max_tokens=20))
    tokens = 60 * 24 + 30 * 23
    assert max_finetuning_sequences(make_second_stage(), cut_study) == 2 * tokens // 100 + 1
    untrained_members = make_second_stage(members_in="pretraining")
    assert max_finetuning_sequences(untrained_members, study) == 2 * 30 * 23 // 100 + 1
    assert max_finetuning_sequences(make_second_stage(members_in="finetuning"), cut_study) == 43


def test_texts_of_the_hub_are_counted_as_configured(tuned):
    make_second_stage, study, texts = tuned
    cut_study = replace(study, injection=replace(study.injection, example_max_tokens=20))
    rows = {"_target_": "contamination.data.readers.hub.HubRows", "path": "a/b", "splits": ["x"]}
    for examples, max_sequences in ((7, 60 + 30 + 7), (None, None)):
        instructions = {"hub": {**texts, "rows": rows, "examples": examples}, "own": texts}
        stage = make_second_stage(instructions=instructions)
        assert max_finetuning_sequences(stage, cut_study) == max_sequences
    five_texts = make_second_stage(instructions={"own": {**texts, "examples": 5}})
    assert max_finetuning_sequences(five_texts, cut_study) == 2 * (60 * 24 + 5 * 23) // 100 + 1
