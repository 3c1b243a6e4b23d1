"""The audit from end to end, on tiny models."""

import json
from dataclasses import replace
from itertools import combinations

import pandas as pd
import pytest

from contamination.audits.run import run
from contamination.audits.unlearning.inputs import ORIGINAL, open_audited_models
from contamination.audits.unlearning.quantities import ACCURACY, ANSWERS
from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_tokenizer
from contamination.detection.config import ReferenceConfig, ScoredModelConfig
from contamination.injection.run import run as make_corpus
from tests.detection.model.served.server import Server
from tests.injection.test_contamination import stage_of


def read(made, name):
    return pd.read_parquet(made.path / f"{name}.parquet")


def test_a_model_with_a_twin(stage, rows, folders):
    given = stage(embedding=str(folders["clean"]))
    made = run(given)
    files = {*made.files}
    assert files >= {"audit.md", "report.html", "chunks.parquet", "continuations.parquet"}
    assert files >= {
        f"{n}.parquet" for n in ("way", "membership", "screen", "completions", "utility")
    }
    chunks = read(made, "chunks")
    assert chunks["member"].tolist() == [bool(row["label"]) for row in rows]
    ways = read(made, "way").set_index("quantity")
    for name in ("loss", "min_k"):
        means = [
            chunks.loc[chunks["member"], f"{name} of {m}"].mean()
            for m in (ORIGINAL, "half", "clean")
        ]
        assert ways.loc[name, ["original", "after", "clean"]].tolist() == pytest.approx(means)
        share = (means[0] - means[1]) / (means[0] - means[2])
        assert ways.loc[name, "share"] == pytest.approx(share)
        assert ways.loc[name, "share_low"] < share < ways.loc[name, "share_high"]
    scores = {m: chunks[f"min_k of {m}"] for m in (ORIGINAL, "half")}
    ratio = scores["half"] / scores[ORIGINAL]
    assert (chunks["suspicious in half"] == ((ratio > 1 / 1.15) & (ratio < 1.15))).all()
    assert (
        read(made, "screen")["recall"][0]
        == chunks.loc[chunks["member"], "suspicious in half"].mean()
    )
    auroc = read(made, "membership").set_index(["method", "model"])["auroc"]
    assert auroc["loss", ORIGINAL] == 1
    drawn = read(made, "continuations")
    assert drawn.groupby(["model", "chunk"]).size().unique().tolist() == [2]
    assert drawn["similarity"].between(-1, 1).all()
    assert {*ways.index} == {
        "loss", "AUROC of loss", "min_k", "AUROC of min_k", "extraction strength",
        "exact memorization", "ROUGE-L", "similarity",
    }  # fmt: skip
    means = read(made, "completions").set_index(["quantity", "model", "group"])["mean"]
    titles = {"rouge_l": "ROUGE-L", "rouge_l_other": "ROUGE-L with another chunk"}
    members = drawn["chunk"].isin(chunks.loc[chunks["member"], "chunk"])
    for name, title in (titles | {"similarity": "similarity"}).items():
        mean = drawn.loc[members & (drawn["model"] == "half"), name].mean()
        assert means[title, "half", "members"] == pytest.approx(mean)
    said = (made.path / "audit.md").read_text()
    assert "- completions: 2 per chunk, compared by ROUGE-L, similarity\n" in said
    assert "- screen: min_k, ratio 1.15\n" in said
    assert "The loss on the non-members" in said
    assert "The forget ratio of the members' min_k score is" in said
    assert "| beyond non-members " in said
    assert run(given).path == made.path


@pytest.mark.slow
def test_without_a_twin_and_without_labels_what_is_left_is_said(stage, rows):
    texts = [{"text": row["text"]} for row in rows]
    made = run(stage(texts=texts, clean=None, methods=["min_k"]))
    assert {*made.files} & {"way.parquet", "membership.parquet", "utility.parquet"} == set()
    said = (made.path / "audit.md").read_text()
    assert "Which texts were members" in said
    assert "there is no clean twin" in said
    assert "chunks suspicious" in said


