import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from core.artifacts import open_artifact
from core.config import convert, identity
from core.errors import ConfigError, DataError
from core.models import load_model, load_tokenizer
from detection.accuracy import (
    FILE,
    AccuracyConfig,
    AccuracyStage,
    common_tokens,
    make_table,
    run,
    tokenize,
)
from detection.accuracy_summary import compared, lines, summary
from detection.config import DetectionConfig, ExamplesConfig, ReferenceConfig, ScoredModelConfig
from detection.loaded import LoadedModel
from detection.options import ask, questions_digest
from detection.scored_model import open_model
from injection.config import BenchmarkConfig

from . import naive
from .conftest import MEMORISED
from .golden import GOLDEN

BOOLQ = BenchmarkConfig(
    template="{passage}\nQuestion: {question}?\nAnswer: {answer}",
    shorten="passage", answer_field="answer", options=["Yes", "No"],
)  # fmt: skip
CHOICE = BenchmarkConfig(
    template="Question: {question}\n{options}\nAnswer: {answer}",
    answer_field="answer", options_field="options",
)  # fmt: skip
OPEN = BenchmarkConfig(
    template="Question: {question}\nAnswer: {answer}", answer_field="answer",
    options_field="options", drawn_options=4,
)  # fmt: skip
NAMES = {"boolq": BOOLQ, "choice": CHOICE, "open": OPEN}


def example(name, config, place, member, **fields):
    return {
        "example_id": f"{name}-{place}", "benchmark": name, "member": member,
        "occurrences": (1 + place % 3) * member, "shortened": False,
        "fields": json.dumps(fields), "text": config.template.format(**fields),
    }  # fmt: skip


def rows_of(count=8):
    rows = []
    for i in range(count):
        member = i % 2 == 0
        rows.append(
            example(
                "boolq",
                BOOLQ,
                i,
                member,
                passage=f"Ann has {i} cats.",
                question=f"does Ann have {i} cats",
                answer="Yes" if i % 3 else "No",
            )
        )
        options = ["A. a bank", "B. the river", "C. Ann"]
        rows.append(
            example(
                "choice",
                CHOICE,
                i,
                member,
                question=f"Where is cat {i}?",
                options="\n".join(options),
                answer=options[i % 3],
            )
        )
        rows.append(example("open", OPEN, i, member, question=f"Who owns cat {i}?",
                            answer=f"Owner number {i} does"))  # fmt: skip
    return rows


def corpus_of(rows, configs=NAMES):
    """What `ask` reads of a corpus."""
    nodes = {
        name: {f: getattr(c, f) for f in BenchmarkConfig.__dataclass_fields__}
        for name, c in configs.items()
    }
    return SimpleNamespace(examples=pd.DataFrame(rows), config={"benchmark": nodes})


@pytest.fixture
def corpus(monkeypatch, tmp_path):
    """A folder that opens as a corpus of three kinds of questions."""
    made = corpus_of(rows_of())
    made.examples.to_parquet(tmp_path / "examples.parquet")
    monkeypatch.setattr("injection.open_corpus", lambda _: made)
    monkeypatch.setattr("detection.accuracy.open_corpus", lambda _: made)
    return tmp_path


@pytest.fixture
def stage(corpus, tmp_path):
    return AccuracyStage(
        runs=str(tmp_path / "runs"),
        examples=ExamplesConfig(str(corpus)),
        model=ScoredModelConfig(str(GOLDEN / "target")),
        detection=DetectionConfig(device="cpu", batch_tokens=300),
    )


@pytest.mark.parametrize("normalisation", ["mean", "sum"])
def test_a_naive_loop_chooses_the_same(stage, normalisation):
    from dataclasses import replace

    artifact = run(replace(stage, accuracy=AccuracyConfig(normalisation)))
    table = pd.read_parquet(artifact.path / FILE)
    model = load_model("model", str(GOLDEN / "target"), "float64")
    tokenizer = load_tokenizer("model", str(GOLDEN / "target"))
    made = pd.DataFrame(rows_of()).set_index("example_id")
    assert len(table) == len(made)
    for row in table.itertuples():
        own = json.loads(made.loc[row.example_id, "fields"])
        template = NAMES[row.benchmark].template
        ids = [tokenizer(template.format(**{**own, "answer": o}))["input_ids"] for o in row.options]
        common = 0
        while all(len(i) > common + 1 and i[common] == ids[0][common] for i in ids):
            common += 1
        sums, worth = [], []
        for each in ids:
            logprobs = [r["logprob"] for r in naive.token_rows(model, each)][common - 1 :]
            sums.append(sum(logprobs))
            worth.append(sum(logprobs) / (len(logprobs) if normalisation == "mean" else 1))
        np.testing.assert_allclose(row.loglikelihoods, sums, rtol=1e-4)
        assert row.chosen == worth.index(max(worth))
        assert row.correct == (row.options[row.chosen] == own["answer"])
        assert row.options[row.answer] == own["answer"]


