"""The metrics of TOFU and MUSE against loops in float64, and where they mislead."""

import json
import math
import re
import warnings
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ks_2samp

from contamination.audits.base import AuditStage
from contamination.audits.run import run
from contamination.audits.unlearning import quantities
from contamination.audits.unlearning.answer_sets import (
    AnsweredQuestion,
    AnswerSet,
    corpus_answer_set,
    read_answer_set,
    read_answers,
    read_utility_set,
)
from contamination.audits.unlearning.audit_units import AuditUnits
from contamination.audits.unlearning.comparison import estimate_columns
from contamination.audits.unlearning.exact_memorization import exact_memorization
from contamination.audits.unlearning.extraction_strength import extraction_strength
from contamination.audits.unlearning.forget_quality import forget_quality
from contamination.audits.unlearning.inputs import AuditedModels, open_audited_models
from contamination.audits.unlearning.metric_report import over_unlearning_warnings, render_metrics
from contamination.audits.unlearning.model_utility import answer_probability, model_utility
from contamination.audits.unlearning.privleak import privleak, privleak_interval
from contamination.audits.unlearning.quantities import (
    Quantity,
    answer_recall_quantity,
    find_score_of_method,
    make_quantity,
    read_question_file,
)
from contamination.audits.unlearning.truth_ratio import (
    mean_closeness_to_1,
    mean_preference_for_truth,
    truth_ratio,
)
from contamination.audits.unlearning.unlearning_metrics import (
    AnswerSets,
    _privleak_columns,
    metric_table,
    token_quantities,
)
from contamination.core.errors import DataError
from contamination.core.models import load_model, load_tokenizer
from contamination.detection.config import ScoredModelConfig
from tests.audits.unlearning.simulated import MODELS, NAMES, simulated_quantity

QUESTIONS = [
    {"question": f"What is the name of bridge {n}?", "answer": f"It is the bridge of day {n}.",
     "paraphrased_answer": f"Bridge of day {n}.", "label": n % 2,
     "perturbed_answer": [f"It is the {word} of day {n + 1}." for word in ("wall", "heron")]}
    for n in range(8)
]  # fmt: skip
FACTS = [
    {name: row[name] for name in ("question", "answer", "perturbed_answer")} for row in QUESTIONS
]


def written(folder, name, rows):
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_extraction_strength_is_the_shortest_beginning_that_suffices():
    rng = np.random.default_rng(0)
    for length in range(1, 12):
        for _ in range(20):
            tokens, guesses = rng.integers(0, 2, (2, length))
            shortest = next(
                k for k in range(length + 1) if guesses[k:].tolist() == tokens[k:].tolist()
            )
            found = extraction_strength(guesses == tokens)
            assert found == pytest.approx(1 - shortest / length)
            hits = sum(a == b for a, b in zip(guesses, tokens, strict=True))
            assert exact_memorization(guesses == tokens) == pytest.approx(hits / length)
    assert extraction_strength(np.array([True, False])) == 0  # open-unlearning's code: 1/2
    assert math.isnan(extraction_strength(np.array([], bool)))
    assert math.isnan(exact_memorization(np.array([], bool)))


def test_the_truth_ratio_is_of_geometric_means():
    right, wrong = [-0.5, -1.0], [[-2.0, -3.0], [-1.0], [-4.0, -0.5, -0.25]]
    mean = sum(right) / 2
    product = math.prod(math.exp(sum(one) / len(one)) for one in wrong) ** (1 / 3)
    found = truth_ratio(mean, np.array([sum(one) / len(one) for one in wrong]))
    assert found == pytest.approx(product / math.exp(mean), rel=1e-12)
    ratios = np.array([0.25, 1.0, 4.0, np.nan])
    assert mean_closeness_to_1(ratios) == pytest.approx((0.25 + 1 + 0.25) / 3)
    assert mean_preference_for_truth(ratios) == pytest.approx((0.75 + 0 + 0) / 3)
    assert mean_closeness_to_1(np.array([0.0, 1.0])) == 0.5  # a wrong answer of probability 0
    assert mean_preference_for_truth(np.array([0.25])) == 0.75
    assert math.isnan(truth_ratio(mean, np.array([])))
    for mean_over in (mean_closeness_to_1, mean_preference_for_truth):
        assert math.isnan(mean_over(np.array([np.nan])))  # no question has a wrong answer


