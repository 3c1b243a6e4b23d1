"""What a dry run says that a cell will take, and what it reads from the hub."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra import compose, initialize_config_dir

from contamination.core import hub
from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.detection.forward.infilling import make_branches
from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig
from contamination.injection.finetuning.sources import read_instructions
from contamination.injection.run import run as inject
from contamination.injection.token_stream import Tokenizer
from contamination.launch import downloads, forecast
from contamination.launch.config import ClusterConfig
from contamination.launch.plan import plan
from contamination.launch.run_records import Cost
from contamination.launch.stage_runner import Stages
from contamination.launch.workload import ModelCost
from contamination.training.config import MemoryConfig, MemoryStage
from contamination.training.memory_plan import MACHINES, memory_need_on

SUBSETS = ("common_crawl", "c4", "github", "arxiv", "wikipedia", "stackexchange")
FLOPS = 6 * (6_738_415_616 - 32_000 * 4096) + 12 * 32 * 4096 * 2048  # PaLM, appendix B


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for subset in SUBSETS:
        (folder / subset).mkdir()
        (folder / subset / "a.jsonl").write_text('{"text": "A document."}\n')
    return f"corpus.paths={folder}"


@pytest.fixture(scope="module")
def papers(corpus):
    return planned("experiment=paper/table3", corpus, "training.peak_tflops=989")


def planned(*words):
    """The plan, where no earlier run says how fast this machine is."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plan(compose("pipeline", ["runs=no-such-folder", *words]), read_benchmarks=False)


def on(**jobs):
    jobs["all"] = {"time": 5}
    return Stages(ClusterConfig(kind="slurm", jobs=jobs))


def test_the_papers_training_by_hand(papers):
    by_run = {
        one.run: one for one in forecast.forecast_runs(papers, on(train={"ntasks_per_node": 8}))
    }
    assert list(by_run) == ["inject study", "train study", "detect clean", "detect contaminated"]
    train = by_run["train study"]
    tokens = 27_000_000 // 2048 * 2048
    assert train.seconds == pytest.approx(tokens * FLOPS * 4 / 3 / (8 * 989e12 * 0.4))
    own = papers.training
    stage = MemoryStage(own.model, own.deepspeed, own.training, MemoryConfig(2048))
    shape = ModelCost.of(own.model, 2048).shape
    assert train.device_bytes == memory_need_on(shape, stage, MACHINES[1]).total
    assert train.table_cells()[2:5] == ["8", "8 min", "1.08"]
    # the model in bfloat16, and 2 checkpoints: of these weights and 3 float32 numbers a weight
    assert train.disk_bytes == 6_738_415_616 * (2 + 2 * (2 + 3 * 4))


def test_a_scored_text_costs_its_copies(papers):
    """The original, lowercase and 25 neighbours of 200 + 200 texts of 4 benchmarks."""
    clean = next(e for e in forecast.forecast_runs(papers, on()) if e.run == "detect clean")
    assert clean.tokens == 1600 * 256 * 27
    each = (FLOPS - 12 * 32 * 4096 * (2048 - 256)) / 3
    assert clean.seconds == pytest.approx(clean.tokens * each / (989e12 * 0.4))


def test_neighbours_of_a_model_that_is_not_here_are_left_out_and_said(papers, monkeypatch):
    monkeypatch.setattr(hub, "cached_snapshot", lambda name: None)
    said = "making neighbours is left out: the size of masked_lm.path=bert-base-uncased is not"
    assert any(line.startswith(said) for line in forecast.describe_forecasts(papers, on()))


def test_that_a_model_writes_is_said_and_counted():
    found = planned("experiment=quickstart", "method=[samia]", "training.peak_tflops=1")
    said = "for samia the models generate text, which takes longer than is estimated here."
    assert said in forecast.describe_forecasts(found, on())
    clean = next(e for e in forecast.forecast_runs(found, on()) if e.run == "detect clean")
    assert clean.tokens == 800 * 10 * 120  # half of each text is read, and half written, ten times


SMALL = (
    "experiment=quickstart", "training.peak_tflops=1", "benchmark=[boolq,imdb]",
    "injection.members=30", "injection.nonmembers=30", "method=[loss,neighbor,infilling]",
    "method.infilling.m=all", "training.evaluate_every_steps=50",
)  # fmt: skip
PASS = 2 * (225_600 - 1024 * 64) + 4 * 2 * 64 * 120  # FLOPs of reading a token: LLaMA's
MASKED = 2 * (2 * 12 * 96**2 + 1024 * 96) + 4 * 2 * 96 * 120  # and RoBERTa's, without its biases


