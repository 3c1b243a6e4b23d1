"""The accuracy of a model on the options of each benchmark."""

import dataclasses
import json
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from scipy import stats

from contamination.core.artifacts import open_artifact
from contamination.core.config import CONF, convert_config, identity_data
from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model, load_tokenizer
from contamination.core.statistics.significance import relabelled_differences, relabelling_p_value
from contamination.data.config import BenchmarkConfig, ExamplesConfig
from contamination.detection.__main__ import accuracy
from contamination.detection.config import DetectionConfig, ReferenceConfig, ScoredModelConfig
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models.hf_model import HFModel
from contamination.detection.tasks.accuracy import (
    FILE,
    WRITTEN_EXTRA,
    answer_logprobs,
    run,
    shared_prompt_length,
    tokenize_questions,
    write_answers,
)
from contamination.detection.tasks.accuracy_summary import (
    estimates_by_benchmark,
    format_comparison,
    format_summary,
    p_values_by_benchmark,
)
from contamination.detection.tasks.config import AccuracyStage
from contamination.detection.tasks.exact_match import is_exact_match, normalise_answer
from contamination.detection.tasks.questions import (
    WRITTEN,
    answer_margins,
    chance_levels,
    make_answer_table,
    make_questions,
    option_scores_by_criterion,
    questions_digest,
)
from tests.detection import naive
from tests.detection.conftest import MEMORISED
from tests.detection.golden import GOLDEN

