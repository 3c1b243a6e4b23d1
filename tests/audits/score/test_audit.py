"""The audit of corrected scores as a command: its table, its artefact, its sentences, bad input."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.run import MARKDOWN, run
from contamination.audits.score.audit import REVISION, Score
from contamination.core.artifacts import path_part_of
from contamination.core.errors import ConfigError, DataError
from contamination.core.hashing import file_digest
from contamination.detection import scores as scores_module
from tests.audits.score.simulated import simulate


@pytest.fixture
def frame():
    items, _ = simulate(0, unknown=120, spiked=20, separation=5.0, models=2)
    return pd.DataFrame(
        {
            "id": [f"q{i}" for i in range(160)],
            "correct": items.correct.astype(int),
            "score": items.score,
            "spiked": items.role,
            "predicted": items.predicted,
            "a": items.references[:, 0].astype(int),
            "b": items.references[:, 1].astype(int),
        }
    )


def stage(tmp_path, frame, name="answers.csv", **fields):
    file = tmp_path / name
    if name.endswith("csv"):
        frame.to_csv(file, index=False)
    elif name.endswith("jsonl"):
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_parquet(file)
    target = "contamination.audits.score.audit.Score"
    node = {"_target_": target, "items": str(file), "draws": 100, **fields}
    return AuditStage(audit=node, runs=str(tmp_path))


def test_the_audit_is_an_artefact_with_every_score(tmp_path, frame):
    artifact = run(stage(tmp_path, frame, references=["a", "b"]))
    assert {*artifact.files} == {"scores.csv", "scores.parquet", MARKDOWN, "report.html"}
    text = (artifact.path / MARKDOWN).read_text()
    observed = 100 * frame.loc[frame["spiked"] == "unknown", "correct"].mean()
    assert f"**The score is inflated: {observed:.1f} observed" in text
    assert "the p-value of δ ≤ 0 is" in text
    assert "\n- method: arXiv 2605.24818" in text
    table = artifact.table("scores.parquet").set_index("name")
    assert [*table.index] == ["naive", "known non-members", "IPW", "EPG-IPW", "imputation",
                              "combined", "ConStat"]  # fmt: skip
    assert (table["low"] <= table["high"]).all()
    assert table["inflation"].to_numpy() == pytest.approx(observed / 100 - table["value"])
    assert table["constat_p"].notna().sum() == 1
    assert json.loads(json.dumps(dict(artifact.counts)))["IPW"] == table.loc["IPW", "value"]


def test_the_audit_is_based_on_the_table_and_says_how_many_items_there_are(tmp_path, frame):
    file = tmp_path / "My answers.csv"
    frame.to_csv(file, index=False)
    prepared = Score(items=str(file), draws=100).prepare(AuditStage(audit={}))
    assert prepared.slug == path_part_of("My answers")
    assert prepared.inputs == {"items": file_digest(file)}
    assert prepared.settings == {"revision": REVISION}
    result = prepared.conduct(tmp_path)
    assert [*result.counts] == ["naive", "known non-members", "IPW", "EPG-IPW", "imputation",
                                "combined"]  # fmt: skip
    facts = dict(result.content.facts)
    assert facts.pop("share of members").endswith(" (estimated)")
    assert facts.pop("method").startswith("arXiv")
    assert facts == {
        "items": str(file), "membership": "the column score", "unknown items": "120",
        "member items": "20", "non-member items": "20", "draws": "100",
    }  # fmt: skip
    prepared = Score(items=str(file), draws=100, prevalence=0.25).prepare(AuditStage(audit={}))
    content = prepared.conduct(tmp_path).content
    assert content.facts["share of members"] == "0.25 (given)"


def test_formats_and_renamed_columns_give_the_same_scores(tmp_path, frame):
    values = []
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        values.append(dict(run(stage(tmp_path, frame, name)).counts))
    renamed = frame.rename(columns={"correct": "acc", "spiked": "known"})
    renamed["known"] = renamed["known"].map({"member": "1", "non-member": "0", "unknown": ""})
    columns = {"correct": "acc", "spiked": "known"}
    values.append(dict(run(stage(tmp_path, renamed, "b.csv", columns=columns)).counts))
    for other in values[1:]:
        assert other == pytest.approx(values[0])


def test_scores_of_a_folder_are_joined_by_id(tmp_path, frame, monkeypatch):
    stored = pd.DataFrame(
        {
            "example_id": frame["id"],
            "method": "loss",
            "variant": "",
            "checkpoint_step": -1,
            "default": True,
            "score": frame["score"],
            "ranked": True,
        }
    )
    shuffled = stored.sample(frac=1, random_state=0)
    opened = SimpleNamespace(table=shuffled, artifact=SimpleNamespace(digest="d"))
    for module in (scores_module, __import__("contamination.audits.score.inputs", fromlist=["x"])):
        monkeypatch.setattr(module, "open_scores", lambda path: opened)
    expected = run(stage(tmp_path, frame, "a.csv")).counts
    without = frame.drop(columns="score")
    artifact = run(stage(tmp_path, without, "b.csv", scores="DIR"))
    joined = artifact.counts
    assert artifact.inputs["scores"] == "d"
    assert "\n- membership: loss\n" in (artifact.path / MARKDOWN).read_text()
    assert dict(joined) == pytest.approx(dict(expected))
    with pytest.raises(ConfigError, match=r"audit.method is 'los'.*Did you mean loss"):
        run(stage(tmp_path, without, "b.csv", scores="DIR", method="los"))
    opened.table = shuffled.assign(ranked=shuffled["example_id"] != "q7")
    with pytest.raises(DataError, match="id is 'q7', for which audit.scores has no score"):
        run(stage(tmp_path, without, "b.csv", scores="DIR"))
    opened.table = pd.concat([stored, stored])
    with pytest.raises(DataError, match="several scores of loss for one id"):
        run(stage(tmp_path, without, "b.csv", scores="DIR"))


def test_every_setting_that_changes_the_scores_names_the_folder(tmp_path, frame, folder_of):
    changes = [{}, {"prevalence": 0.3}, {"chance": 0.25}, {"draws": 120}, {"confidence": 0.9},
               {"references": ["a", "b"]}, {"columns": {"predicted": "a"}}]  # fmt: skip
    assert len({folder_of(stage(tmp_path, frame, **change)) for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"items": None}, "audit.items is None"),
        ({"items": "nowhere.csv"}, "audit.items is 'nowhere.csv': give a CSV"),
        ({"columns": {"corect": "acc"}}, "audit.columns is 'corect'.*Did you mean correct"),
        ({"columns": {"correct": "corrects"}}, "audit.columns.correct is 'corrects'.*correct"),
        ({"references": ["c"]}, "audit.references is 'c'"),
        ({"references": ["a", "a"]}, "audit.references"),
        ({"prevalence": 0.0}, "audit.prevalence is 0.0"),
        ({"chance": 1.0}, "audit.chance is 1.0"),
        ({"draws": 10}, "audit.draws is 10"),
        ({"confidence": 1.0}, "audit.confidence is 1.0"),
    ],
)
def test_bad_fields_are_named(tmp_path, frame, fields, words):
    with pytest.raises(ConfigError, match=words):
        run(stage(tmp_path, frame, **fields))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("correct", 2, r"row 3: correct is '2'. Give 0, 1 or a probability"),
        ("correct", None, "row 3: correct is ''"),
        ("score", "inf", "row 3: score is 'inf'. Give a finite number"),
        ("spiked", "maybe", "row 3: spiked is 'maybe'. Give member, non-member or unknown"),
        ("predicted", -0.1, "row 3: predicted is '-0.1'"),
    ],
)
def test_bad_values_are_named(tmp_path, frame, column, value, words):
    frame[column] = frame[column].astype(object)
    frame.loc[2, column] = value
    with pytest.raises(DataError, match=words):
        run(stage(tmp_path, frame))


@pytest.mark.parametrize("role", ["member", "non-member", "unknown"])
def test_too_few_items_of_a_role_are_an_error(tmp_path, frame, role):
    keep = np.flatnonzero(frame["spiked"] != role)
    few = np.flatnonzero(frame["spiked"] == role)[:1]
    with pytest.raises(DataError, match=rf"has 1 items.*{role}|1 items of unknown membership"):
        run(stage(tmp_path, frame.iloc[[*keep, *few]]))


def test_clusters_without_a_name_or_of_one_name_and_repeated_items_are_refused(tmp_path, frame):
    def refused(words, **columns):
        with pytest.raises(DataError, match=words):
            run(stage(tmp_path, frame.assign(**columns)))

    names = [f"c{i // 2}" for i in range(len(frame))]
    refused("row 9: cluster is empty. Name a cluster", cluster=[*names[:8], "", *names[9:]])
    refused("all 20 member items of .* are of one cluster", cluster="c")
    repeated = frame["id"].where(frame.index != 5, "q2")
    refused("row 6: id is 'q2', as in .*row 3. Give each item once", id=repeated)
    huge = frame["score"].where(frame.index != 3, -1e200)
    refused("row 4: score is '-1e.200'. Give a finite number up to", score=huge)
    assert run(stage(tmp_path, frame.assign(id=repeated, cluster=repeated))).counts["naive"] > 0


@pytest.mark.parametrize("value", [0, 1])
def test_answers_that_are_all_alike_are_warned_of(tmp_path, frame, value):
    text = (run(stage(tmp_path, frame.assign(correct=value))).path / MARKDOWN).read_text()
    assert "All answers are alike." in text
    assert "All answers are alike." not in (run(stage(tmp_path, frame)).path / MARKDOWN).read_text()