@pytest.fixture(scope="module")
def small():
    made = forecast.forecast_runs(planned(*SMALL), Stages(ClusterConfig()))
    return {one.run: one for one in made}


def test_infilling_with_all_tokens_costs_each_branch(small):
    """Of 120 texts of 120 tokens, and 25 neighbours, which are made for the first model alone."""
    ids = list(range(120))
    branches = len(make_branches(ids, np.full(119, 999), 119))
    tokens = 120 * (26 * 120 + 120 + branches)
    clean, later = small["detect clean"], small["detect contaminated"]
    assert clean.tokens == later.tokens == tokens
    assert later.seconds == pytest.approx(tokens * PASS / 0.4e12)
    made = 120 * 25 * 120 * MASKED / 0.4e12
    assert clean.seconds - later.seconds == pytest.approx(made, rel=0.05)


def test_evaluations_and_the_masked_model_cost_time(small):
    """After 0, 50, 100 and 147 steps: 60 + 60 examples and 32 sequences of validation text."""
    plain = planned(*SMALL[:-1])
    without = forecast.forecast_runs(plain, Stages(ClusterConfig()))[3]
    own = small["train study"]
    assert own.disk_bytes == 225_600 * (4 + 2 * (4 + 3 * 4))  # in float32
    assert (without.run, own.tokens) == ("train study", 599_808)
    read = 4 * (120 * 120 + 32 * 256)
    ratio = read / (3 * 599_808)
    assert own.seconds == pytest.approx((1 + ratio) * without.seconds)
    assert small["inject validation"].tokens == 8192
    masked = small["train masked_lm"]
    each = MASKED + 4 * 2 * 96 * (256 - 120)
    assert masked.seconds == pytest.approx(3 * 999_936 * each / 0.4e12, rel=0.05)


TUNED = (
    "experiment=quickstart", "training.peak_tflops=1", "benchmark=[boolq]", "method=[loss]",
    "second_stage.training.batch_sequences=4", "second_stage.training.export_steps=[5]",
    "+instructions@second_stage.instructions=[openbookqa]",
    "second_stage.instructions.openbookqa.examples=20", "second_stage.finetuning.layout=padded",
)  # fmt: skip


def tuned(*words):
    made = forecast.forecast_runs(planned(*TUNED, *words), Stages(ClusterConfig()))
    return {one.run: one for one in made}


@pytest.mark.parametrize(
    ("members_in", "texts"), [("pretraining", 20), ("finetuning", 120), ("both", 120)]
)
def test_a_second_stage_reads_a_sequence_a_text_and_epoch(members_in, texts):
    found = tuned(f"second_stage.members_in={members_in}", "second_stage.training.epochs=3")
    one = found["train finetuning"]
    assert found["inject finetuning"].tokens == texts * 256
    assert one.tokens == 3 * texts * 256
    assert one.seconds == pytest.approx(one.tokens * 3 * (PASS + 4 * 2 * 64 * 136) / 0.4e12)
    assert ("inject clean" in found) == (members_in == "finetuning")
    assert [*found][-4:] == [
        "train finetuning", "detect clean", "detect contaminated", "detect step-00000005"
    ]  # fmt: skip


def test_packed_texts_are_counted_with_a_tokenizer_that_is_here(monkeypatch):
    """100 copies of 120 tokens, two a sequence, and 20 texts of their own lengths."""
    target = "model.path=tests/golden/target"
    words = ["second_stage.members_in=both", "second_stage.finetuning.layout=packed"]
    own = tuned(*words, target)["inject finetuning"].tokens
    clean = planned(*TUNED, *words, target).second.clean_sets
    texts = read_instructions("openbookqa", clean["openbookqa"], 0).texts[:20]
    tokenizer = Tokenizer("tests/golden/target")
    tokens = sum(len(tokenizer.encode(text.text)) for text in texts)
    assert 50 * 256 < own < 50 * 256 + 2 * tokens
    assert own % 256 == 0