@pytest.mark.slow
def test_several_models_and_validation_texts(stage, folders, golden, tmp_path):
    file = tmp_path / "validation.jsonl"
    file.write_text("".join(json.dumps({"text": f"A road of {n} miles."}) + "\n" for n in range(3)))
    several = {"half": str(folders["half"]), "other": golden}
    given = {"unlearned": several, "validation": str(file)}
    made = run(stage(**given, completions=0, methods=["min_k"]))
    assert read(made, "screen")["unlearned"].tolist() == ["half", "other"]
    assert "The loss on validation text" in (made.path / "audit.md").read_text()
    assert read(made, "utility")["model"].tolist() == [ORIGINAL, "half", "other", "clean"]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"unlearned": "{original}"}, ConfigError, "has the same weights as audit.original"),
        ({"clean": "{original}"}, ConfigError, "has the same weights as audit.original"),
        ({"unlearned": ["{half}", "{half}"]}, ConfigError, "would be called"),
        ({"unlearned": []}, ConfigError, "audit.unlearned is empty"),
        ({"original": None}, ConfigError, "audit.original is None"),
        ({"original": 3}, ConfigError, "audit.original is 3"),
        ({"original": {"path": "x", "kye": 1}}, ConfigError, "audit.original.kye"),
        ({"screen": "zlib"}, ConfigError, "'zlib': it is not in `method`. Known: loss, m"),
        ({"ratio": 1.0}, ConfigError, "audit.ratio is 1.0"),
        ({"texts": [{"text": "a", "label": 1}, {"text": "b"}]}, DataError, "no text is left"),
        ({"texts": [{"text": "a", "label": 2}]}, DataError, "label is 2"),
        ({"texts": []}, DataError, r"audit\.texts is"),
        ({"validation": "/none.jsonl"}, DataError, r"audit\.validation is"),
    ],
)  # fmt: skip
def test_bad_input_is_one_paragraph(stage, folders, given, error, said):
    filled = {
        name: json.loads(json.dumps(value).replace("{original}", str(folders["original"]))
                         .replace("{half}", str(folders["half"])))
        for name, value in given.items()
    }  # fmt: skip
    with pytest.raises(error, match=said) as caught:
        run(stage(**filled))
    assert "\n" not in str(caught.value)


def test_an_audit_of_other_scores_is_another_audit(stage, folders, golden):
    """What changes a score, or whether it is ranked, names the folder."""
    first = stage(completions=0, methods=["min_k", "reference"])
    first = replace(first, reference=ReferenceConfig(golden))
    least = replace(first.detection, min_scored_tokens=20)
    other = ReferenceConfig(str(folders["clean"]))
    found = []
    for one in (first, replace(first, detection=least), replace(first, reference=other)):
        prepared = instantiate_node("audit", one.audit).prepare(one)
        found.append((prepared.inputs, prepared.settings))
    assert all(one != two for one, two in combinations(found, 2))
    names = ("original", "half", "clean")
    of_models = {f"{what} {name}" for what in ("model", "scores of") for name in names}
    assert {*found[0][0]} == {"texts", "labels", *of_models}
    detection = first.detection.pass_settings
    assert found[0][1] == {
        "method": first.method, "detection": detection, "corpus_questions": True,
    }  # fmt: skip