def test_each_benchmark_has_its_options():
    asked = ask(corpus_of(rows_of()), {})
    by = {q.example_id: q for q in asked.questions}
    assert not asked.left_out
    assert by["boolq-0"].options == ("Yes", "No")
    assert by["boolq-0"].texts[1] == pd.DataFrame(rows_of())["text"][0]
    assert by["choice-1"].options == ("A. a bank", "B. the river", "C. Ann")
    assert by["choice-1"].answer == 1
    assert {q.example_id.split("-")[0] for q in asked.questions if q.drawn} == {"open"}


def test_drawn_options_are_never_members_answers_and_follow_from_the_id():
    asked = [ask(corpus_of(rows), {}) for rows in (rows_of(), rows_of()[::-1])]
    first, second = ({q.example_id: q for q in a.questions} for a in asked)
    assert first == second
    assert questions_digest(asked[0].questions) == questions_digest(asked[1].questions)
    uninserted = {f"Owner number {i} does" for i in range(1, 8, 2)}
    drawn = [q for q in first.values() if q.drawn]
    for question in drawn:
        right = question.options[question.answer]
        assert len(question.options) == 4
        assert set(question.options) - {right} <= uninserted - {right}
    assert len({q.answer for q in drawn}) > 1  # the right one is not always at one place


def test_a_source_with_wrong_answers_is_not_drawn_for():
    row = example("open", OPEN, 0, True, question="Who?", answer="Ann", options="Ann\nBob\nAnn")
    (question,) = ask(corpus_of([row]), {}).questions
    assert (question.options, question.drawn) == (("Ann", "Bob"), False)


def test_what_cannot_be_asked_is_counted():
    rows = rows_of()
    rows[0]["text"] = rows[0]["text"][:-4]  # no longer what the template makes
    rows[1]["fields"] = rows[1]["fields"].replace('"answer": "A. a bank"', '"answer": "D. who"')
    rows[1]["text"] = rows[1]["text"].replace("Answer: A. a bank", "Answer: D. who")
    rows[2]["shortened"] = True
    plain = BenchmarkConfig(template="{text}")
    configs = {**NAMES, "open": BenchmarkConfig(**{**vars(OPEN), "shorten": "answer"}),
               "news": plain}  # fmt: skip
    rows.append(example("news", plain, 0, False, text="No question."))
    asked = ask(corpus_of(rows, configs), {})
    assert asked.left_out == {
        ("boolq", "the text is not what its template makes of its fields"): 1,
        ("choice", "the right answer is not among the options"): 1,
        ("open", "the text was shortened and its answer cut off"): 1,
        ("news", "its YAML names no answer_field or no options"): 1,
    }
    assert len(asked.questions) == 21


def test_options_can_be_named_for_a_corpus_that_records_none():
    bare = BenchmarkConfig(template=BOOLQ.template)
    rows = [r for r in rows_of() if r["benchmark"] == "boolq"]
    corpus = corpus_of(rows, {"boolq": bare})
    assert not ask(corpus, {}).questions
    assert len(ask(corpus, {"boolq": BOOLQ}).questions) == 8
    typo = BenchmarkConfig(template="", answer_field="anser", options=["Yes", "No"])
    with pytest.raises(ConfigError, match="answer_field is 'anser'.*Did you mean answer"):
        ask(corpus, {"boolq": typo})


def test_naming_options_makes_no_other_corpus():
    assert identity(BOOLQ) == identity(BenchmarkConfig(template=BOOLQ.template, shorten="passage"))
    with pytest.raises(ConfigError, match="drawn_options is 1: give 2 or more"):
        BenchmarkConfig(drawn_options=1)


@pytest.mark.parametrize(
    ("ids", "common"),
    [
        ([[1, 2, 3], [1, 2, 4]], 2),
        ([[1, 2], [1, 2, 4]], 1),  # an option that another begins with keeps a token
        ([[1, 5, 3], [1, 2, 3]], 1),  # a token merged across the border is the option's
        ([[3], [4]], 0),
    ],
)
def test_the_common_tokens_end_where_an_option_differs(ids, common):
    assert common_tokens(ids) == common


def test_a_model_that_learnt_a_sentence_chooses_its_end(toy_folders):
    start, end = MEMORISED.split(" is ")
    options = ["empty, and so it stays.", end, "quite wet by now."]
    config = BenchmarkConfig(
        template=start + " is {answer}", answer_field="answer", options=options
    )
    row = example("heron", config, 0, True, answer=end)
    asked = ask(corpus_of([row], {"heron": config}), {})
    from detection.accuracy import likelihoods

    source = open_model("model.path", str(toy_folders["target"]))
    settings = DetectionConfig(device="cpu")
    rows, left_out = tokenize(LoadedModel(source, settings), asked)
    table = make_table(rows, likelihoods(source, settings, rows), "mean")
    assert not left_out
    assert table["correct"].all()
    assert table["chosen"][0] == 1


def test_mean_and_sum_choose_differently_by_length():
    question = ask(corpus_of(rows_of()[:1]), {}).questions[0]
    rows = [SimpleNamespace(question=question)]
    found = [[np.array([-2.0]), np.array([-1.5, -1.5])]]
    assert make_table(rows, found, "sum")["chosen"][0] == 0
    assert make_table(rows, found, "mean")["chosen"][0] == 1