def test_a_second_stage_whose_texts_are_on_the_hub_is_said():
    words = [*TUNED[:4], "+instructions@second_stage.instructions=hub"]
    found = planned(*words, "second_stage.members_in=both")
    lines = forecast.describe_forecasts(found, Stages(ClusterConfig()))
    said = "the second stage is left out: the hub has second_stage.instructions.hub."
    assert said in lines
    assert {one.field: one.name for one in downloads.list_downloads(found)} == {
        "second_stage.instructions.hub": "garage-bAInd/Open-Platypus"
    }


def test_an_unlearner_learns_what_it_keeps_and_reads_what_it_forgets(tmp_path):
    """Of 120 sequences in 30 steps; of kept text as many; npo's reference reads the 120 once."""
    (tmp_path / "kept.txt").write_text("The heron waits by the old bridge. " * 300)
    corpus = {"_target_": "contamination.data.readers.files.FilesCorpus", "name": "kept",
              "paths": str(tmp_path / "kept.txt")}  # fmt: skip
    kept = InjectionStage(
        runs=str(tmp_path), corpus=corpus,
        tokenizer=TokenizerConfig(path="tests/golden/target"),
        injection=InjectionConfig(
            members=0, nonmembers=0, budget_tokens=1280, sequence_tokens=64, part="all"
        ),
    )  # fmt: skip
    node = "second_stage.training."
    words = [f"{node}objective=npo", f"{node}retain_folder={inject(kept).path}"]
    one = tuned("second_stage.members_in=both", *words)["train finetuning"]
    forgotten, retained = 120 * 256, 30 * 4 * 64
    assert one.tokens == forgotten + retained
    each = PASS + 4 * 2 * 64 * 136
    work = 3 * (forgotten + retained) + forgotten
    assert one.seconds == pytest.approx(work * each / 0.4e12)


def test_a_job_that_is_too_short_is_said(papers):
    lines = forecast.describe_forecasts(papers, on())
    assert "train study takes longer than cluster.jobs.train.time=5 (minutes)" in lines[-3]
    assert not any(
        "longer" in line for line in forecast.describe_forecasts(papers, Stages(ClusterConfig()))
    )


def test_an_earlier_run_of_the_model_says_its_speed(tmp_path):
    cell = planned("experiment=quickstart", f"runs={tmp_path}")
    made = tmp_path / "model" / "tiny"
    made.mkdir(parents=True)
    lines = [{"step": n, "tokens_per_second": speed} for n, speed in enumerate((1, 4000, 9000))]
    (made / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"model": {"name": "tiny_llama"}, "training": {"dtype": "float32"}}
    (made / "config.yaml").write_text(yaml.safe_dump(config))
    (made / "manifest.json").touch()
    folder = tmp_path / "launches" / "one" / "cells" / "cell"
    folder.mkdir(parents=True)
    cost = Cost("train", "study", 9.0, 2, "cpu", str(made))
    (folder / "costs.jsonl").write_text(json.dumps(asdict(cost)) + "\n")

    def seconds():
        made = forecast.forecast_runs(cell, Stages(ClusterConfig()))
        return {one.run: one.seconds for one in made}

    assert seconds()["train study"] is None  # a model of another size
    (made / "hf").mkdir()
    (made / "hf" / "model.safetensors").write_bytes(bytes(4 * 226_000))
    found = seconds()
    assert found["train study"] == pytest.approx(599_808 / 2000)
    share = PASS / (PASS + 4 * 2 * 64 * (256 - 120))
    assert found["detect clean"] == pytest.approx(96_000 / (3 * 2000) * share)


def test_a_model_whose_config_is_still_on_the_hub_has_no_size(papers, monkeypatch):
    monkeypatch.setattr(hub, "cached_snapshot", lambda name: None)
    unknown = planned(
        "experiment=paper/table3", f"corpus.paths={papers.injection.corpus['paths']}",
        "model.architecture=null",
    )  # fmt: skip
    train = forecast.forecast_runs(unknown, on())[1]
    assert (train.seconds, train.device_bytes) == (None, None)


PAPERS = {
    "benchmark.boolq": "google/boolq", "benchmark.imdb": "stanfordnlp/imdb",
    "benchmark.truthfulqa": "truthfulqa/truthful_qa",
    "benchmark.commonsenseqa": "tau/commonsense_qa", "model.path": "huggyllama/llama-7b",
    "masked_lm.path": "bert-base-uncased",
}  # fmt: skip