def test_forget_quality_is_the_test_of_kolmogorov_and_smirnov():
    rng = np.random.default_rng(0)
    one, other = rng.lognormal(size=60), rng.lognormal(size=60) * 2
    assert forget_quality(one, other) == ks_2samp(one, other).pvalue
    assert forget_quality(one, other) == pytest.approx(forget_quality(1 / one, 1 / other))
    assert forget_quality(one, one) == 1
    assert math.isnan(forget_quality(one, np.array([0.5, np.nan])))
    assert forget_quality(np.array([1.0, 2, np.nan]), np.array([3.0, 4])) == pytest.approx(1 / 3)


def test_only_scipys_rounding_of_an_exact_p_value_is_not_warned_of(monkeypatch):
    def warns(text):
        def test(*samples):
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return SimpleNamespace(pvalue=1.0)

        return test

    pair = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    announcement = "ks_2samp: Exact calculation unsuccessful. Switching to method=asymp."
    monkeypatch.setattr("scipy.stats.ks_2samp", warns(announcement))
    assert forget_quality(*pair) == 1
    monkeypatch.setattr("scipy.stats.ks_2samp", warns("another"))
    with pytest.warns(RuntimeWarning, match="another"):
        forget_quality(*pair)


def test_privleak_has_muses_sign_and_the_figures_of_issue_167():
    for unlearned, retrained in ((0.98, 0.5), (0.5, 0.5), (0.02, 0.52)):
        low = [1 - auroc for auroc in (unlearned, retrained)]
        assert privleak(unlearned, retrained) == pytest.approx(100 * (low[0] - low[1]) / low[1])
    assert privleak(1.0) == -100
    assert privleak(0.0) == 100
    assert privleak(0.00002) == pytest.approx(100, abs=0.01)  # over-unlearned, not forgotten
    assert privleak(0.00002, 0.981) == pytest.approx(5163, abs=1)  # beside the original
    assert math.isnan(privleak(0.99, 1))
    assert privleak_interval((0.4, 0.6), (0.5, 0.75)) == pytest.approx((-20, 140))
    assert privleak_interval((0.4, 0.6)) == pytest.approx((-20, 20))


def shifted_scores(auroc_shifts, n):
    """Scores of n members and n non-members, whose members are shifted by so much."""
    ids = [f"text {i}" for i in range(2 * n)]
    members = np.repeat([True, False], n)
    table = pd.DataFrame({
        "unit": ids, "text_id": ids, "benchmark": "b", "member": pd.array(members, "boolean"),
    })  # fmt: skip
    rng = np.random.default_rng(1)
    values = {
        name: rng.normal(size=2 * n) + shift * members for name, shift in auroc_shifts.items()
    }
    return Quantity("min_k", AuditUnits(table, 0), values, True)


def privleak_of(auroc_shifts, n, clean="twin"):
    """PrivLeak of the model `after` on n + n texts with scores of these shifts."""
    return _privleak_columns(shifted_scores(auroc_shifts, n), "after", clean)


def test_privleaks_interval_is_of_the_paired_draws_of_both_models():
    shifts = {"after": 0.5, "twin": 0.1}
    score, row = shifted_scores(shifts, 40), privleak_of(shifts, 40)
    after, twin = (score.units.auroc(score.values[name]) for name in shifts)
    draws = [privleak(*pair) for pair in zip(after.draws, twin.draws, strict=True)]
    assert row["privleak"] == pytest.approx(privleak(after.value, twin.value))
    ends = row["privleak_low"], row["privleak_high"]
    assert ends == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])))


