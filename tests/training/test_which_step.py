"""Which step saw a copy, by a training's record and by stated orders, against a walk through."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.core.cli import compose_stage
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.injection.config import ExportStage
from contamination.injection.export.run import export_corpus
from contamination.training.config import WhichStepStage
from contamination.training.data import SequenceOrder, make_exposure_table
from contamination.training.which_step import format_step_table
from tests.injection.export.conftest import WIDTH, node, toy_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("runs"))


def table(**words):
    head, *rows = format_step_table(WhichStepStage(**words)).splitlines()
    rows = [row for row in rows if "not full" not in row]
    return [dict(zip(head.split(), row.split(), strict=True)) for row in rows]


def walked(order, batch, corpus, example):
    """(copy, sequence, step, tokens seen) by going through the batches one by one."""
    found, seen = [], 0
    for step in range(-(-len(order) // batch)):
        own = order[step * batch : (step + 1) * batch]
        seen += len(own) * WIDTH
        rows = corpus.ledger[corpus.ledger["example_id"] == example]
        found += [(str(r.copy), str(r.sequence), str(step + 1), str(seen))
                  for n in own for r in rows.itertuples() if r.sequence == n]  # fmt: skip
    return sorted(found)


def told(rows):
    return sorted((r["copy"], r["sequence"], r["step"], r["tokens_seen"]) for r in rows)


def test_a_stated_order_is_walked(corpus, tmp_path):
    count = len(corpus.sequences)
    place, orders = str(corpus.artifact.path), {"corpus": np.arange(count)}
    drawn = np.random.default_rng(0).permutation(count)
    orders["twice.npy"] = np.concatenate([drawn, drawn[::-1][: count // 2]]).astype(np.uint32)
    orders["part.txt"] = drawn[:-3]
    np.save(tmp_path / "twice.npy", orders["twice.npy"])
    np.savetxt(tmp_path / "part.txt", orders["part.txt"], fmt="%d")
    for name, order in orders.items():
        path = name if name == "corpus" else str(tmp_path / name)
        for example in "ab":
            rows = table(corpus_folder=place, order=path, batch=4, example_id=example)
            assert told(rows) == walked(order, 4, corpus, example)
            assert [int(r["step"]) for r in rows] == sorted(int(r["step"]) for r in rows)
    made = export_corpus(ExportStage(str(tmp_path), place, format=node("olmo")))
    rows = table(corpus_folder=str(made.path), batch=4, example_id="b")
    assert told(rows) == walked(orders["corpus"], 4, corpus, "b")


def test_a_last_batch_that_is_not_full_is_said(corpus, tmp_path):
    own = {*corpus.ledger.query("example_id == 'b'")["sequence"]}
    other, last = min({*range(len(corpus.sequences))} - own), max(own)
    place = {"corpus_folder": str(corpus.artifact.path), "order": str(tmp_path / "order.txt")}
    asked = WhichStepStage(**place, batch=2, example_id="b")
    orders = {(other, other, last): True, (last, other, other): False, (other, last): False}
    for order, note in orders.items():
        np.savetxt(tmp_path / "order.txt", order, fmt="%d")
        assert ("step 2: its batch is not full" in format_step_table(asked)) == note


def test_batches_that_begin_anew_with_each_epoch_are_filled_up(corpus, tmp_path):
    """Stated as the training here goes, the order gives the training's own record."""
    order = SequenceOrder(len(corpus.sequences), 7, seed=3, epochs=3)
    assert order.sequences % 7
    np.save(tmp_path / "order.npy", np.concatenate([*map(order.rows_of_step, range(order.steps))]))
    place = {"corpus_folder": str(corpus.artifact.path), "order": str(tmp_path / "order.npy")}
    rows = table(**place, batch=7, example_id="a")
    record = make_exposure_table(corpus.ledger, order).query("example_id == 'a'")
    seen = [str(order.count_sequences_seen(step) * WIDTH) for step in record["step"]]
    known = [record[name].astype(str) for name in ("copy", "sequence", "step")]
    assert told(rows) == sorted(zip(*known, seen, strict=True))


