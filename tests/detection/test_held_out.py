"""ReCaLL behind a corpus's held-out texts, and behind a file's texts of each benchmark."""

import hashlib
import json
from dataclasses import replace

import pandas as pd
import pytest

from contamination.core.artifacts import WrittenFiles, started_or_resumed_folder, write_manifest
from contamination.core.errors import ConfigError
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.examples import open_examples
from contamination.detection.methods.recall import Recall
from contamination.detection.pass_collector import Collector
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.view_resources import Resources, held_out_prefix, open_prefix
from tests.detection.conftest import MEMORISED, UNSEEN

EXAMPLES = [("a", "tea", MEMORISED, True), ("b", "tea", "Short words here.", False),
            ("c", "sea", UNSEEN, False)]  # fmt: skip
HELD_OUT = [("tea", "A pot of tea."), ("tea", "Green leaves."), ("sea", "A blue sail.")]
RECALL = {"recall": {"_target_": "contamination.detection.methods.recall.Recall", "shots": 2}}


def make_corpus(folder, held_out=HELD_OUT, members=(True, False, False)):
    folder.mkdir(parents=True)
    rows = [
        {"example_id": i, "benchmark": b, "text": t, "member": m, "occurrences": int(m)}
        for (i, b, t, _), m in zip(EXAMPLES, members, strict=True)
    ]
    kept = [{"example_id": str(n), "benchmark": b, "text": t} for n, (b, t) in enumerate(held_out)]
    columns = ["example_id", "benchmark", "text"]
    pd.DataFrame(rows).to_parquet(folder / "examples.parquet")
    pd.DataFrame(kept, columns=columns).to_parquet(folder / "held_out.parquet")
    with started_or_resumed_folder(folder, {}):
        write_manifest(folder, {}, WrittenFiles(["examples.parquet", "held_out.parquet"]))
    return folder


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path / "corpus" / "one")


@pytest.fixture
def stage(tmp_path, toy_folders):
    return lambda corpus: DetectionStage(
        runs=str(tmp_path / "runs"),
        examples=ExamplesConfig(str(corpus)),
        model=ScoredModelConfig(str(toy_folders["target"])),
        method=RECALL,
        detection=DetectionConfig(device="cpu"),
    )


def test_each_text_stands_behind_the_texts_of_its_own_benchmark(stage, corpus, collect, tmp_path):
    table = open_scores(run(stage(corpus)).path).table.set_index("example_id")["score"]
    for number, (benchmark, names) in enumerate({"tea": "ab", "sea": "c"}.items()):
        path = tmp_path / f"{benchmark}.txt"
        own = [text for its, text in HELD_OUT if its == benchmark]
        path.write_text("".join(f"{text}\n" for text in own))
        alone = replace(
            stage(corpus),
            prefix=replace(stage(corpus).prefix, path=str(path)),
            method={"recall": {**RECALL["recall"], "shots": 2 - number}},
        )
        expected = open_scores(run(alone).path).table.set_index("example_id")["score"]
        for name in names:
            assert table[name] == pytest.approx(expected[name], rel=1e-5)


def test_a_benchmark_without_its_own_gets_the_others_by_turns(tmp_path, caplog):
    kept = [*HELD_OUT, ("sea", "A grey wave.")]
    prefix = held_out_prefix(str(make_corpus(tmp_path / "corpus" / "one", kept)))
    assert prefix.shots(2, "tea") == ("A pot of tea.", "Green leaves.")
    assert prefix.shots(3, "sea") == ("A blue sail.", "A grey wave.")
    assert "2 texts of benchmark sea are held out, not 3" in caplog.text
    assert prefix.shots(3, "pea") == ("A blue sail.", "A pot of tea.", "A grey wave.")
    assert "pea has no texts of its own" in caplog.text


def test_corpora_with_one_pool_share_their_scores(stage, corpus, tmp_path):
    first = run(stage(corpus))
    again = make_corpus(tmp_path / "corpus" / "two", members=(False, True, False))
    assert run(stage(again)).path == first.path
    other = make_corpus(tmp_path / "corpus" / "three", [*HELD_OUT, ("sea", "A grey wave.")])
    assert run(stage(other)).path != first.path


def test_a_pass_is_stored_under_the_texts_benchmarks(toy_models, corpus, tmp_path):
    resources = Resources(prefix=held_out_prefix(str(corpus)))
    texts = open_examples(ExamplesConfig(str(corpus)))
    moved = [replace(t, benchmark="sea") for t in texts]
    for stored, each in enumerate([texts, texts[::-1], moved], 1):
        Collector(tmp_path, toy_models, each, DetectionConfig(), resources).collect(
            [Recall(shots=1).prefixed_pass]
        )
        assert len(list((tmp_path / "passes").iterdir())) == (1 if stored < 3 else 2)


def test_without_held_out_texts_recall_still_needs_a_file(stage, tmp_path):
    empty = make_corpus(tmp_path / "corpus" / "none", [])
    assert held_out_prefix(str(empty)) is None
    with pytest.raises(ConfigError, match="recall needs prefix.path.*held-out"):
        run(stage(empty))


def test_a_files_rows_may_name_their_benchmark(tmp_path):
    path = tmp_path / "prefix.jsonl"
    rows = [{"text": text, "benchmark": benchmark} for benchmark, text in HELD_OUT]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prefix = open_prefix(str(path))
    assert prefix.shots(1, "sea") == ("A blue sail.",)
    assert prefix.shots(3) == tuple(text for _, text in HELD_OUT)
    text = make_text("x", "A text.", None, "sea")
    assert prefix.identity([text]) != prefix.identity([replace(text, benchmark="tea")])
    path.write_text("".join(json.dumps({"text": text}) + "\n" for _, text in HELD_OUT))
    plain = open_prefix(str(path))
    assert plain.shots(3, "sea") == prefix.texts
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    assert plain.identity([text]) == plain.identity([]) == content