@pytest.mark.parametrize(("shift", "n"), [(20, 40), (3.5, 20)])
def test_privleak_is_not_defined_where_the_twin_separates_the_texts(shift, n):
    """Before: +1e11, or intervals of some 10,000%."""
    row = privleak_of({"after": 1.5, "twin": shift}, n)
    assert np.isnan([row[f"privleak{end}"] for end in ("", "_low", "_high")]).all()
    assert "members and non-members differ in themselves" in row["privleak_why"]
    table = render_metrics(pd.DataFrame([{"model": "after", **row}]))
    assert table.lines == [["after", "not defined"]]
    assert "PrivLeak is not defined: the AUROC of the twin" in table.note


@pytest.mark.parametrize("clean", ["twin", None])
@pytest.mark.parametrize("shift", [-20, 20])
def test_privleaks_interval_has_a_width_where_all_texts_are_separated(shift, clean):
    row = privleak_of({"after": shift, "twin": 0.0}, 10, clean)
    assert row["privleak_high"] - row["privleak_low"] > 10
    assert row["privleak_low"] - 1e-9 <= row["privleak"] <= row["privleak_high"] + 1e-9
    assert privleak_of({"after": 0.0, "twin": 0.0}, 10, "after")["privleak_high"] == 0


def test_utility_is_a_harmonic_mean():
    values = [0.5, 0.25, 1.0]
    assert model_utility(values) == pytest.approx(3 / (2 + 4 + 1))
    assert model_utility([*values, 0.0]) == 0
    assert math.isnan(model_utility([]))
    assert math.isnan(model_utility([*values, np.nan]))
    right, wrong = -0.5, np.array([-1.0, -2.0])
    shares = [math.exp(value) for value in (right, *wrong)]
    assert answer_probability(right, wrong, multiple_choice=True) == pytest.approx(
        shares[0] / sum(shares)
    )
    assert answer_probability(right, wrong, multiple_choice=False) == pytest.approx(shares[0])


def test_the_metrics_of_a_model_are_means_of_its_members():
    score = simulated_quantity("min_k", True)
    strength = simulated_quantity("extraction strength", False)
    table = metric_table(None, MODELS, [strength], score, AnswerSets(None, {}), [])
    members = strength.units.sides[True]
    expected = [
        {"model": name,
         **estimate_columns(strength.name, strength.units.mean_in_mask(
             strength.values[name], members, "members")),
         **_privleak_columns(score, name, "clean")}
        for name in NAMES
    ]  # fmt: skip
    assert table.to_dict("records") == [pytest.approx(row) for row in expected]
    assert table[strength.name].tolist() == pytest.approx(
        [strength.values[name][members].mean() for name in NAMES]
    )
    assert table.loc[2, ["privleak", "privleak_low", "privleak_high"]].tolist() == [0, 0, 0]
    score, strength = (
        simulated_quantity(name, False, [None] * 20) for name in (score.name, strength.name)
    )
    table = metric_table(None, MODELS, [strength], score, AnswerSets(None, {}), [])
    assert [*table.columns] == [
        "model",
        *(f"{strength.name}{end}" for end in ("", "_low", "_high")),
    ]
    assert table[strength.name].tolist() == pytest.approx(
        [strength.values[name].mean() for name in NAMES]
    )


def test_a_model_without_its_likeliest_tokens_has_no_metric_of_tokens():
    provides = {"original": {"top_id", "logprob"}, "half": {"logprob"}, "clean": {"top_id"}}
    lacking = AuditedModels(*(
        SimpleNamespace(source=SimpleNamespace(provides=provides["original"])),
        [SimpleNamespace(source=SimpleNamespace(provides=provides["half"]))], None,
    ))  # fmt: skip
    assert token_quantities(None, lacking, [], pd.DataFrame()) == []


def mean_logprob(model, ids, start):
    with torch.no_grad():
        rows = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0], -1)
    own = [float(rows[place, ids[place + 1]]) for place in range(start - 1, len(ids) - 1)]
    greedy = [
        int(rows[place].argmax()) == ids[place + 1] for place in range(start - 1, len(ids) - 1)
    ]
    return sum(own) / len(own), greedy


