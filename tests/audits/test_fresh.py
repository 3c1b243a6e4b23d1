"""Questions that cannot leak: held back, generated, or one version of each."""

import json
import re
import sys
from datetime import UTC, date, datetime
from types import SimpleNamespace

import pandas as pd
import pytest

from contamination.audits.__main__ import run_chosen_audit
from contamination.audits.benchmark import fresh_questions as fresh_module
from contamination.audits.benchmark.config import FreshStage
from contamination.audits.benchmark.fresh_questions import make_fresh
from contamination.audits.benchmark.origin import is_drawn
from contamination.core.errors import ConfigError, DataError
from contamination.core.hashing import file_digest
from contamination.data.config import ExamplesConfig
from contamination.detection.examples import open_examples


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "mine.csv"
    rows = [
        {"question": f"What is {i} + {i}?", "passage": i // 2, "answer": 2 * i} for i in range(60)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def drawn(tmp_path, **fields):
    return make_fresh(FreshStage(**{"out": str(tmp_path / "out"), **fields}))


def test_a_part_is_held_back_and_no_row_is_lost(questions, tmp_path):
    folder = drawn(tmp_path, questions=str(questions), share=0.25)
    published, fresh = (pd.read_csv(folder / f"{n}.csv") for n in ("published", "fresh"))
    assert (len(published), len(fresh)) == (45, 15)
    both = pd.concat([published, fresh]).sort_values("answer", ignore_index=True)
    pd.testing.assert_frame_equal(both, pd.read_csv(questions))
    assert json.loads((folder / "drawn.json").read_text())["fresh"] == 15


def test_the_record_says_what_was_drawn_from_what(questions, tmp_path, caplog):
    caplog.set_level("INFO")
    folder = drawn(tmp_path, questions=str(questions), share=0.25, seed=3)
    record = json.loads((folder / "drawn.json").read_text())
    assert re.fullmatch("[0-9a-f]{64}", record.popitem()[1])
    assert record.pop("date")
    assert record == {
        "way": "hold_out", "seed": 3, "seed_drawn": False,
        "questions_sha256": file_digest(questions), "published": 45, "fresh": 15,
        "files": {name: file_digest(folder / name) for name in ("fresh.csv", "published.csv")},
    }  # fmt: skip
    assert "Keep fresh.csv private, and drawn.json, which has the seed." in caplog.text
    make_fresh(FreshStage(out=str(tmp_path / "random"), questions=str(questions)))
    assert "drawn.json, which has the seed, drawn at random." in caplog.text


def test_the_command_has_a_screen_of_its_own(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["audits", "fresh", "--help"])
    assert run_chosen_audit() == 0
    screen = capsys.readouterr().out
    assert "Usage:    contamination audit fresh" in screen
    assert "  share=" in screen
    monkeypatch.setattr(sys, "argv", ["audits", "books", "--help"])
    assert run_chosen_audit() == 0
    assert "Usage:    contamination audit books" in capsys.readouterr().out


def test_the_command_names_the_files_that_it_wrote(questions, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["audits", "fresh", f"questions={questions}", f"out={out}"])
    assert run_chosen_audit() == 0
    files = [out / name for name in ("drawn.json", "fresh.csv", "published.csv")]
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == [f"wrote {path}" for path in files]


def test_the_files_of_a_tsv_are_csv_files(questions, tmp_path):
    path = tmp_path / "mine.tsv"
    pd.read_csv(questions).to_csv(path, sep="\t", index=False)
    folder = drawn(tmp_path, questions=str(path))
    assert {file.name for file in folder.iterdir()} == {"published.csv", "fresh.csv", "drawn.json"}
    assert [*pd.read_csv(folder / "fresh.csv")] == ["question", "passage", "answer"]


@pytest.mark.parametrize(("fields", "is_sure"), [({}, True), ({"seed": 3}, False)])
def test_only_a_seed_drawn_at_random_makes_a_draw(questions, tmp_path, fields, is_sure):
    folder = drawn(tmp_path, questions=str(questions), **fields)
    record = json.loads((folder / "drawn.json").read_text())
    assert record["seed_drawn"] is is_sure
    assert abs(date.fromisoformat(record["date"]) - datetime.now(UTC).date()).days <= 1
    assert is_drawn(folder / "published.csv", folder / "fresh.csv") is is_sure


def test_clusters_stay_on_one_side_and_another_seed_draws_others(questions, tmp_path):
    folder = drawn(tmp_path, questions=str(questions), cluster_column="passage")
    published, fresh = (pd.read_csv(folder / f"{n}.csv") for n in ("published", "fresh"))
    assert not {*published["passage"]} & {*fresh["passage"]}
    other = make_fresh(
        FreshStage(
            out=str(tmp_path / "other"), questions=str(questions), cluster_column="passage", seed=1
        )
    )
    assert {*pd.read_csv(other / "fresh.csv")["passage"]} != {*fresh["passage"]}


def write_rows(tmp_path, rows):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read_sides(folder):
    return [
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("published", "fresh")
    ]


WORDS = [f"word-{letter}" for letter in "abcdefg"]  # 14 words, since a hyphen separates


@pytest.mark.parametrize(
    "texts",
    [
        lambda i: (f"What is {i // 2}?", f"  WHAT is\t{i // 2}? ")[i % 2],
        lambda i: f"{' '.join(f'{word}{i // 2}' for word in WORDS)} and {i}",
    ],
    ids=["equal but for case and white space", "thirteen words in a row"],
)
def test_questions_that_would_leak_together_stay_on_one_side(tmp_path, caplog, texts):
    caplog.set_level("INFO")
    path = write_rows(tmp_path, [{"id": i, "text": texts(i)} for i in range(60)])
    published, fresh = read_sides(drawn(tmp_path, questions=path))
    assert len(published) == len(fresh) == 30
    assert not {row["id"] // 2 for row in published} & {row["id"] // 2 for row in fresh}
    assert len({row["cluster"] for row in published}) == 15
    assert "30 questions are equal, or nearly, to another one" in caplog.text


def test_a_form_that_many_questions_share_joins_none(tmp_path, caplog):
    texts = [f"{' '.join(WORDS)} {i}" if i % 5 < 2 else f"Who is {i}?" for i in range(60)]
    path = write_rows(tmp_path, [{"text": text} for text in texts])
    published, fresh = read_sides(drawn(tmp_path, questions=path))
    assert len(published) == len(fresh) == 30
    assert "24 questions share 13 words in a row with one another" in caplog.text


def test_the_audit_reads_the_clusters(questions, tmp_path):
    folder = drawn(tmp_path, questions=str(questions), cluster_column="passage")
    published = pd.read_csv(folder / "published.csv")
    assert (published["cluster"] == published["passage"]).all()
    texts = open_examples(
        ExamplesConfig(str(folder / "published.csv"), columns={"text": "question"})
    )
    assert {*texts.column("cluster").to_pylist()} == {*map(str, published["passage"])}


def test_a_column_named_cluster_is_used_whatever_its_case(tmp_path):
    rows = [{"Text": f"What is {i}?", "Cluster": f"c{i // 2}", "n": i} for i in range(60)]
    published, fresh = read_sides(drawn(tmp_path, questions=write_rows(tmp_path, rows)))
    assert {*published[0]} == {"Text", "n", "cluster"}
    assert all(row["cluster"] == f"c{row['n'] // 2}" for row in (*published, *fresh))
    assert not {row["cluster"] for row in published} & {row["cluster"] for row in fresh}
    with pytest.raises(DataError) as error:
        make_fresh(FreshStage(out=str(tmp_path / "more"), questions=str(tmp_path / "mine.jsonl"),
                              cluster_column="n"))  # fmt: skip
    assert str(error.value) == (
        "cluster_column is 'n', and questions have a column 'Cluster' as well, which the audit "
        "reads. Leave one of them out."
    )


def test_a_row_without_the_column_is_named(tmp_path):
    rows = [{"text": f"What is {i}?", "topic": i} for i in range(60)]
    del rows[7]["topic"]
    with pytest.raises(DataError) as error:
        drawn(tmp_path, questions=write_rows(tmp_path, rows), cluster_column="topic")
    assert str(error.value) == (
        f"cluster_column is 'topic': {tmp_path / 'mine.jsonl'}, row 8 has no such column; its "
        "columns are text."
    )


def test_equal_questions_are_named_by_the_first_of_them(tmp_path):
    rows = [{"text": f"What is {i // 2}?", "n": i} for i in range(60)]
    rows[0]["text"] = "Who?"
    published, fresh = read_sides(drawn(tmp_path, questions=write_rows(tmp_path, rows)))
    clusters = {row["n"]: row["cluster"] for row in (*published, *fresh)}
    assert clusters == {0: "", 1: ""} | {i: f"like row {i // 2 * 2 + 1}" for i in range(2, 60)}


def test_too_few_of_either_side_are_refused(questions, tmp_path):
    words = "questions are too few, since the audit needs 10 on each side. Give more questions."
    for share, message in ((0.15, f"fresh: 9 {words}"), (0.85, f"published: 9 {words}")):
        with pytest.raises(DataError) as error:
            drawn(tmp_path, questions=str(questions), share=share)
        assert str(error.value) == message
    folder = drawn(tmp_path, questions=str(questions), share=10 / 60)
    assert len(pd.read_csv(folder / "fresh.csv")) == 10


def test_clusters_are_counted_rather_than_rows(tmp_path):
    path = write_rows(tmp_path, [{"text": f"What is {i}?", "c": i // 6} for i in range(90)])
    with pytest.raises(DataError, match=r"fresh: 8 questions are too few \(of 48 rows"):
        drawn(tmp_path, questions=path, cluster_column="c")
    assert not (tmp_path / "out").exists()


def test_the_seed_is_random_and_only_in_the_record(questions, tmp_path):
    seeds = []
    for name in ("a", "b"):
        folder = make_fresh(FreshStage(out=str(tmp_path / name), questions=str(questions)))
        seeds.append(json.loads((folder / "drawn.json").read_text())["seed"])
        assert str(seeds[-1]) not in (folder / "published.csv").read_text()
    assert seeds[0] != seeds[1]
    assert max(seeds) >= 2**32
    again = make_fresh(FreshStage(out=str(tmp_path / "c"), questions=str(questions), seed=seeds[1]))
    assert (again / "fresh.csv").read_bytes() == (tmp_path / "b" / "fresh.csv").read_bytes()


def test_an_interrupted_run_leaves_nothing(questions, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fresh_module, "write_text_atomically", stop)
    with pytest.raises(KeyboardInterrupt):
        drawn(tmp_path, questions=str(questions))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]
    monkeypatch.undo()
    drawn(tmp_path, questions=str(questions))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": None}, "row 4: it has no 'q'"),
        ({"text": "Wording 2 OF  1"}, "'1' has two versions of the same text"),
    ],
    ids=["without an id", "equal versions"],
)
def test_versions_have_ids_and_differ(tmp_path, change, message):
    rows = [{"q": i // 3, "text": f"wording {i % 3} of {i // 3}"} for i in range(36)]
    rows[3] |= change
    path = write_rows(tmp_path, rows)
    with pytest.raises(DataError, match=message):
        drawn(tmp_path, way="version", questions=path, cluster_column="q")


def test_ids_that_pandas_wrote_as_fractions_are_whole(tmp_path):
    path = tmp_path / "versions.csv"
    rows = [{"q": float(i // 3), "text": f"wording {i % 3} of {i // 3}"} for i in range(36)]
    pd.DataFrame(rows).to_csv(path, index=False)
    folder = drawn(tmp_path, way="version", questions=str(path), cluster_column="q")
    published = pd.read_csv(folder / "published.csv", dtype=str)
    assert sorted(published["id"], key=int) == [str(i) for i in range(12)]


def test_one_version_of_each_question_is_published(tmp_path):
    path = tmp_path / "versions.jsonl"
    rows = [{"q": i, "text": f"wording {v} of {i}"} for i in range(40) for v in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = drawn(tmp_path, way="version", questions=str(path), cluster_column="q")
    published, versions = (
        pd.read_json(folder / f"{n}.jsonl", lines=True) for n in ("published", "versions")
    )
    assert len(published) == published["id"].nunique() == 40
    assert (versions.groupby("cluster").size() == 3).all()
    assert not {*published["text"]} & {*versions["text"]}
    assert published["text"].str.extract(r"wording (\d)")[0].nunique() == 4
    assert [*published] == ["id", "q", "text"]
    assert [*versions] == ["cluster", "q", "text"]
    record = json.loads((folder / "drawn.json").read_text())
    assert (record["published"], record["versions"]) == (40, 120)
    another_seed = FreshStage(out=str(tmp_path / "again"), way="version", questions=str(path),
                              cluster_column="q", seed=record["seed"] + 1)  # fmt: skip
    redrawn = make_fresh(another_seed)
    assert (redrawn / "published.jsonl").read_bytes() != (folder / "published.jsonl").read_bytes()


def test_a_generator_gives_distinct_questions(tmp_path):
    pytest.importorskip("reasoning_gym", reason="the extra [generators] is not installed")
    folder = drawn(tmp_path, way="generate", generator="leg_counting", number=15)
    published, fresh = (
        pd.read_json(folder / f"{n}.jsonl", lines=True) for n in ("published", "fresh")
    )
    assert len(published) == len(fresh) == 15
    assert not {*published["question"]} & {*fresh["question"]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "questions is None: give the file"),
        ({"questions": "mine.csv", "cluster_column": "topic"}, "cluster_column is 'topic'"),
        ({"questions": "mine.csv", "way": "version"}, "cluster_column is None: name the column"),
        (
            {"questions": "mine.csv", "way": "version", "cluster_column": "question"},
            "has one version",
        ),
        ({"questions": "mine.csv", "share": 0.05}, "fresh: 3 questions are too few"),
        ({"way": "draw"}, "way is 'draw': choose from hold_out"),
        ({"questions": "none.csv"}, "questions is 'none.csv': there is no such file"),
        ({"questions": "mine.csv", "out": ""}, "out is '': give a folder"),
        ({"questions": "mine.csv", "out": "/proc/x/y"}, "out is '/proc/x/y': no folder can be"),
    ],
)
def test_what_cannot_be_used_is_named(questions, tmp_path, monkeypatch, fields, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, DataError), match=message):
        drawn(tmp_path, **fields)
    assert not (tmp_path / "out").exists()


def test_a_file_of_no_question_is_too_few(tmp_path):
    (tmp_path / "mine.csv").write_text("question,answer\n")
    with pytest.raises(DataError, match="fresh: 0 questions are too few"):
        drawn(tmp_path, questions=str(tmp_path / "mine.csv"))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def gym(monkeypatch):
    """A package of one generator, whose questions repeat; it takes seeds of 32 bits."""
    calls = []

    def create_dataset(name, size, seed):
        calls.append((name, size, seed))
        if seed >= 2**32:
            raise ValueError
        return [{"question": f"What is {i // 2}?", "answer": i // 2} for i in range(size)]

    factory = SimpleNamespace(DATASETS={"sums": None, "legs": None})
    module = SimpleNamespace(factory=factory, create_dataset=create_dataset)
    monkeypatch.setattr(fresh_module, "import_module", lambda name: module)
    monkeypatch.setattr(fresh_module, "version", lambda name: f"{name} 1.2")
    return calls


def test_distinct_questions_of_a_generator_are_divided_at_random(gym, tmp_path):
    folder = drawn(tmp_path, way="generate", generator="sums", number=10, seed=5)
    published, fresh = read_sides(folder)
    assert len(published) == len(fresh) == 10
    assert sorted((*published, *fresh), key=lambda row: int(row["answer"])) == [
        {"question": f"What is {i}?", "answer": str(i)} for i in range(20)
    ]
    assert [row["answer"] for row in published] != [str(i) for i in range(10)]
    (name, size, seed), (_, _, seed_of_32_bits) = gym
    assert (name, size, seed_of_32_bits) == ("sums", 40, seed % 2**32)
    record = json.loads((folder / "drawn.json").read_text())
    assert record["generator"] == "sums"
    assert record["reasoning_gym"] == "reasoning-gym 1.2"
    assert (record["way"], record["published"], record["fresh"]) == ("generate", 10, 10)


def test_a_generator_that_cannot_be_used_is_named(gym, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="^generator is None: name a data set of reasoning-gym, "):
        drawn(tmp_path, way="generate")
    message = "^generator is 'sum': reasoning-gym has no such data set. Did you mean sums"
    with pytest.raises(ConfigError, match=message):
        drawn(tmp_path, way="generate", generator="sum")
    rows = [{"question": "What?", "answer": 1}] * 40
    package = fresh_module.import_module("reasoning_gym")
    monkeypatch.setattr(package, "create_dataset", lambda name, size, seed: rows)
    with pytest.raises(DataError) as error:
        drawn(tmp_path, way="generate", generator="sums", number=10)
    assert str(error.value) == (
        "generator is 'sums': of 40 questions 1 are distinct, fewer than twice number=10. Lower "
        "number."
    )

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(fresh_module, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'contamination-testbed\[generators\]'"):
        drawn(tmp_path, way="generate", generator="sums")


def test_a_generator_must_be_named(tmp_path):
    pytest.importorskip("reasoning_gym", reason="the extra [generators] is not installed")
    with pytest.raises(ConfigError, match="generator is None: name a data set"):
        drawn(tmp_path, way="generate")


def test_an_existing_folder_is_kept(questions, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="which exists"):
        drawn(tmp_path, questions=str(questions))
