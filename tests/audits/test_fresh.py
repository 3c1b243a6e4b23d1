"""Questions that cannot leak: held back, generated, or one version of each."""

import json

import pandas as pd
import pytest

from contamination.audits.benchmark.fresh import FreshStage, make_fresh
from contamination.core.errors import ConfigError, DataError


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "mine.csv"
    rows = [
        {"question": f"What is {i} + {i}?", "passage": i // 2, "answer": 2 * i} for i in range(60)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def drawn(tmp_path, **fields):
    return make_fresh(FreshStage(out=str(tmp_path / "out"), **fields))


def test_a_part_is_held_back_and_no_row_is_lost(questions, tmp_path):
    folder = drawn(tmp_path, questions=str(questions), share=0.25)
    published, fresh = (pd.read_csv(folder / f"{n}.csv") for n in ("published", "fresh"))
    assert (len(published), len(fresh)) == (45, 15)
    both = pd.concat([published, fresh]).sort_values("answer", ignore_index=True)
    pd.testing.assert_frame_equal(both, pd.read_csv(questions))
    assert json.loads((folder / "drawn.json").read_text())["fresh"] == 15


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


def test_near_duplicates_across_the_sides_are_reported(tmp_path, caplog):
    path = tmp_path / "mine.jsonl"
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    path.write_text("".join(json.dumps({"text": f"{words} {i // 15}"}) + "\n" for i in range(30)))
    drawn(tmp_path, questions=str(path))
    assert "fresh questions share much text with a published one" in caplog.text


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
    ],
)
def test_what_cannot_be_used_is_named(questions, tmp_path, monkeypatch, fields, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, DataError), match=message):
        drawn(tmp_path, **fields)
    assert not (tmp_path / "out").exists()


def test_an_existing_folder_is_kept(questions, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="which exists"):
        drawn(tmp_path, questions=str(questions))