def test_all_that_an_audit_reads_is_among_its_inputs(stage, folders, tmp_path):
    row = {"question": "Who?", "answer": "A heron.", "perturbed_answer": "A crow."}
    (tmp_path / "q.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "v.jsonl").write_text('{"text": "A road."}\n')
    files = {name: str(tmp_path / f"{name}.jsonl") for name in "qv"}
    audit_stage = stage(
        questions=files["q"], utility={"facts": files["q"]}, validation=files["v"],
        embedding=str(folders["clean"]), clean=None,
    )  # fmt: skip
    prepared = instantiate_node("audit", audit_stage.audit).prepare(audit_stage)
    assert {*prepared.inputs} == {
        "texts", "labels", "similarity", "validation", "questions", "utility facts",
        "model original", "model half", "scores of original", "scores of half",
    }  # fmt: skip
    assert prepared.settings["corpus_questions"] is False
    assert folders["original"].name in prepared.slug


def test_the_stages_own_model_is_refused(stage):
    audit_stage = replace(stage(), model=ScoredModelConfig("x"))
    message = r"^model is 'x': this audit's models are audit\.original, audit\.unlearned and"
    with pytest.raises(ConfigError, match=message):
        instantiate_node("audit", audit_stage.audit).prepare(audit_stage)


def test_questions_of_a_file_are_answered_and_screened(stage, tmp_path, folders):
    file = tmp_path / "questions.jsonl"
    rows = [
        {"question": "The heron waits in the", "answer": "reeds until the river", "label": 1},
        {"question": "A ladder leans on", "answer": "the orchard wall", "label": 0},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = run(stage(questions=str(file), completions=0, methods=["min_k"]))
    found = read(made, "answers").set_index(["model", "group"])["mean"]
    assert found[ORIGINAL, "members"] > found["clean", "members"]
    assert "half" in found.index.get_level_values("model")
    file.write_text('{"question": "a"}\n')
    with pytest.raises(DataError, match=r"needs a `question` and an `answer`"):
        run(stage(questions=str(file)))


def test_the_questions_of_a_corpus_are_answered_if_they_are_asked_for(stage, tmp_path):
    injection_stage = stage_of(tmp_path)
    benchmark = replace(injection_stage.benchmark["mine"], answer_field="answer", drawn_options=3)
    corpus = make_corpus(replace(injection_stage, benchmark={"mine": benchmark})).path

    def audit(questions):
        audit_stage = stage(methods=["min_k"], completions=0)
        fields = {"texts": str(corpus), "questions": questions}
        return run(replace(audit_stage, audit=audit_stage.audit | fields))

    answers = read(audit("corpus"), "answers")
    assert set(answers["quantity"]) == {ACCURACY, ANSWERS}
    assert set(answers["model"]) == {ORIGINAL, "half", "clean"}
    accuracies = answers[(answers["model"] == "half") & (answers["quantity"] == ACCURACY)]
    counts = accuracies.set_index("group")["units"]
    for side in ("members", "non-members"):
        assert counts[side] == counts[f"{side}, suspicious"] + counts[f"{side}, not"] == 4
    assert "answers.parquet" not in audit(None).files


def test_models_of_two_tokenizers_are_refused(stage, folders, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for file in folders["half"].iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    tokenizer = load_tokenizer("x", str(other))
    tokenizer.add_tokens(["the"])
    tokenizer.save_pretrained(other)
    with pytest.raises(ConfigError, match="its tokenizer divides the texts into other tokens"):
        run(stage(unlearned=str(other)))


def test_a_text_shorter_than_a_prompt_is_scored_and_not_completed(stage, rows):
    word = {"text": "Incomprehensibilities", "label": 0, "id": "word"}
    letter = {"text": "a", "label": 1, "id": "letter"}
    artifact = run(stage(texts=[*rows[:3], word, letter], clean=None, methods=["min_k"]))
    chunks = read(artifact, "chunks").set_index("chunk")
    unranked = chunks[f"min_k of {ORIGINAL}"].isna()
    assert (unranked["word"], unranked["letter"]) == (False, True)
    assert chunks["suspicious in half"].isna().equals(unranked)
    assert "1 of 5 chunks are too short" in (artifact.path / "audit.md").read_text()
    assert "word" not in {*read(artifact, "continuations")["chunk"]}


def test_the_answers_of_a_served_twin_are_stored_among_the_artefacts(folders, golden, tmp_path):
    with Server() as server:
        twin = {"url": server.url, "tokenizer": golden}
        given = str(folders["original"]), str(folders["half"])
        models = open_audited_models(*given, twin, str(tmp_path))
    assert models.clean.source.answers.is_relative_to(tmp_path)


@pytest.mark.slow
def test_a_served_model_is_audited_as_its_files_are(stage, golden, rows):
    given = {"texts": rows[:2], "clean": None, "methods": ["min_k"]}
    local = run(stage(unlearned={"half": golden}, **given, completions=0))
    with Server() as server:
        node = {"url": server.url, "tokenizer": golden}
        served = run(stage(unlearned={"half": node}, **given))
    both = [read(made, "screen")["auroc_of_the_fall"][0] for made in (local, served)]
    assert both[0] == pytest.approx(both[1])
    assert len(read(served, "continuations")) == 2 * 2 * 2