@dataclass(frozen=True)
class ModelConfig:
    corpus_folder: str = ""
    training: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def model(corpus, tmp_path):
    """A training of 4 sequences a step in a drawn order, its model kept at steps 2 and 3."""
    order = SequenceOrder(len(corpus.sequences), 4, seed=3)

    def make(folder):
        make_exposure_table(corpus.ledger, order).to_parquet(
            folder / "exposures.parquet", index=False
        )
        seen = [min(4 * (n + 1), order.sequences) * WIDTH for n in range(order.steps)]
        lines = [json.dumps({"step": n + 1, "tokens": t}) for n, t in enumerate(seen)]
        (folder / "metrics.jsonl").write_text("\n".join(lines))
        names = [f"exports/step-{n:06d}/x" for n in (2, 3)]
        for name in names:
            (folder / name).parent.mkdir(parents=True)
            (folder / name).touch()
        counts = {"steps": order.steps}
        return WrittenFiles(["exposures.parquet", *names], counts, ["metrics.jsonl"])

    config = ModelConfig(str(corpus.artifact.path))
    return build_or_open(tmp_path / "model" / "toy-0", config, {}, make).path, order


def test_a_trainings_own_record_is_told_with_the_models_around_it(corpus, model):
    folder, order = model
    flat = np.concatenate([order.rows_of_step(step) for step in range(order.steps)])[
        : order.sequences
    ]
    rows = [*table(model_folder=str(folder), example_id="a")]
    rows += table(model_folder=str(folder), text="grün")
    assert told(rows) == sorted(walked(flat, 4, corpus, "a") + walked(flat, 4, corpus, "b"))
    kept = {0: "(start)", 2: "exports/step-000002", 3: "exports/step-000003", order.steps: "hf"}
    for row in rows:
        step = int(row["step"])
        assert row["model_before"] == kept[max(n for n in kept if n < step)]
        assert row["model_after"] == kept[min(n for n in kept if n >= step)]
    assert len({row["model_after"] for row in rows}) > 1


def test_the_table_has_a_row_per_position_by_step(corpus, tmp_path):
    place = str(corpus.artifact.path)
    table = """\
example_id  copy  sequence  token_start  token_end  step  tokens_seen
a              0         1            8         16     1           64
a              0         2            0          8     1           64
b              0         9            9         16     3          192
b              0        10            0         16     3          192
b              0        11            0         16     3          192
b              0        12            0          5     4          256
a              1        16            6         16     5          320
a              1        17            0          6     5          320
c: no step saw a copy"""
    assert format_step_table(WhichStepStage(corpus_folder=place, batch=4, text="e")) == table
    assert "e" in "".join(corpus.examples["text"])
    np.savetxt(tmp_path / "order.txt", [9, -1, 1, 0, 9], fmt="%d")
    settings = {"corpus_folder": place, "order": str(tmp_path / "order.txt"), "batch": 2}
    assert format_step_table(WhichStepStage(**settings, text="e")).splitlines()[1:] == [
        "b              0         9            9         16     1           16",
        "a              0         1            8         16     2           48",
        "b              0         9            9         16     3           64",
        "c: no step saw a copy",
        "step 3: its batch is not full. Megatron's sampler and DataLoader(drop_last=True) leave "
        "such a batch out: there it saw nothing.",
    ]
    assert len(format_step_table(WhichStepStage(**settings, example_id="a")).splitlines()) == 2


def test_the_record_of_a_training_has_no_batch_that_is_not_full(model):
    folder, _ = model
    table = format_step_table(WhichStepStage(model_folder=str(folder), text="e"))
    assert "not full" not in table
    assert "1" in {line.split()[5] for line in table.splitlines()[1:-1]}