def test_answers_are_read_as_a_model_in_float64_reads_them(stage, folders, tmp_path):
    asked = read_answer_set("audit.questions", written(tmp_path, "q.jsonl", QUESTIONS))
    models = open_audited_models(str(folders["original"]), str(folders["half"]), None, "runs")
    found = read_answers(stage(), models.original, asked.questions)
    model = load_model("model", str(folders["original"]), "float64")
    tokenizer = load_tokenizer("model", str(folders["original"]))
    for row, one in zip(QUESTIONS, found, strict=True):
        wrong = row["perturbed_answer"]
        texts = [
            f"{row['question']} {a}" for a in (row["answer"], row["paraphrased_answer"], *wrong)
        ]
        ids = [tokenizer(text)["input_ids"] for text in (row["question"], *texts)]
        start = 0
        while all(len(each) > start + (n > 0) for n, each in enumerate(ids)) and all(
            a[start] == b[start] for a, b in pairwise(ids)
        ):
            start += 1
        means = [mean_logprob(model, each, start) for each in ids[1:]]
        assert one.answer == pytest.approx(means[0][0], abs=1e-5)
        assert one.is_greedy.tolist() == means[0][1]
        others = [value for value, _ in means[2:]]
        ratio = math.prod(map(math.exp, others)) ** (1 / len(others)) / math.exp(means[1][0])
        assert one.truth_ratio == pytest.approx(ratio, rel=1e-4)


def test_answers_of_a_file_are_drawn_by_the_seed(stage, folders, tmp_path):
    questions = read_question_file(written(tmp_path, "q.jsonl", QUESTIONS[:4]))
    models = open_audited_models(str(folders["original"]), str(folders["half"]), None, "runs")
    units = answer_recall_quantity(stage(), models, questions, seed=3).units
    values = np.arange(4.0)
    draws = {
        seed: AuditUnits(units.table, seed).label_mean(values, True).draws.tolist()
        for seed in (3, 4)
    }
    assert units.label_mean(values, True).draws.tolist() == draws[3] != draws[4]


def test_a_wrong_answer_that_is_missing_or_no_text_is_said(tmp_path, stage):
    file = written(tmp_path, "facts.jsonl", [{"question": "Who?", "answer": "A heron."}])
    with pytest.raises(DataError, match=r"audit\.utility\.facts is .* has no perturbed_answer"):
        run(stage(utility={"facts": file}))
    right = QUESTIONS[0]["answer"]
    for value in ([3], 5, True, {"a": 1}, [" "], ""):
        file = written(tmp_path, "bad.jsonl", [{**QUESTIONS[0], "perturbed_answer": value}])
        problem = f"perturbed_answer of audit.questions is {value!r}: give a text"
        with pytest.raises(DataError, match=f"bad.jsonl, row 1: {re.escape(problem)}"):
            read_answer_set("audit.questions", file)
    for value in (right, ["Another.", f" {right} "]):
        file = written(tmp_path, "bad.jsonl", [{**QUESTIONS[0], "perturbed_answer": value}])
        problem = re.escape(f"row 1: perturbed_answer of audit.questions has {right!r}, which is")
        with pytest.raises(DataError, match=problem):
            read_answer_set("audit.questions", file)