def test_what_comes_from_the_hub_is_listed_without_asking_it(papers, monkeypatch):
    monkeypatch.setattr(hub, "cached_snapshot", lambda name: None)
    monkeypatch.setattr(downloads, "is_data_set_cached", lambda name: name == "google/boolq")
    found = downloads.list_downloads(papers)
    assert {one.field: one.name for one in found} == PAPERS
    head, _, *lines = downloads.describe_downloads(found)
    assert "launch fetch" in head
    assert lines[0].split() == ["benchmark.boolq", "google/boolq", "data", "set", "cached"]
    assert lines[4].split() == ["model.path", "huggyllama/llama-7b", "model", "-"]


def test_a_model_is_cached_once_its_weights_are(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    place = tmp_path / "models--owner--name"
    snapshot = place / "snapshots" / "c0ffee"
    for folder in (place / "refs", snapshot):
        folder.mkdir(parents=True)
    (place / "refs" / "main").write_text("c0ffee")
    model = downloads.ModelFiles("model.path", "owner/name")
    for file, here in (("config.json", "-"), ("model.safetensors", "cached")):
        (snapshot / file).touch()
        row = downloads.describe_downloads([model])[2]
        assert row.split() == ["model.path", "owner/name", "model", here]


def test_nothing_of_the_quickstart_is_on_the_hub():
    assert downloads.describe_downloads(
        downloads.list_downloads(planned("experiment=quickstart"))
    ) == ["from the hub: nothing"]


def test_fetching_asks_the_hub_for_each(papers, corpus, monkeypatch, capsys):
    asked = []

    def snapshot(field, name, files, *, kind="model", revision=None):
        asked.append((field, kind, name, {"*.safetensors", "*.jinja"} <= {*files}))
        return Path("c0ffee")

    monkeypatch.setattr(hub, "download_snapshot", snapshot)
    monkeypatch.setattr(downloads, "download_split", lambda *rows: asked.append(rows))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        downloads.fetch(compose("pipeline", ["experiment=paper/table3", corpus]))
    assert ("model.path", "model", "huggyllama/llama-7b", True) in asked
    assert ("benchmark.boolq", "dataset", "google/boolq", False) in asked
    assert ("google/boolq", None, "validation", "c0ffee") in asked
    assert capsys.readouterr().out.endswith("6 in the hub's cache\n")


def test_the_whole_forecast_of_the_papers_cell_is_written_out(papers, monkeypatch):
    monkeypatch.setattr(hub, "cached_snapshot", lambda name: None)
    lines = forecast.describe_forecasts(papers, on(train={"ntasks_per_node": 8}))
    basis, header, *rows = lines[:6]
    assert basis == (
        "estimated (time at 40% of training.peak_tflops=989.0, or as earlier runs took):"
    )
    assert re.split("  +", header) == [
        "run", "tokens", "devices", "time", "GPU hours", "GB per device", "GB of host",
        "GB on disk",
    ]  # fmt: skip
    assert [re.split("  +", row) for row in rows] == [
        ["inject study", "27,000,000", "–", "–", "–", "–", "–", "0.2"],
        ["train study", "26,998,784", "8", "8 min", "1.08", "18.2", "0.8", "202.2"],
        ["detect clean", "11,059,200", "1", "6 min", "0.10", "16.6", "–", "0.2"],
        ["detect contaminated", "11,059,200", "1", "6 min", "0.10", "16.6", "–", "0.2"],
    ]  # 18.2: sharded over 8 devices
    assert lines[6] == (
        "making neighbours is left out: the size of masked_lm.path=bert-base-uncased is not known "
        "here."
    )
    assert lines[7:] == [
        f"{run} takes longer than cluster.jobs.{run.split()[0]}.time=5 (minutes): it is saved and "
        "queued again, up to cluster.requeues=3 times."
        for run in ("train study", "detect clean", "detect contaminated")
    ]


def test_each_run_of_a_small_cell_is_forecast(small):
    """On disk: the corpora twice, 20 bytes for a scored token, two checkpoints and the model."""
    rows = [run.table_cells() for run in small.values()]
    trained = ["1", "0.00", "0.1", "0.001", "0.008"]
    assert [[*row[:3], *row[4:]] for row in rows] == [
        ["inject base", "1,000,000", "–", "–", "–", "–", "0.008"],
        ["inject study", "600,000", "–", "–", "–", "–", "0.005"],
        ["inject validation", "8,192", "–", "–", "–", "–", "0.000"],
        ["train base", "999,936", *trained],
        ["train study", "599,808", *trained],
        ["train masked_lm", "999,936", "1", "0.00", "–", "–", "0.000"],
        ["detect clean", "1,231,320", "1", "0.00", "0.1", "–", "0.025"],
        ["detect contaminated", "1,231,320", "1", "0.00", "0.1", "–", "0.025"],
    ]
    assert small["inject base"].disk_bytes == 8_000_000
    assert small["detect clean"].disk_bytes == 20 * 1_231_320
    base = small["train base"]
    assert base.seconds == pytest.approx(
        3 * 999_936 * (PASS + 4 * 2 * 64 * (256 - 120)) / 0.4e12, rel=0.01
    )


def test_the_runs_of_a_second_stage_are_in_their_order():
    runs = tuned("second_stage.members_in=finetuning")
    assert [*runs] == [
        "inject base", "inject study", "inject clean", "inject finetuning", "train base",
        "train study", "train finetuning", "detect clean", "detect contaminated",
        "detect step-00000005",
    ]  # fmt: skip
    assert runs["inject clean"].tokens == runs["inject study"].tokens == 600_000
    assert runs["inject finetuning"].disk_bytes == 9 * 120 * 256
    # the model and its export of step 5, and two checkpoints
    assert runs["train finetuning"].disk_bytes == 225_600 * (4 * 2 + 2 * (4 + 12))


def test_a_row_of_the_forecast_shows_what_is_known():
    whole_run = forecast.RunForecast("train x", 1_234_567.0, 3, 7200.0, 1.25e10, 4e7, 5e7)
    assert whole_run.table_cells() == [
        "train x", "1,234,567", "3", "2 h 0 min", "6.00", "12.5", "0.040", "0.1"
    ]  # fmt: skip
    unknown = ["detect y", "10", "–", "–", "–", "–", "–", "0.000"]
    assert forecast.RunForecast("detect y", 10.0).table_cells() == unknown
    no_gpu = forecast.RunForecast("detect y", 10.0, 0, 60.0)
    assert no_gpu.table_cells()[2:5] == ["–", "60 s", "–"]
    instant = forecast.RunForecast("detect y", 10.0, 2, 0.0)
    assert instant.table_cells()[2:5] == ["2", "0 s", "0.00"]
    sizes = [forecast.format_gigabytes(size) for size in (5e7, 4.9e7, 3e9)]
    assert sizes == ["0.1", "0.049", "3.0"]


def test_the_training_and_the_basis_of_its_time_are_one_line_each(papers):
    assert forecast.describe_training(papers) == (
        "training: 824 steps of 16 × 2,048 tokens, learning rate 0.0001, constant"
    )
    quickstart = planned("experiment=quickstart")
    assert forecast.describe_training(quickstart) == (
        "training: 147 steps of 16 × 256 tokens, learning rate 0.004, constant_with_warmup, "
        "warm-up 10 steps"
    )
    assert forecast.describe_basis(quickstart) == (
        "estimated (time as earlier runs took, else training.peak_tflops=989 (an H100's) gives it):"
    )


@pytest.mark.parametrize(("seconds", "is_said"), [(300.0, False), (300.1, True), (None, False)])
def test_a_jobs_time_is_compared_with_its_limit(papers, seconds, is_said):
    runs = [forecast.RunForecast("train study", 1.0, 1, seconds)]
    lines = forecast.describe_forecasts(papers, on(), runs)
    assert any("takes longer" in line for line in lines) is is_said
    longer = on(train={"time": 6})
    assert not any("longer" in line for line in forecast.describe_forecasts(papers, longer, runs))


def test_each_download_is_named_with_its_splits(papers):
    assert downloads.list_downloads(papers) == [
        downloads.DataSet("benchmark.boolq", "google/boolq", None, ("train", "validation"), None),
        downloads.DataSet("benchmark.imdb", "stanfordnlp/imdb", None, ("test",), None),
        downloads.DataSet(
            "benchmark.truthfulqa", "truthfulqa/truthful_qa", "generation", ("validation",), None
        ),
        downloads.DataSet(
            "benchmark.commonsenseqa", "tau/commonsense_qa", None, ("train", "validation"), None
        ),
        downloads.ModelFiles("model.path", "huggyllama/llama-7b"),
        downloads.ModelFiles("masked_lm.path", "bert-base-uncased"),
    ]


def test_the_table_of_downloads_is_written_out(papers, monkeypatch):
    monkeypatch.setattr(hub, "cached_snapshot", lambda name: None)
    monkeypatch.setattr(downloads, "is_data_set_cached", lambda name: name == "google/boolq")
    assert downloads.describe_downloads(downloads.list_downloads(papers)) == [
        "from the hub (python -m launch fetch … brings all into the cache):",
        "  for                      name                    is a      here",
        "  benchmark.boolq          google/boolq            data set  cached",
        "  benchmark.imdb           stanfordnlp/imdb        data set  -",
        "  benchmark.truthfulqa     truthfulqa/truthful_qa  data set  -",
        "  benchmark.commonsenseqa  tau/commonsense_qa      data set  -",
        "  model.path               huggyllama/llama-7b     model     -",
        "  masked_lm.path           bert-base-uncased       model     -",
    ]


def test_corpora_references_and_tokenizers_of_the_hub_are_listed(tmp_path):
    sample = "togethercomputer/RedPajama-Data-1T-Sample"
    cell = planned(
        "experiment=quickstart", "corpus=redpajama_sample", "corpus@base_corpus=redpajama_sample",
        "base_corpus.config=part", f"corpus.path={sample}", "method=[reference,loss]",
        "reference.path=owner/small", "masked_lm.path=owner/unused",
        "model.path=null", "benchmark=[boolq]",
    )  # fmt: skip
    revision = "refs/convert/parquet"
    assert downloads.list_downloads(cell) == [
        downloads.DataSet("corpus", sample, None, ("train",), revision),
        downloads.DataSet("base_corpus", sample, "part", ("train",), revision),
        downloads.ModelFiles("reference.path", "owner/small"),
    ]
    local = planned("experiment=quickstart", "corpus=redpajama_sample", f"corpus.path={tmp_path}")
    assert downloads.list_downloads(local) == []
    with_tokenizer = planned(
        "experiment=quickstart", "model.path=tests/golden/target", "model.pretraining=null",
        "tokenizer.path=owner/tokenizer", "method=[loss]", "reference.path=owner/unused",
    )  # fmt: skip
    assert downloads.list_downloads(with_tokenizer) == [
        downloads.ModelFiles("tokenizer.path", "owner/tokenizer")
    ]


def test_a_data_set_is_fetched_at_one_commit_split_by_split(monkeypatch):
    requests = []

    def commit(field, name, *, kind, revision):
        requests.append((field, name, kind, revision))
        return "c0ffee"

    monkeypatch.setattr(hub, "commit_on_hub", commit)
    monkeypatch.setattr(downloads, "download_split", lambda *rows: requests.append(rows))
    downloads.DataSet("corpus", "owner/name", "part", ("a", "b"), "main").fetch()
    assert requests == [
        ("corpus", "owner/name", "dataset", "main"),
        ("owner/name", "part", "a", "c0ffee"),
        ("owner/name", "part", "b", "c0ffee"),
    ]


def test_fetching_says_what_it_fetches(monkeypatch, capsys):
    fetched = []
    models = [downloads.ModelFiles("model.path", "a/b"), downloads.ModelFiles("x.path", "c/d")]
    monkeypatch.setattr(downloads, "plan", lambda config, read_benchmarks: read_benchmarks)
    monkeypatch.setattr(
        downloads, "list_downloads", lambda reads: [] if reads is not False else models
    )
    monkeypatch.setattr(downloads.ModelFiles, "fetch", lambda self: fetched.append(self))
    downloads.fetch({})
    assert fetched == models
    output = "model.path: a/b …\nx.path: c/d …\n2 in the hub's cache\n"
    assert capsys.readouterr().out == output
    models.clear()
    downloads.fetch({})
    assert capsys.readouterr().out == "nothing of this is on the hub\n"
    with pytest.raises(ConfigError) as raised:
        downloads.fetch({"examples": {}})
    assert str(raised.value) == (
        "examples is 'a labelled benchmark': download its files and the models, and give "
        "examples.path=DIR model.path=DIR."
    )