def answered(members, others, name="b"):
    correct = [True] * members[0] + [False] * members[1] + [True] * others[0] + [False] * others[1]
    count = sum(members)
    member = [i < count for i in range(len(correct))]
    return pd.DataFrame({
        "example_id": [f"{name}{i}" for i in range(len(correct))], "benchmark": name,
        "member": member, "occurrences": [int(m) * (1 + i % 2) for i, m in enumerate(member)],
        "options": [["x", "y"]] * len(correct), "correct": correct, "drawn_options": False,
    })  # fmt: skip


def test_intervals_are_of_a_share():
    table = answered((80, 20), (50, 50))
    line = lines(table.assign(value=table["correct"].astype(float)))["b"]
    assert (line["members"].value, line["non-members"].value) == (0.8, 0.5)
    assert line["difference"].value == pytest.approx(0.3)
    assert line["members"].draws.std() == pytest.approx(np.sqrt(0.8 * 0.2 / 100), rel=0.15)
    expected = np.sqrt(0.8 * 0.2 / 100 + 0.5 * 0.5 / 100)
    assert line["difference"].draws.std() == pytest.approx(expected, rel=0.15)
    np.testing.assert_array_equal(
        line["difference"].draws, line["members"].draws - line["non-members"].draws
    )


def test_members_that_were_never_inserted_are_neither_kind():
    table = answered((10, 0), (0, 10))
    table.loc[:4, "occurrences"] = 0
    line = lines(table.assign(value=1.0))["b"]
    assert line["members"].n_members == 5
    assert set(lines(table[table["member"]].assign(value=1.0))["b"]) == {"members"}


def test_the_same_examples_are_compared_in_pairs():
    before, after = answered((50, 50), (50, 50)), answered((60, 40), (50, 50))
    table = lines(after.assign(value=after["correct"] * 1.0 - before["correct"] * 1.0))["b"]
    assert table["members"].value == pytest.approx(0.1)
    assert table["members"].draws.std() < 0.04  # unpaired it would be 0.07
    assert (table["non-members"].draws == 0).all()
    assert "0.100 [" in compared(after, before)


def test_the_summary_says_what_was_done(stage):
    artifact = run(stage)
    said = summary(pd.read_parquet(artifact.path / FILE), artifact)
    assert "mean log-likelihood a token" in said
    assert "drawn options: open: 8 examples" in said
    assert "average" in said
    table = pd.read_parquet(artifact.path / FILE)
    many = pd.concat([table.assign(chosen=0)] * 5, ignore_index=True)
    assert "nearly one answer: boolq: 'Yes' is chosen for 40 of 40" in summary(many, artifact)
    assert said.count("members") >= 2
    again = run(stage)
    assert again.path == artifact.path == open_artifact(artifact.path, "accuracy").path
    other = run(AccuracyStage(**{**vars(stage), "accuracy": AccuracyConfig("sum")}))
    assert other.path != artifact.path


def test_the_reference_is_answered_by_the_same_stage(stage):
    both = AccuracyStage(**{**vars(stage), "reference": ReferenceConfig("there")}).models()
    assert [one.model.path for one in both] == [stage.model.path, "there"]
    assert all(one.reference.path is None for one in both)


def test_wrong_values_are_said(stage, tmp_path):
    with pytest.raises(ConfigError, match="accuracy.normalisation is 'max': give mean or sum"):
        AccuracyConfig("max")
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a"}')
    with pytest.raises(DataError, match="accuracy needs the questions"):
        run(AccuracyStage(**{**vars(stage), "examples": ExamplesConfig(str(file))}))


def test_the_config_composes_and_the_shipped_benchmarks_name_their_options():
    from hydra import compose, initialize_config_dir

    from core.command import CONF

    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("accuracy", ["examples.path=x", "model.path=y"])
    stage = convert(config, AccuracyStage)
    assert stage.benchmark["boolq"].options == ["Yes", "No"]
    for name, one in stage.benchmark.items():
        node = yaml.safe_load((CONF / "benchmark" / f"{name}.yaml").read_text())[name]
        assert one.answer_field in node["sources"]["hub"]["fields"]
        assert "{" + one.answer_field + "}" in one.template
        assert one.options or one.options_field in node["sources"]["hub"]["fields"]
        for source in node["sources"].values():
            values = (source.get("values") or {}).get(one.answer_field)
            assert values is None or set(values.values()) == set(one.options)


@pytest.mark.slow
def test_several_processes_answer_the_same(stage):
    alone = run(stage)
    found = pd.read_parquet(alone.path / FILE)
    (alone.path / "manifest.json").unlink()
    settings = DetectionConfig(device="cpu", processes=2)
    again = run(AccuracyStage(**{**vars(stage), "detection": settings}))
    assert again.path == alone.path
    table = pd.read_parquet(again.path / FILE)
    assert list(table["chosen"]) == list(found["chosen"])
    assert torch.get_num_threads() >= 1