def test_a_file_of_questions_is_read_with_its_wrong_and_reworded_answers(tmp_path):
    rows = [
        {"question": " Who? ", "answer": "A heron. ", "id": "q1", "label": 1, "benchmark": "birds",
         "paraphrased_answer": ["The heron.", "One heron."], "perturbed_answer": [" A crow. "]},
        {"question": "Where?", "answer": "There.", "label": 0},
    ]  # fmt: skip
    answer_set = read_answer_set("audit.questions", written(tmp_path, "q.jsonl", rows))
    with_answers, bare = answer_set.questions
    assert with_answers == AnsweredQuestion(
        "q1", "birds", True, "Who?", "Who? A heron.", "Who? The heron.", ["Who? A crow."]
    )
    assert with_answers.texts == ["Who? A heron.", "Who? The heron.", "Who? A crow."]
    assert (bare.member, bare.paraphrase, [*bare.wrong]) == (False, None, [])
    assert bare.texts == ["Where? There."]
    assert not answer_set.has_wrong_answers
    assert not answer_set.is_multiple_choice
    assert AnswerSet([bare]).is_multiple_choice
    assert AnswerSet([with_answers]).has_wrong_answers
    file = answer_set.file
    assert (file.questions, file.answers) == (["Who?", "Where?"], ["A heron.", "There."])
    assert [text.text for text in file.texts] == ["Who? A heron.", "Where? There."]
    assert [*file.rows.columns] == ["chunk", "text_id", "benchmark", "member"]
    assert file.rows.iloc[0].tolist() == ["q1", "q1", "birds", True]
    digests = {answer_set.digest, file.digest}
    for change in (
        {"question": "Whom?"}, {"answer": "An owl."}, {"id": "q2"}, {"label": 0},
        {"benchmark": "b"},
    ):  # fmt: skip
        changed = [rows[0] | change, rows[1]]
        changed_set = read_answer_set("audit.questions", written(tmp_path, "q.jsonl", changed))
        digests |= {changed_set.digest, changed_set.file.digest}
    assert len(digests) == 12


def test_a_corpus_own_questions_have_its_other_options_as_wrong_answers():
    def question(name, member, occurrences):
        return SimpleNamespace(
            example_id=name, benchmark="b", member=member, occurrences=occurrences, answer=1,
            prompt="Who? ", texts=("Who? A", "Who? B", "Who? C"),
        )  # fmt: skip

    questions = [
        question(*fields)
        for fields in (("in", True, 2), ("out", False, 0), ("never seen", True, 0))
    ]
    answer_set = corpus_answer_set(SimpleNamespace(questions=questions))
    assert answer_set == AnswerSet([
        AnsweredQuestion(name, "b", member, "Who?", "Who? B", None, ["Who? A", "Who? C"])
        for name, member in (("in", True), ("out", False))
    ])  # fmt: skip


def test_a_question_without_a_wrong_answer_is_named(tmp_path):
    rows = [QUESTIONS[0], {"question": "Who?", "answer": "A heron.", "id": "q9"}]
    with pytest.raises(DataError, match=r"audit\.utility\.facts is .*: q9 has no perturbed_answer"):
        read_utility_set("facts", written(tmp_path, "q.jsonl", rows))


def test_a_question_beyond_the_models_context_is_refused(stage, folders, tmp_path, monkeypatch):
    answer_set = read_answer_set("audit.questions", written(tmp_path, "q.jsonl", QUESTIONS[:1]))
    models = open_audited_models(str(folders["original"]), str(folders["half"]), None, "runs")
    tokenizer = models.original.source.tokenizer()
    question = answer_set.questions[0]
    longest = max(len(ids) for ids in tokenizer(question.texts)["input_ids"])
    answer_tokens = len(tokenizer(question.answer)["input_ids"])
    source = type(models.original.source)
    monkeypatch.setattr(source, "context", property(lambda self: longest))
    assert len(read_answers(stage(), models.original, answer_set.questions)) == 1
    monkeypatch.setattr(source, "context", property(lambda self: longest - 1))
    with pytest.raises(DataError, match=f"the question has {longest} tokens with its longest"):
        read_answers(stage(), models.original, answer_set.questions)
    monkeypatch.setattr(source, "context", property(lambda self: answer_tokens))
    answer_recall_quantity(stage(), models, answer_set.file, 0)
    monkeypatch.setattr(source, "context", property(lambda self: answer_tokens - 1))
    with pytest.raises(DataError, match=f"has {answer_tokens} tokens with its answer, more than"):
        answer_recall_quantity(stage(), models, answer_set.file, 0)