BOOLQ = BenchmarkConfig(
    template="{passage}\nQuestion: {question}?\nAnswer: {answer}",
    shorten="passage", answer_field="answer", options=["Yes", "No"],
)  # fmt: skip
CHOICE = BenchmarkConfig(
    template="Question: {question}\n{options}\nAnswer: {answer}",
    answer_field="answer", options_field="options", chosen_by="letter",
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


def open_as(made, folder, monkeypatch):
    """The folder, which opens as this corpus."""
    made.examples.to_parquet(folder / "examples.parquet")
    monkeypatch.setattr("contamination.injection.open_corpus", lambda _: made)
    monkeypatch.setattr("contamination.detection.tasks.accuracy.open_corpus", lambda _: made)
    return folder


@pytest.fixture
def corpus(monkeypatch, tmp_path):
    """A folder that opens as a corpus of three kinds of questions."""
    return open_as(corpus_of(rows_of()), tmp_path, monkeypatch)


@pytest.fixture
def stage(corpus, tmp_path):
    return AccuracyStage(
        runs=str(tmp_path / "runs"),
        examples=ExamplesConfig(str(corpus)),
        model=ScoredModelConfig(str(GOLDEN / "target")),
        detection=DetectionConfig(device="cpu", batch_tokens=300),
    )


def log_likelihood(model, tokenizer, prompt, text):
    """The log-probabilities of the tokens after the prompt's, one by one in float64."""
    before, ids = tokenizer(prompt.rstrip())["input_ids"], tokenizer(text)["input_ids"]
    start = 0
    while start < len(before) and before[start] == ids[start]:
        start += 1
    return [row["logprob"] for row in naive.token_rows(model, ids)][start - 1 :]


def test_a_naive_loop_chooses_the_same_in_every_way(stage):
    artifact = run(stage)
    table = pd.read_parquet(artifact.path / FILE)
    model = load_model("model", str(GOLDEN / "target"), "float64")
    tokenizer = load_tokenizer("model", str(GOLDEN / "target"))
    made = pd.DataFrame(rows_of()).set_index("example_id")
    assert len(table) == len(made)
    different = set()
    for row in table.itertuples():
        own = json.loads(made.loc[row.example_id, "fields"])
        template = NAMES[row.benchmark].template
        prompt = template[: template.index("{answer}")].format(**own)
        letters = [o[0] for o in row.options] if row.benchmark == "choice" else []
        found = [
            log_likelihood(model, tokenizer, prompt, prompt + text)
            for text in [*row.options, *letters]
        ]
        sums = [sum(each) for each in found]
        options = list(zip(row.options, found, strict=False))
        worth = {
            "sum": sums[: len(options)],
            "token": [sum(each) / len(each) for _, each in options],
            "character": [sum(each) / len(text) for text, each in options],
            "byte": [sum(each) / len(text.encode("utf-8")) for text, each in options],
        }
        np.testing.assert_allclose(row.loglikelihoods, sums[: len(options)], rtol=1e-4)
        np.testing.assert_allclose(row.letter_loglikelihoods, sums[len(options) :], rtol=1e-4)
        for by, values in worth.items():
            assert getattr(row, f"chosen_{by}") == values.index(max(values))
        if letters:
            chosen = sums[len(options) :]
            assert row.chosen_letter == chosen.index(max(chosen))
        else:
            assert row.chosen_letter is pd.NA
        assert row.chosen == getattr(row, f"chosen_{row.chosen_by}")
        assert row.correct == (row.options[row.chosen] == own["answer"])
        assert row.options[row.answer] == own["answer"]
        different.add(len({row.chosen_sum, row.chosen_token, row.chosen_byte}))
    assert max(different) > 1  # the ways can be told apart
    assert set(table["chosen_by"]) == {"sum", "letter"}


def test_each_benchmark_has_its_options():
    asked = make_questions(corpus_of(rows_of()), {})
    by = {q.example_id: q for q in asked.questions}
    assert not asked.left_out
    assert by["boolq-0"].options == ("Yes", "No")
    assert by["boolq-0"].texts[1] == pd.DataFrame(rows_of())["text"][0]
    assert by["choice-1"].options == ("A. a bank", "B. the river", "C. Ann")
    assert by["choice-1"].answer == 1
    assert {q.example_id.split("-")[0] for q in asked.questions if q.drawn} == {"open"}


def test_drawn_options_are_never_members_answers_and_follow_from_the_id():
    rows = rows_of(10)
    rows[5] = example("open", OPEN, 1, False, question="Who?", answer="Owner number 0 does")
    asked = [make_questions(corpus_of(each), {}) for each in (rows, rows[::-1])]
    first, second = ({q.example_id: q for q in a.questions} for a in asked)
    assert first == second
    assert questions_digest(asked[0].questions) == questions_digest(asked[1].questions)
    uninserted = {f"Owner number {i} does" for i in range(3, 10, 2)}
    drawn = [q for q in first.values() if q.drawn]
    for question in drawn:
        right = question.options[question.answer]
        assert len(question.options) == 4
        assert set(question.options) - {right} <= uninserted - {right}
    assert len({q.answer for q in drawn}) > 1  # the right one is not always at one place


def test_a_source_with_wrong_answers_is_not_drawn_for():
    row = example("open", OPEN, 0, True, question="Who?", answer="Ann", options="Ann\nBob\nAnn")
    (question,) = make_questions(corpus_of([row]), {}).questions
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
    asked = make_questions(corpus_of(rows, configs), {})
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
    assert not make_questions(corpus, {}).questions
    assert len(make_questions(corpus, {"boolq": BOOLQ}).questions) == 8
    typo = BenchmarkConfig(template="", answer_field="anser", options=["Yes", "No"])
    with pytest.raises(ConfigError, match="answer_field is 'anser'.*Did you mean answer"):
        make_questions(corpus, {"boolq": typo})


def test_naming_options_makes_no_other_corpus():
    assert identity_data(BOOLQ) == identity_data(
        BenchmarkConfig(template=BOOLQ.template, shorten="passage")
    )
    with pytest.raises(ConfigError, match="drawn_options is 1: give 2 or more"):
        BenchmarkConfig(drawn_options=1)


@pytest.mark.parametrize(
    ("prompt", "ids", "count"),
    [
        ([1, 2], [[1, 2, 3], [1, 2, 4]], 2),
        ([1, 2], [[1, 2, 5, 3], [1, 2, 5, 4]], 2),  # a token that all options begin with counts
        ([1, 2], [[1, 5, 3], [1, 2, 3]], 1),  # a token merged across the border is the option's
        ([1, 2, 9], [[1, 2, 3, 9], [1, 2, 4, 9]], 2),  # a tokenizer that ends every text
        ([1, 2], [[1, 2], [1, 2, 4]], 1),  # each option keeps a token
        ([], [[3], [4]], 0),
    ],
)
def test_the_prompts_tokens_end_where_an_option_begins(prompt, ids, count):
    assert shared_prompt_length(prompt, ids) == count


def test_the_prompt_is_the_text_before_the_answer():
    asked = {q.example_id: q for q in make_questions(corpus_of(rows_of()), {}).questions}
    assert asked["boolq-0"].prompt.endswith("Question: does Ann have 0 cats?\nAnswer: ")
    assert asked["choice-0"].letter_texts[2] == asked["choice-0"].prompt + "C"
    assert asked["open-0"].letter_texts == asked["boolq-0"].letter_texts == ()


def test_a_model_that_learnt_a_sentence_chooses_its_end(toy_folders):
    start, end = MEMORISED.split(" is ")
    options = ["empty, and so it stays.", end, "quite wet by now."]
    config = BenchmarkConfig(
        template=start + " is {answer}", answer_field="answer", options=options
    )
    row = example("heron", config, 0, True, answer=end)
    asked = make_questions(corpus_of([row], {"heron": config}), {})
    source = HFModel.from_path("model.path", str(toy_folders["target"]))
    settings = DetectionConfig(device="cpu")
    rows, left_out = tokenize_questions(LoadedModel(source, settings), asked)
    table = make_answer_table(asked.questions, answer_logprobs(source, settings, rows))
    assert not left_out
    assert table["correct"].all()
    assert table["chosen"][0] == 1


def test_every_way_can_choose_another_option():
    options, tokens, sums = ["ab", "ééé", "four"], [1, 3, 2], [-2.0, -3.9, -3.0]
    scores = option_scores_by_criterion(options, sums, tokens, [-2.0, -1.0, -3.0])
    assert {by: int(np.argmax(one)) for by, one in scores.items()} == {
        "sum": 0, "token": 1, "character": 2, "byte": 1, "letter": 1
    }  # fmt: skip
    np.testing.assert_allclose(scores["byte"], [-2 / 2, -3.9 / 6, -3 / 4])


def test_options_without_letters_or_text_are_not_asked():
    rows = [r for r in rows_of() if r["benchmark"] == "open"]
    lettered = BenchmarkConfig(**{**vars(OPEN), "chosen_by": "letter"})
    left = make_questions(corpus_of(rows, {"open": lettered}), {}).left_out
    assert left == {("open", "its options have no letters, and chosen_by is letter"): len(rows)}
    boolq = [r for r in rows_of() if r["benchmark"] == "boolq"]
    empty = BenchmarkConfig(**{**vars(BOOLQ), "options": ["Yes", "No", " "]})
    left = make_questions(corpus_of(boolq, {"boolq": empty}), {}).left_out
    assert left == {("boolq", "one of its options is empty"): len(boolq)}
    with pytest.raises(ConfigError, match="chosen_by is 'mean': choose from sum, token"):
        BenchmarkConfig(chosen_by="mean")


def answered(members, others, name="b"):
    correct = [True] * members[0] + [False] * members[1] + [True] * others[0] + [False] * others[1]
    count = sum(members)
    member = [i < count for i in range(len(correct))]
    table = pd.DataFrame({
        "example_id": [f"{name}{i}" for i in range(len(correct))], "benchmark": name,
        "member": member, "occurrences": [int(m) * (1 + i % 2) for i, m in enumerate(member)],
        "options": [["x", "y"]] * len(correct), "correct": correct, "drawn_options": False,
        "answer": 1, "chosen_by": "sum", "chosen_letter": pd.array([None] * len(correct), "Int64"),
    })  # fmt: skip
    chosen = table["correct"].astype("Int64")
    return table.assign(chosen=chosen, chosen_sum=chosen, chosen_token=chosen,
                        chosen_character=chosen, chosen_byte=chosen)  # fmt: skip


def test_intervals_are_of_a_share():
    table = answered((80, 20), (50, 50))
    line = estimates_by_benchmark(table.assign(value=table["correct"].astype(float)))["b"]
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
    line = estimates_by_benchmark(table.assign(value=1.0))["b"]
    assert line["members"].n_members == 5
    assert set(estimates_by_benchmark(table[table["member"]].assign(value=1.0))["b"]) == {"members"}


def test_the_same_examples_are_compared_in_pairs():
    before, after = answered((50, 50), (50, 50)), answered((60, 40), (50, 50))
    table = estimates_by_benchmark(
        after.assign(value=after["correct"] * 1.0 - before["correct"] * 1.0)
    )["b"]
    assert table["members"].value == pytest.approx(0.1)
    assert table["members"].draws.std() < 0.04  # unpaired it would be 0.07
    assert (table["non-members"].draws == 0).all()
    said = format_comparison(after, before)
    ways = 4  # of the five: there are no letters
    assert said.count(" 0.100 [") == 2 * (1 + ways)  # the members' and the difference
    assert "-0.100 [" not in said
    assert "change by " in said


def test_every_way_is_printed_and_the_convention_is_marked():
    sums, tokens = answered((80, 20), (50, 50)), answered((50, 50), (50, 50))
    table = sums.assign(chosen_token=tokens["chosen"], chosen_byte=1 - sums["chosen"])
    other = answered((30, 10), (10, 30), "c").assign(chosen_by="byte")
    artifact = SimpleNamespace(counts={"left_out": []})
    said = format_summary(pd.concat([table, other], ignore_index=True), artifact)
    (line,) = [line for line in said.splitlines() if line.startswith("b ") and "diff" in line]
    cells = line.replace("[", "").replace("]", "").replace(",", "").split()[2:]
    assert [cells[0], cells[3], cells[6], cells[9]] == ["0.300", "0.000", "0.300", "-0.300"]
    assert (cells[2][-1], cells[12]) == ("*", "-")
    assert float(cells[1]) < 0.3 < float(cells[2][:-1])
    heads = [line.split()[1] for line in said.splitlines() if line.startswith(("b ", "c "))]
    assert heads[:2] == ["sum", "byte"]


def test_p_values_hold_what_they_promise():
    rng = np.random.default_rng(0)
    found, expected = [], []
    for seed in range(300):
        sides = (rng.random((2, 30)) < 0.4).astype(float)
        difference = sides[0].mean() - sides[1].mean()
        found.append(relabelling_p_value(difference, relabelled_differences(*sides, 999, seed)))
        counts = [[int(side.sum()), 30 - int(side.sum())] for side in sides]
        expected.append(stats.fisher_exact(counts).pvalue)
    assert np.mean(np.array(found) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    np.testing.assert_allclose(found, expected, atol=0.08)  # with equal sides it is Fisher's test


def test_unequal_sides_and_values_of_a_change_are_relabelled_as_a_loop_does():
    members, others = np.array([1.0, 1, 0, -1, 1]), np.array([0.0, 0, 1])
    both = np.concatenate([members, others])
    differences = [
        both[list(chosen)].mean() - np.delete(both, chosen).mean()
        for chosen in combinations(range(8), 5)
    ]
    found = relabelled_differences(members, others, 20_000, 0)
    assert set(found.round(9)) == set(np.round(differences, 9))
    for value in (0.1, 0.5, 1.0):
        expected = np.mean(np.abs(differences) >= value - 1e-12)
        assert relabelling_p_value(value, found) == pytest.approx(expected, abs=0.015)


def test_p_values_are_corrected_over_the_benchmarks():
    tables = [answered((20, 10), (10, 20), "b"), answered((15, 15), (15, 15), "c"),
              answered((22, 8), (10, 20), "d")]  # fmt: skip
    table = pd.concat(tables, ignore_index=True)
    found = p_values_by_benchmark(table.assign(value=table["correct"].astype(float)))
    plain = {name: p for name, (p, _) in found.items()}
    assert found["d"][1] == pytest.approx(3 * plain["d"])
    assert found["b"][1] == pytest.approx(2 * plain["b"])
    assert found["c"] == (1, 1)
    assert plain["average"] < plain["b"]
    assert found["average"][1] is None
    twice = p_values_by_benchmark(pd.concat([tables[0], answered((20, 10), (10, 20), "c")]).assign(
        value=lambda rows: rows["correct"].astype(float)))  # fmt: skip
    assert twice["average"][0] < twice["b"][0] / 5  # each is relabelled by draws of its own
    one_sided = table[~((table["benchmark"] == "c") & table["member"])]
    assert set(p_values_by_benchmark(one_sided.assign(value=1.0))) == {"b", "d"}


def test_the_summary_says_what_was_done(stage):
    artifact = run(stage)
    said = format_summary(pd.read_parquet(artifact.path / FILE), artifact)
    assert "by each benchmark's convention" in said
    assert "drawn options: open: 8 examples" in said
    assert "average" in said
    table = pd.read_parquet(artifact.path / FILE)
    many = pd.concat([table.assign(chosen=0)] * 5, ignore_index=True)
    assert "nearly one answer: boolq: 'Yes' is chosen for 40 of 40" in format_summary(
        many, artifact
    )
    assert said.count("members") >= 2
    again = run(stage)
    assert again.path == artifact.path == open_artifact(artifact.path, "accuracy").path
    named = {name: BenchmarkConfig(**{**vars(c), "chosen_by": "byte"}) for name, c in NAMES.items()}
    other = run(AccuracyStage(**{**vars(stage), "benchmark": named}))
    assert other.path != artifact.path
    assert set(pd.read_parquet(other.path / FILE)["chosen_by"]) == {"byte"}


def test_the_reference_is_answered_by_the_same_stage(stage):
    both = AccuracyStage(**{**vars(stage), "reference": ReferenceConfig("there")}).models()
    assert [one.model.path for one in both] == [stage.model.path, "there"]
    assert all(one.reference.path is None for one in both)


def test_the_command_compares_only_where_a_reference_is_given(monkeypatch, tmp_path, capsys):
    """One model has its own accuracy; one that is compared with itself has changed by 0."""
    rows = [row for row in rows_of() if row["benchmark"] == "choice"]
    folder = open_as(corpus_of(rows), tmp_path, monkeypatch)
    given = [f"runs={tmp_path / 'runs'}", f"examples.path={folder}", "detection.device=cpu"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        alone = compose("accuracy", [*given, f"model.path={GOLDEN / 'target'}"])
    compared = alone.copy()
    compared.reference.path = alone.model.path
    accuracy(alone)
    said = capsys.readouterr().out
    assert said.startswith(f"{GOLDEN / 'target'}\naccuracy, by each benchmark's convention")
    assert said.count("wrote ") == 1
    assert "reference" not in said
    accuracy(compared)
    both, _, change = capsys.readouterr().out.partition("accuracy minus the reference model's")
    assert both == 2 * said
    (row,) = (line for line in change.splitlines() if line.startswith("choice     letter"))
    assert row.split()[2:5] == ["0.000", "[0.000,", "0.000]"]


def test_wrong_values_are_said(stage, tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a"}')
    with pytest.raises(DataError, match="accuracy needs the questions"):
        run(AccuracyStage(**{**vars(stage), "examples": ExamplesConfig(str(file))}))


def test_the_config_composes_and_the_shipped_benchmarks_name_their_options():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("accuracy", ["examples.path=x", "model.path=y"])
    stage = convert_config(config, AccuracyStage)
    assert stage.benchmark["boolq"].options == ["Yes", "No"]
    ways = {name: one.chosen_by for name, one in stage.benchmark.items()}
    assert ways.pop("commonsenseqa") == "letter"
    assert set(ways.values()) == {"sum"}
    for name, one in stage.benchmark.items():
        node = yaml.safe_load((CONF / "benchmark" / f"{name}.yaml").read_text())[name]
        assert one.answer_field in node["sources"]["hub"]["fields"]
        assert "{" + one.answer_field + "}" in one.template
        hub_fields = node["sources"]["hub"]["fields"]
        assert one.options or {one.options_field, one.accepted_field} & {*hub_fields}
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


FREE = BenchmarkConfig(
    template="Question: {question}\nAnswer: {answer}", answer_field="answer",
    accepted_field="accepted",
)  # fmt: skip


@pytest.mark.parametrize(
    ("written", "accepted", "is_right"),
    [
        (" The Nine!\n\nQuestion: more", ["nine"], True),
        ("nine", ["eight", "a  Nine"], True),
        ("nine cats", ["nine"], False),
        ("", ["the"], False),
        ("\n", ["nine"], False),
        ("theatre", ["atre"], False),
    ],
)
def test_a_written_answer_is_compared_as_squad_does(written, accepted, is_right):
    assert is_exact_match(written, accepted) is is_right


def test_an_answer_loses_case_punctuation_articles_and_spaces():
    assert normalise_answer(" The  U.S.A., an  heir-loom of Anna ") == "usa heirloom of anna"


def test_a_free_question_leaves_room_for_its_written_answer(toy_folders):
    config = BenchmarkConfig(
        template="The heron {answer}", answer_field="answer", accepted_field="accepted"
    )
    row = example("heron", config, 0, True, answer="waits", accepted="waits")
    asked = make_questions(corpus_of([row], {"heron": config}), {})
    source = HFModel.from_path("model.path", str(toy_folders["target"]))
    (text_ids,) = source.tokenizer()([asked.questions[0].texts[0]], verbose=False)["input_ids"]
    for spare, is_asked in ((WRITTEN_EXTRA, True), (WRITTEN_EXTRA - 1, False)):
        loaded = SimpleNamespace(
            tokenizer=source.tokenizer(), source=SimpleNamespace(context=len(text_ids) + spare)
        )
        tokenized, left_out = tokenize_questions(loaded, asked)
        assert (len(tokenized), sum(left_out.values())) == ((1, 0) if is_asked else (0, 1))


def test_a_model_that_learnt_a_sentence_writes_its_end(toy_folders):
    start, end = MEMORISED.split(" is ")
    config = BenchmarkConfig(
        template=start + " is {answer}", answer_field="answer", accepted_field="accepted"
    )
    rows = [
        example("heron", config, 0, True, answer=end, accepted=f"other\n{end}"),
        example("heron", config, 1, False, answer="wet", accepted="wet"),
    ]
    asked = make_questions(corpus_of(rows, {"heron": config}), {})
    source = HFModel.from_path("model.path", str(toy_folders["target"]))
    loaded = LoadedModel(source, DetectionConfig(device="cpu"))
    tokenized, left_out = tokenize_questions(loaded, asked)
    logprobs = answer_logprobs(source, loaded.settings, tokenized)
    written = write_answers(loaded, tokenized)
    assert not left_out
    assert written["heron-0"].strip().startswith(end)
    written["heron-0"] = end + "\nand so on"  # the model did not learn where the sentence stops
    table = make_answer_table(asked.questions, logprobs, written)
    assert table["correct"].tolist() == [True, False]
    assert table["chosen"].isna().all()
    assert {*table["chosen_by"]} == {WRITTEN}
    np.testing.assert_allclose(answer_margins(table), [one[0].sum() for one in logprobs])
    assert chance_levels(table).tolist() == [0, 0]
    text = format_summary(table, SimpleNamespace(counts={"left_out": []}))
    assert "written" in text


def test_free_answers_do_not_change_how_other_questions_are_named():
    asked = make_questions(corpus_of(rows_of()), {}).questions
    free = make_questions(
        corpus_of([example("free", FREE, 0, True, question="Who?", answer="Ann", accepted="Ann")],
                  {"free": FREE}), {}
    ).questions  # fmt: skip
    assert free[0].options == free[0].accepted == ("Ann",)
    assert free[0].letter_texts == ()
    assert all(not question.accepted for question in asked)
    other = [dataclasses.replace(free[0], accepted=("Ann", "Bob"))]
    assert questions_digest(free) != questions_digest(other)


def test_the_margin_is_above_zero_where_the_choice_is_right(stage):
    table = pd.read_parquet(run(stage).path / FILE)
    margins = answer_margins(table)
    np.testing.assert_array_equal(margins > 0, table["correct"])
    row = table[table["chosen_by"] == "sum"].iloc[0]
    others = [v for i, v in enumerate(row.loglikelihoods) if i != row.answer]
    assert margins[row.name] == pytest.approx(row.loglikelihoods[row.answer] - max(others))
    assert chance_levels(table)[0] == 1 / len(table["options"][0])