def test_a_text_that_no_step_saw_is_said(corpus, model):
    place = str(corpus.artifact.path)
    said = format_step_table(WhichStepStage(corpus_folder=place, batch=4, text="never"))
    assert said.splitlines()[1:] == ["c: no step saw a copy"]
    said = format_step_table(WhichStepStage(model_folder=str(model[0]), example_id="c"))
    assert said.splitlines()[1:] == ["c: no step saw a copy"]


def test_the_commands_words_are_the_questions_fields():
    words = ["corpus_folder=c", "order=order.npy", "batch=2", 'text="is it, or (not)?"']
    asked = WhichStepStage(text="is it, or (not)?", corpus_folder="c", order="order.npy", batch=2)
    assert compose_stage("which_step", words, WhichStepStage) == asked


def test_odd_questions_are_refused(corpus, tmp_path):
    place = {"corpus_folder": str(corpus.artifact.path), "batch": 4}
    for words in ({}, {"example_id": "a", "text": "x"}):
        with pytest.raises(ConfigError, match="example_id is .* give either"):
            WhichStepStage(**place, **words)
    with pytest.raises(ConfigError, match="model_folder is None"):
        WhichStepStage(corpus_folder="x", example_id="a")
    for words in ({"batch": 7}, {"order": "order.npy"}):
        with pytest.raises(ConfigError, match=f"{[*words][0]} is .* a model has its own record"):
            WhichStepStage(model_folder="x", example_id="a", **words)
    with pytest.raises(ConfigError, match="batch is 0"):
        WhichStepStage(corpus_folder="x", batch=0, example_id="a")
    for words, said in (({"example_id": "z"}, "Known: a, b, c"), ({"text": "z?"}, "no example")):
        with pytest.raises(DataError, match=said):
            format_step_table(WhichStepStage(**place, **words))
    for text, words in (("0\n99", "of the .* sequences"), ("1.5", "order is"), ("", "order is"),
                        ("9" * 23, "order is")):  # fmt: skip
        (tmp_path / "order.txt").write_text(text)
        with pytest.raises((DataError, ConfigError), match=words):
            format_step_table(
                WhichStepStage(**place, order=str(tmp_path / "order.txt"), example_id="a")
            )
    count = len(corpus.sequences)
    np.save(tmp_path / "flat.npy", np.zeros((1, 4), np.int64))
    np.save(tmp_path / "float.npy", np.zeros(4))
    (tmp_path / "count.txt").write_text(f"0 {count}")
    (tmp_path / "below.txt").write_text("0 -2")
    for name in ("flat.npy", "float.npy", "count.txt", "below.txt"):
        order = str(tmp_path / name)
        with pytest.raises(ConfigError) as error:
            format_step_table(WhichStepStage(**place, order=order, example_id="a"))
        assert str(error.value) == (
            f"order is {order!r}: its numbers must be of the {count} sequences, from 0; -1 stands "
            "for none."
        )
    with (tmp_path / "archive.npy").open("wb") as stream:
        np.savez(stream, order=np.arange(3))
    with pytest.raises(DataError, match="order is .*archive.npy"):
        format_step_table(
            WhichStepStage(**place, order=str(tmp_path / "archive.npy"), example_id="a")
        )
    (tmp_path / "config.json").touch()
    with pytest.raises(ConfigError, match="model_folder is .* a model does not record when"):
        format_step_table(WhichStepStage(model_folder=str(tmp_path), example_id="a"))
    made = export_corpus(ExportStage(str(tmp_path), place["corpus_folder"], format=node("text")))
    with pytest.raises(ConfigError, match="give an export of tokens"):
        format_step_table(WhichStepStage(corpus_folder=str(made.path), batch=4, example_id="a"))
    with pytest.raises(ArtifactError, match="does not exist"):
        format_step_table(WhichStepStage(corpus_folder="none", batch=4, example_id="a"))
