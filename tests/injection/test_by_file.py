"""Tasks and parts: the same bytes as one reader and one file, at any number of workers."""

import json
import re
import subprocess
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from contamination.core import task_runner as tasks_module
from contamination.core.cli import compose_stage
from contamination.core.config import CONF
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.core.task_runner import StoredTask, TaskRunner, TasksConfig
from contamination.data.readers.files import FilesCorpus
from contamination.injection import packing, tokenization
from contamination.injection.config import InjectionStage
from contamination.injection.corpus import open_corpus
from contamination.injection.run import TOKENS_FOLDER, prove_finished_corpus, run
from contamination.injection.token_stream import Tokenizer, TokenShard, TokenStream, read_ids
from contamination.injection.tokenize_by_file import FileTokenizationTask, tokenize_files
from contamination.launch.plan import plan
from tests.injection.by_file import WEIGHTS, made_stage, write_files

TASKS = TasksConfig(kind="datatrove", workers=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def here(monkeypatch):
    """Pieces are finished in this process, the last first; gives those of each run."""
    ran = []

    def run_pieces(stored, pieces, cluster):
        ran.append((stored.folder.name, pieces))
        return [stored.finish(piece) for piece in reversed(range(pieces))][::-1]

    monkeypatch.setattr(tasks_module, "run_on_datatrove", run_pieces)
    return ran


MIXED = {"subset": "source", "weights": WEIGHTS}
CASES = {
    "in order": ({}, {}),
    "in order, a share": ({}, {"part": "study", "boundary": "document", "split_copies": True}),
    "by folder": ({"weights": WEIGHTS}, {"decontamination": "drop"}),
    "by folder, a share": ({"weights": WEIGHTS}, {"part": "study", "budget_tokens": 3_000}),
    "by field": (MIXED, {"boundary": "document", "split_copies": True}),
    "by field, a share": (MIXED, {"part": "study", "decontamination": "drop"}),
    "used up": ({"weights": {"a": 1, "c": 9}}, {}),
    "all but a few": ({}, {"budget_tokens": 7_900, "boundary": "sentence"}),
}


@pytest.mark.parametrize("case", CASES)
def test_tasks_make_the_same_bytes_as_one_reader(files, tmp_path, here, monkeypatch, case):
    monkeypatch.setattr(packing, "PART_TOKENS", 1_000)
    corpus, fields = CASES[case]
    plain = run(made_stage(files, tmp_path / "plain", corpus, shard_characters=700, **fields))
    tasks = made_stage(files, tmp_path / "tasks", corpus, shard_characters=1_500, **fields)
    made = run(replace(tasks, cluster=TASKS))
    assert made.path.name == plain.path.name
    assert made.files == plain.files
    assert made.counts == plain.counts
    assert made.counts["skipped"]
    assert made.counts["matching_documents"] > 0
    assert (
        len(open_corpus(made.path).part_paths) == -(-made.counts["sequences"] // (1_000 // 64)) > 2
    )


def test_subsets_that_are_equally_far_behind_go_by_name(tmp_path, here):
    for name in ("a/0", "b/0", "b/1", "c/0"):
        path = write_files(tmp_path) / "files" / f"{name}.jsonl"
        rows = (f'{{"text": "{name} has number {n} of some"}}\n' for n in range(10, 40))
        path.write_text("".join(rows))
    weights = {"c": 1, "b": 1, "a": 1}
    fields = {"budget_tokens": 1_500, "members": 2, "nonmembers": 2}
    plain = run(made_stage(tmp_path, tmp_path / "plain", {"weights": weights}, **fields))
    tasks = made_stage(tmp_path, tmp_path / "tasks", {"weights": weights}, **fields)
    assert run(replace(tasks, cluster=TASKS)).files == plain.files


def test_each_document_of_several_files_starts_once(tmp_path):
    tokenizer = Tokenizer("tests/golden/target")
    texts = [f"{name} has number {n} of some" for name in "abc" for n in range(3)]
    for n, name in enumerate("abc"):
        rows = [json.dumps({"text": text}) + "\n" for text in texts[3 * n : 3 * n + 3]]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    lengths = [len(ids) for ids in tokenizer.encode_documents(texts)]
    settings = tokenization.TokenizationSettings(
        tmp_path / "tokens" / "files", Path("tests/golden/target")
    )
    source = FilesCorpus(name="files", paths=str(tmp_path))
    task = FileTokenizationTask(settings, source, (0.0, 1.0), sum(lengths), 100)
    stream = tokenize_files(task, TaskRunner(tmp_path / "tasks")).stream
    starts = [sum(lengths[:n]) for n in range(len(texts))]
    assert stream.document_starts.tolist() == starts


@pytest.mark.slow
def test_processes_make_the_same_bytes(files, tmp_path, monkeypatch):
    def run_pieces(stored, pieces, cluster):
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            return list(pool.map(stored.finish, range(pieces)))

    monkeypatch.setattr(tasks_module, "run_on_datatrove", run_pieces)
    stage = made_stage(files, tmp_path / "plain", {"weights": WEIGHTS})
    plain = run(stage)
    made = run(replace(stage, runs=str(tmp_path / "tasks"), cluster=TASKS))
    assert (made.files, made.counts) == (plain.files, plain.counts)


def test_a_killed_run_goes_on_with_what_is_finished(files, tmp_path, here, monkeypatch):
    stage = replace(made_stage(files, tmp_path / "killed", {"weights": WEIGHTS}), cluster=TASKS)
    whole = run(replace(stage, runs=str(tmp_path / "whole")))
    made, write = [], tokenization.write_shard

    def written(work, files, *rest):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(files[0].name)
        return write(work, files, *rest)

    monkeypatch.setattr(tokenization, "write_shard", written)
    with pytest.raises(KeyboardInterrupt):
        run(stage)
    monkeypatch.setattr(
        tokenization, "write_shard", lambda *a: made.append(a[1][0].name) or write(*a)
    )
    assert run(stage).files == whole.files
    assert len(made) == len({*made})  # none was made twice


@pytest.mark.parametrize("sizes", [(700, 1_500), (1_500, 700)])
def test_a_killed_run_goes_on_with_shards_of_another_size(files, tmp_path, monkeypatch, sizes):
    """Those that are finished hold other documents; the folder's name is the same."""
    killed = made_stage(files, tmp_path / "killed", shard_characters=sizes[0])
    other = made_stage(files, tmp_path / "killed", shard_characters=sizes[1])
    whole = run(replace(other, runs=str(tmp_path / "whole")))
    write, left = tokenization.write_shard, iter([True, True, False])

    def written(*given):
        if not next(left):
            raise KeyboardInterrupt
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(tokenization, "write_shard", written)
        with pytest.raises(KeyboardInterrupt):
            run(killed)
    made = run(other)
    assert (made.path.name, made.files) == (whole.path.name, whole.files)


DAMAGES = {
    "tokens/searched-files/00000.ids": lambda whole: whole[:400] + bytes(4) + whole[404:],
    "tokens/searched-files/00001.ids": lambda whole: b"",
    "sequences/part-00000.arrow": lambda whole: whole[:-100] + bytes(100),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_was_damaged_meanwhile_is_made_again(files, tmp_path, monkeypatch, name):
    monkeypatch.setattr(tasks_module, "_import_optional", lambda *a: SimpleNamespace(disable=list))
    monkeypatch.setattr(
        tasks_module, "_run_on_local_processes", lambda s, _, left, *a: [*map(s.finish, left)]
    )
    stage = replace(made_stage(files, tmp_path / "runs"), cluster=TASKS)
    whole = run(replace(stage, runs=str(tmp_path / "whole")))
    step = "PackingTask" if name.startswith(TOKENS_FOLDER) else "prove_parts"
    with monkeypatch.context() as patch:
        patch.setattr(packing, step, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(stage)
    (path,) = tmp_path.glob(f"runs/corpus/*/{name}")
    path.write_bytes(DAMAGES[name](path.read_bytes()))
    read_ids.cache_clear()
    assert run(stage).files == whole.files


def test_a_shard_that_is_too_short_is_said(tmp_path):
    np.arange(8, dtype=np.int32).tofile(tmp_path / "00000.ids")
    stream = TokenStream([TokenShard(tmp_path, 0, 0, 8)], 8)
    assert stream.read(2, 99).tolist() == [*range(2, 8)]
    with pytest.raises(ArtifactError, match="shard 0 lacks some of its 9 tokens"):
        TokenStream([TokenShard(tmp_path, 0, 0, 9)], 9).read(2, 9)


@pytest.mark.parametrize("weights", [None, {"a": 1, "c": 1}])
def test_bad_input_stops_only_where_the_budget_reaches_it(tmp_path, here, weights):
    folder, size = write_files(tmp_path), {"budget_tokens": 2_000, "members": 2, "nonmembers": 2}
    for path in folder.glob("files/*/*.jsonl"):
        lines = [line for line in path.read_text().splitlines(True) if line != "no JSON\n"]
        path.write_text("".join(lines))
    last = folder / "files/a/2.jsonl"
    last.write_text(last.read_text() + "no JSON\n")
    corpus = {"on_error": "stop", "weights": weights}
    enough = replace(made_stage(folder, tmp_path / "runs", corpus, **size), cluster=TASKS)
    assert run(enough).counts["tokens"] == 1_984
    more = made_stage(folder, tmp_path / "runs", corpus, budget_tokens=12_000)
    said = []
    for stage in (more, replace(more, cluster=TASKS)):
        with pytest.raises(DataError, match="row .*: line is not JSON") as error:
            run(stage)
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("weights", [None, {"a": 1, "c": 1}])
def test_a_budget_that_the_files_do_not_fill_is_said(files, tmp_path, here, weights):
    stage = made_stage(files, tmp_path, {"weights": weights}, budget_tokens=40_000)
    said = []
    for own in (stage, replace(stage, cluster=TASKS)):
        with pytest.raises(ConfigError, match="the corpus has .* in this part") as error:
            run(own)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_small_budget_reads_few_files(files, tmp_path, here):
    stage = made_stage(files, tmp_path, budget_tokens=640, members=1, nonmembers=1)
    run(replace(stage, cluster=TASKS))
    assert here == [("tokenise-0", 1), ("pack", 2), ("verify", 1)]


def test_a_corpus_of_one_stream_has_one_reader(corpus, stage, tmp_path, here, caplog):
    made = run(replace(stage, runs=str(tmp_path), cluster=TASKS))
    assert made.files == corpus.artifact.files
    assert [kind for kind, _ in here] == ["pack", "verify"]


@pytest.mark.parametrize("tokens", [64, 200, 1_000])
def test_parts_hold_what_one_file_holds(files, tmp_path, here, monkeypatch, tokens):
    fields = {"split_copies": True, "boundary": "token", "budget_tokens": 3_000}
    one = open_corpus(run(made_stage(files, tmp_path / "one", **fields)).path)
    monkeypatch.setattr(packing, "PART_TOKENS", tokens)
    many = open_corpus(run(made_stage(files, tmp_path / "many", **fields)).path)
    assert one.ledger["truncated"].any()  # a copy stands in two parts
    assert len(many.part_paths) == -(-one.artifact.counts["sequences"] // (tokens // 64))
    ids = [np.array(c.sequences["input_ids"]) for c in (one, many)]
    assert np.array_equal(*ids)
    assert many.artifact.counts == one.artifact.counts
    assert not prove_finished_corpus(many.artifact.path).failures
    assert str(prove_finished_corpus(many.artifact.path, TASKS)) == str(
        prove_finished_corpus(one.artifact.path)
    )


def test_what_ends_without_a_result_is_started_again(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(StoredTask, "result", lambda _, piece: {} if len(started) > piece else None)
    monkeypatch.setattr(tasks_module, "_run_on_local_processes", lambda *a: started.append(a[2]))
    monkeypatch.setattr(tasks_module, "_import_optional", lambda *a: SimpleNamespace(disable=list))
    stored = StoredTask(tmp_path / "pack")
    tasks_module.run_on_datatrove(stored, 3, TASKS)
    assert started == [[0, 1, 2], [1, 2], [2]]
    started.clear()
    with pytest.raises(DataError, match=r"pack: 2 of 4 tasks ended .*task_00002.log"):
        tasks_module.run_on_datatrove(stored, 4, replace(TASKS, retries=1))


def test_without_datatrove_the_extra_is_named(files, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datatrove", None)
    stage = replace(made_stage(files, tmp_path), cluster=TASKS)
    with pytest.raises(ConfigError, match=r"cluster=datatrove needs datatrove.*\[datatrove\]"):
        run(stage)


def test_slurm_needs_a_partition():
    with pytest.raises(ConfigError, match="cluster.partition is None: give the partition"):
        replace(TASKS, executor="slurm")


@pytest.mark.parametrize("name", ["injection", "pipeline"])
def test_the_cluster_reaches_the_injection(name):
    def cluster(*words):
        if name == "injection":
            return compose_stage(name, words, InjectionStage).cluster
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose(name, ["experiment=quickstart", *words])
        return plan(config, read_benchmarks=False).injection.cluster

    assert cluster() == cluster("cluster=local") == TasksConfig()
    assert cluster("cluster=datatrove", "cluster.workers=7") == replace(TASKS, workers=7)
    with pytest.raises(ConfigError, match="cluster.partition is None"):
        cluster("cluster=datatrove", "cluster.executor=slurm")


@pytest.fixture
def slurm(monkeypatch):
    """SLURM's executor, whose jobs do nothing; gives their names."""
    names = []

    class Executor:
        disable = staticmethod(str)

        def __init__(self, *args, job_name, **words):
            names.append(job_name)

        def run(self):
            pass

    monkeypatch.setattr(tasks_module, "_import_optional", lambda *a: Executor)
    monkeypatch.setattr(tasks_module.shutil, "which", str)
    monkeypatch.setattr(tasks_module.subprocess, "run", lambda *a, **k: None)
    return names, Executor


def test_verifications_have_jobs_and_logs_of_their_own(files, tmp_path, slurm):
    made, folders = run(made_stage(files, tmp_path)), []
    for _ in range(2):
        with pytest.raises(DataError, match="verify: 1 of 1 tasks") as error:
            prove_finished_corpus(
                made.path, replace(TASKS, executor="slurm", partition="p", retries=0)
            )
        folders.append(Path(re.findall(r"see (.*)/logs/", str(error.value))[0]))
    assert len({*slurm[0]}) == len({*folders}) == 2
    assert all(folder.is_dir() for folder in folders)


def test_a_refusal_by_sbatch_is_one_sentence(tmp_path, slurm):
    error = subprocess.CalledProcessError(1, ["sbatch", "/tmp/x"], b"")
    slurm[1].run = lambda _: (_ for _ in ()).throw(error)
    stored = StoredTask(tmp_path / "a/tokens/tasks/pack")
    with pytest.raises(ConfigError, match=r"failed with status 1; [^\[]*$"):
        tasks_module.run_on_datatrove(stored, 1, replace(TASKS, executor="slurm", partition="p"))
