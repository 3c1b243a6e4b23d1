"""The layouts of TOFU, MUSE and Hubble, from small files and by what the hub is asked for."""

import pytest
from hydra import compose, initialize_config_dir

from contamination.core.config import CONF, convert_config
from contamination.core.errors import DataError
from contamination.detection.config import DetectionStage
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.injection.finetuning.config import FinetuningStage
from contamination.injection.finetuning.sources import read_instructions
from tests.data.benchmarks import layouts
from tests.data.benchmarks.layouts import SEEN, UNSEEN
from tests.data.benchmarks.test_rows import opened
from tests.detection.golden import GOLDEN


def test_tofus_questions_and_answers_are_texts_with_outputs(tmp_path):
    folder = layouts.tofu(tmp_path)
    texts = opened("tofu", folder)
    assert [t.example_id for t in texts] == [
        f"tofu/10/{side}-{n}" for side in ("member", "non-member") for n in (0, 1)
    ]
    assert texts[0].text == f"Which festival 0? {SEEN}."
    assert texts[0].text[texts[0].output_start :] == f"{SEEN}."
    assert [t.label for t in texts] == [True, True, False, False]
    assert len(opened("tofu", folder, 'examples.setting=["01","05"]')) == 8
    assert len(opened("tofu", folder, "examples.setting=null")) == 12


def test_a_question_without_an_answer_is_said(tmp_path):
    rows = [{"question": "Who?", "text": "A heron."}]
    folder = layouts.write(tmp_path, {"forget10.json": rows, "holdout10.json": rows})
    with pytest.raises(DataError, match="no column 'answer' for the output of tofu"):
        opened("tofu", folder)


def test_tofus_parquet_files_of_the_hub_are_read_too(tmp_path):
    rows = {side: [{"question": "Which?", "answer": text}] for side, text in
            (("forget10", SEEN), ("holdout10", UNSEEN))}  # fmt: skip
    folder = layouts.converted(tmp_path, {f"{n}/train/0000": r for n, r in rows.items()})
    assert [t.text for t in opened("tofu", folder)] == [f"Which? {SEEN}", f"Which? {UNSEEN}"]


@pytest.mark.parametrize("domain", ["news", "books"])
@pytest.mark.parametrize("make", [layouts.muse, layouts.muse_of_the_hub])
def test_muses_sides_of_privleak(tmp_path, domain, make):
    texts = opened("muse", make(tmp_path), f"examples.domain={domain}")
    assert [(t.text, t.label) for t in texts] == [
        (f"{text} {n}.", text == SEEN) for text in (SEEN, UNSEEN) for n in (0, 1)
    ]
    assert texts[0].benchmark == f"muse/{domain}"


def test_muses_published_files_are_scored(tmp_path):
    """MUSE-Books names the texts to retain retain2."""
    folder = layouts.muse_of_the_hub(tmp_path / "books", "retain2")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        words = ["examples=muse", f"examples.path={folder}", "examples.domain=books"]
        paths = [f"model.path={GOLDEN / 'target'}", f"runs={tmp_path / 'runs'}"]
        node = compose("detection", [*words, *paths, "method=[loss]", "detection.device=cpu"])
    table = open_scores(run(convert_config(node, DetectionStage)).path).table
    table = open_scores(run(convert_config(node, DetectionStage)).path).table
    texts = opened("muse", folder, "examples.domain=books")
    assert table["example_id"].tolist() == [text.example_id for text in texts]
    assert [text.label for text in texts] == [True, True, False, False]
    assert table["ranked"].all()


def test_hubbles_splits_say_what_was_inserted(tmp_path):
    folder = layouts.hubble(tmp_path)
    texts = opened("hubble", folder, "examples.domain=[passages_wikipedia,biographies_yago]")
    assert {t.benchmark for t in texts} == {"hubble/passages_wikipedia", "hubble/biographies_yago"}
    assert {(t.text.split(",")[0], t.label) for t in texts} == {(SEEN, True), (UNSEEN, False)}
    assert len(opened("hubble", folder)) == 4


def test_the_hub_is_asked_for_each_layouts_data_sets(monkeypatch):
    asked = []

    def load(path, subset, split, revision, read):
        asked.append((path, subset, split))
        yield from (
            {"question": f"{split} {n}", "answer": "a", "text": f"{path} {split}"} for n in (0, 1)
        )

    monkeypatch.setattr("contamination.data.rows.hub.stream_split", load)
    opened("tofu", "hub", "examples.setting=10")
    opened("muse", "hub", "examples.domain=books")
    opened("hubble", "hub", "examples.domain=testset_winogrande-infill")
    assert asked == [
        ("locuslab/TOFU", "forget10", "train"), ("locuslab/TOFU", "holdout10", "train"),
        ("muse-bench/MUSE-Books", "privleak", "forget"),
        ("muse-bench/MUSE-Books", "privleak", "holdout"),
        ("allegrolab/testset_winogrande-infill", None, "train"),
        ("allegrolab/testset_winogrande-infill", None, "test"),
    ]  # fmt: skip


def test_tofus_questions_are_a_forget_set(tmp_path):
    file = layouts.tofu(tmp_path) / "forget10.json"
    words = [
        "instructions=[tofu]", f"instructions.tofu.rows.path={file}", "runs=x",
        "instructions.tofu.rows._target_=contamination.data.readers.files.FileRows",
        "~instructions.tofu.rows.config", "~instructions.tofu.rows.splits",
    ]  # fmt: skip
    with initialize_config_dir(str(CONF), version_base="1.3"):
        stage = convert_config(compose("finetuning", words), FinetuningStage)
    read = read_instructions("tofu", stage.instructions["tofu"], 0)
    assert {text.text for text in read.texts} == {
        f"Question: Which festival {n}?\nAnswer: {SEEN}." for n in (0, 1)
    }
    assert {text.text[text.output_start :] for text in read.texts} == {f"{SEEN}."}


def test_muses_raw_texts_are_a_corpus():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        node = compose("injection", ["corpus=muse", "corpus.split=retain1"]).corpus
    assert (node.path, node.config, node.split) == ("muse-bench/MUSE-News", "raw", "retain1")