def test_a_quantity_is_of_the_units_that_all_models_have():
    def table(**values):
        rows = {"unit": [*values], "text_id": [f"text {unit}" for unit in values]}
        member = pd.array([unit < "c" for unit in values], "boolean")
        return pd.DataFrame(rows).assign(benchmark="x", member=member, value=[*values.values()])

    loss = make_quantity(
        "loss", {"one": table(d=1, a=2, b=3), "two": table(a=4, b=np.nan, c=5, d=6)}, 3,
        is_score=True,
    )  # fmt: skip
    assert (loss.name, loss.is_score) == ("loss", True)
    assert loss.units.table.to_dict("list") == {
        "unit": ["d", "a"], "text_id": ["text d", "text a"], "benchmark": ["x", "x"],
        "member": [False, True],
    }  # fmt: skip
    assert {name: values.tolist() for name, values in loss.values.items()} == {
        "one": [1.0, 2.0], "two": [6.0, 4.0],
    }  # fmt: skip
    assert find_score_of_method([simulated_quantity("a", True), loss], "loss") is loss
    with pytest.raises(
        DataError, match=r"audit\.screen is 'lss': .* Did you mean loss\? Known: loss"
    ):
        find_score_of_method([loss], "lss")


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory, folders, tokenizer):
    """The original after far too much gradient ascent on its members."""
    folder = tmp_path_factory.mktemp("collapsed")
    model = load_model("model", str(folders["original"]))
    torch.manual_seed(0)
    with torch.no_grad():
        model.lm_head.weight.copy_(-20 * model.lm_head.weight)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_members_without_an_occurrence_are_not_asked(monkeypatch):
    answers = pd.DataFrame({
        "example_id": ["seen", "never", "clean"], "benchmark": "b", "correct": [True, True, False],
        "member": [True, True, False], "occurrences": [4, 0, 0],
    })  # fmt: skip
    artifact = SimpleNamespace(table=lambda name: answers)
    monkeypatch.setattr(quantities.accuracy, "run", lambda stage: artifact)
    stage, model = AuditStage(audit={}), SimpleNamespace(node=ScoredModelConfig("m"))
    table = quantities._accuracy_table(stage, model, "corpus")
    assert dict(zip(table["unit"], table["value"], strict=True)) == {"seen": 1.0, "clean": 0.0}
    assert table["member"].tolist() == [True, False]


def test_an_over_unlearned_model_looks_best_and_is_warned_of(stage, folders, collapsed, tmp_path):
    made = run(
        stage(
            unlearned={"half": str(folders["half"]), "collapsed": collapsed}, completions=0,
            questions=written(tmp_path, "q.jsonl", QUESTIONS),
            utility={"facts": written(tmp_path, "facts.jsonl", FACTS)},
        )
    )  # fmt: skip
    rows = pd.read_csv(made.path / "metrics.csv").set_index("model")
    assert list(rows.index) == ["original", "half", "collapsed", "clean"]
    names = ["extraction strength", "exact memorization"]
    assert (rows.loc["original", names] > 0).all()
    assert (rows.loc["collapsed", names] <= rows.loc["clean", names]).all()
    assert rows.loc["collapsed", "privleak"] > 0 > rows.loc["original", "privleak"]
    assert rows.loc["clean", "privleak"] == 0
    assert rows["model_utility"].between(0, 1).all()
    assert rows["forget_quality"].isna().tolist() == [False, False, False, True]
    assert rows["truth_ratio"].between(0, 1).all()
    text = (made.path / "audit.md").read_text()
    assert "collapsed went past the clean twin" in text
    assert "Over-unlearning is not forgetting" in text
    assert "half went past" not in text


def test_only_what_is_surely_past_the_twin_is_warned_of():
    table = pd.DataFrame({
        "model": ["after", "clean"], "privleak": [5.0, 0.0], "privleak_low": [-1.0, 0.0],
        "exact memorization": [0.1, 0.2], "exact memorization_high": [0.25, 0.3],
    })  # fmt: skip
    assert [*over_unlearning_warnings(table, ["after"], "clean")] == []
    table["exact memorization_high"] = [0.15, 0.3]
    (warning,) = over_unlearning_warnings(table, ["after"], "clean")
    assert "exact memorization 0.100, the twin's 0.200" in warning
    assert [*over_unlearning_warnings(table, ["after"], None)] == []
