"""The tables and notes that a reader sees, whole, and the limits of an attack's file."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.core.errors import ConfigError
from contamination.core.statistics.estimates import Estimate
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.data.texts import Texts
from contamination.detection.attack_file import (
    MAX_UNITS,
    MAX_WEIGHT,
    PREFIX_BYTES,
    CellRecord,
    DataSheet,
    Network,
    Result,
    TrainedAttack,
    benchmark_key,
    pack_prefixes,
    read_attack,
    round_weights,
    text_prefix,
)
from contamination.detection.attack_sheet import format_data_sheet
from contamination.detection.benchmark_summary import (
    MetricTable,
    blind_notes,
    column_label,
    describe_sizes,
)
from contamination.detection.evaluation import BenchmarkEstimates
from contamination.detection.flags import (
    describe_contamination,
    describe_flags,
    merge_flag_counts,
    reason_unranked,
    zero_probability_flag,
)
from contamination.detection.passes import LOWEST_LOGPROB, ORIGINAL, Example, Pass, TokenStats
from contamination.detection.summary import summarise_scores
from contamination.detection.tasks.accuracy_summary import format_summary
from contamination.detection.tasks.context_drop import ContextDrops


def flag_table(*rows):
    columns = ["method", "variant", "flag", "texts", "of"]
    return pd.DataFrame([dict(zip(columns, row, strict=True)) for row in rows])


def test_flags_of_several_methods_are_merged_and_described():
    first_flags = flag_table(("", "", "blank", 1, 9), ("min_k", "k=0.2", "", 8, 9))
    second_flags = flag_table(("", "", "blank", 1, 9), ("loss_upper_bound", "", "short", 2, 9))
    assert [*describe_flags(merge_flag_counts([second_flags, first_flags]))] == [
        "loss_upper_bound: compares with the target's own past, which no attacker has.",
        "not ranked, and in no metric: 1 of 9 texts: blank.",
        "loss_upper_bound: 2 of 9 texts: short.",
    ]


def test_a_text_has_as_many_scored_tokens_as_are_asked_for():
    assert reason_unranked("a", 5, 5) == ""
    assert reason_unranked("a", 4, 5) == "fewer than 5 scored tokens"
    assert reason_unranked(" \n", 9, 5) == "blank"


def test_a_token_of_probability_0_is_flagged_in_any_copy():
    sound, zero = (TokenStats(logprob=np.float32([-1, low])) for low in (-99, LOWEST_LOGPROB))
    swapped = Pass(view="swap", n=2, share=0.2)
    reason = "a token of probability 0, taken as 2^-149"
    for copy, flag in ((sound, ""), (zero, reason)):
        example = Example("a", "text", {ORIGINAL: (sound,), swapped: (sound, copy)})
        assert zero_probability_flag(example) == flag


def test_texts_that_a_corpus_has_beside_their_copies_are_counted_by_side():
    labels = [True, False, False, None, True]
    texts = [
        replace(make_text(str(n), f"Text {n}", label, ""), contamination="pile" if n < 4 else "")
        for n, label in enumerate(labels)
    ]
    assert [*describe_contamination(Texts.of(texts))] == [
        "4 of 5 texts (1 member, 2 non-members, 1 without label) share text with a corpus beside "
        "their copies: the column contamination names the corpus."
    ]
    assert [*describe_contamination(Texts.of(texts[4:]))] == []


def test_the_likeliest_members_are_listed_by_rank_with_their_beginnings():
    texts = [make_text(f"t{i}", f"A  text\nof {'x' * 80} {i}", None, "") for i in range(7)]
    scores = [0.5, 3.25, -1, 3.25, 1e-7, 2, 9]
    rows = [[f"t{i}", "loss", "k=1", score, "", i != 6] for i, score in enumerate(scores)]
    columns = ["example_id", "method", "variant", "score", "flag", "ranked"]
    start = f"A text of {'x' * 50}"
    expected = "\n".join(
        ["first", "6 texts without labels; the likeliest members by each method:", "loss k=1",
         *(f"  {rank:>4}  {score:>12}  {name:<24} {start}" for rank, score, name in [
             (1, "3.25", "t1"), (1, "3.25", "t3"), (3, "2", "t5"), (4, "0.5", "t0"),
             (5, "1e-07", "t4")])]
    )  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    assert summarise_scores(table, texts, notes=["first"]) == expected


def answers(benchmark, members, others, occurrences=(1, 2)):
    """Of each side the numbers of right and of wrong answers; options x and y, and y is right."""
    counts = [*members, *others]
    is_right = np.repeat([True, False, True, False], counts).tolist()
    is_member = np.repeat([True, True, False, False], counts)
    chosen = pd.array([int(answer) for answer in is_right], "Int64")
    no_choice = pd.array([None] * len(is_right), "Int64")
    return pd.DataFrame({
        "example_id": [f"{benchmark}{i}" for i in range(len(is_right))], "benchmark": benchmark,
        "member": is_member, "occurrences": is_member * np.resize(occurrences, len(is_member)),
        "options": [["x", "y"]] * len(is_right), "correct": is_right,
        "drawn_options": benchmark == "b", "answer": 1, "chosen_by": "sum", "chosen": chosen,
        "chosen_sum": chosen, "chosen_token": 1 - chosen, "chosen_character": chosen,
        "chosen_byte": chosen, "chosen_letter": no_choice,
    })  # fmt: skip


def words_by_line(text):
    """The words of each line, without the bounds of intervals; p-values other than 1 are p."""
    words = re.sub(r" \[-?\d\.\d{3}, -?\d\.\d{3}\]", " []", text)
    return [re.sub(r" +", " ", re.sub(r"0\.\d{4}", "p", line)) for line in words.splitlines()]


def test_the_accuracy_of_two_benchmarks_is_one_text():
    table = pd.concat([answers("a", (18, 2), (5, 5)), answers("b", (8, 8), (8, 8), (0, 1))],
                      ignore_index=True)  # fmt: skip
    left_out = [{"benchmark": "a", "examples": 3, "reason": "it was cut"}]
    summary = format_summary(table, SimpleNamespace(counts={"left_out": left_out}))
    ways = ["sum", "token", "character", "byte", "letter"]
    assert [line.rstrip() for line in words_by_line(summary)] == [
        "accuracy, by each benchmark's convention (95% bootstrap intervals; number of examples; "
        "p-values by relabeling, Holm's over the benchmarks)",
        "benchmark chosen by members non-members difference p p Holm chance",
        "a sum 0.900 [] (20) 0.500 [] (10) 0.400 [] p p 0.500",
        "b sum 0.500 [] (8) 0.500 [] (16) 0.000 [] 1.0000 1.0000 0.500",
        "average 0.700 [] (28) 0.500 [] (26) 0.200 [] p - 0.500",
        "",
        "accuracy by every criterion of choice (*: the benchmark's convention)",
        f"benchmark {' '.join(ways)}",
        "a members 0.900 []* 0.100 [] 0.900 [] 0.900 [] -",
        "a non-members 0.500 []* 0.500 [] 0.500 [] 0.500 [] -",
        "a difference 0.400 []* -0.400 [] 0.400 [] 0.400 [] -",
        "b members 0.500 []* 0.500 [] 0.500 [] 0.500 [] -",
        "b non-members 0.500 []* 0.500 [] 0.500 [] 0.500 [] -",
        "b difference 0.000 []* 0.000 [] 0.000 [] 0.000 [] -",
        "average members 0.700 [] 0.300 [] 0.700 [] 0.700 [] -",
        "average non-members 0.500 [] 0.500 [] 0.500 [] 0.500 [] -",
        "average difference 0.200 [] -0.200 [] 0.200 [] 0.200 [] -",
        "",
        "occurrences benchmark accuracy",
        "0 a 0.500 [] (10)",
        "1 a 0.900 [] (10)",
        "2 a 0.900 [] (10)",
        "0 b 0.500 [] (16)",
        "1 b 0.500 [] (8)",
        "0 average 0.500 [] (26)",
        "1 average 0.700 [] (18)",
        "",
        "drawn options: b: 32 examples have no wrong answers of their own, so they were drawn from "
        "the answers of other questions that were not inserted",
        "not counted: 8 drawn as members but never inserted",
        "left out: a: 3, because it was cut",
    ]


def test_one_answer_for_nearly_all_examples_is_noted():
    for right, noted in ((16, False), (17, True)):
        table = answers("a", (right, 20 - right), (0, 0))
        summary = format_summary(table, SimpleNamespace(counts={"left_out": []}))
        note = f"nearly one answer: a: 'y' is chosen for {right} of 20 examples, so accuracy is abo"
        assert (note in summary) is noted
    artifact = SimpleNamespace(counts={"left_out": []})
    assert "nearly" not in format_summary(answers("a", (19, 0), (0, 0)), artifact)


def test_the_columns_of_a_contexts_shares():
    texts = pd.DataFrame({
        "example_id": [*"abcdef"], "benchmark": [*"aaabbb"], "label": [True, True, False] * 2,
        "context": [1, 1, 1, 0, 2, 2], "drop": [0.5, -0.5, 0.0, 1.0, np.nan, 0.25],
    })  # fmt: skip
    drops = ContextDrops(texts)
    assert drops.shares().to_dict("list") == {
        "benchmark": ["a", "b"], "share": [1 / 3, 1], "texts": [3, 1]
    }  # fmt: skip
    assert [line.rstrip() for line in words_by_line(drops.summary())] == [
        "set label share of texts with a drop [95%] texts",
        "a non-member 0.000 [] 1",
        "a member 0.500 [] 2",
        "b non-member 1.000 [] 1",
        "left out: 2 of 6 texts, which are too short or leave no room for another one before them",
    ]


def test_a_table_of_a_benchmark_in_markdown_is_escaped():
    table = MetricTable("wiki|x: AUROC", ["model", "32 a"], [["[m](u)", "0.5"]], ["a | b"])
    title, *rows, note = [line for line in table.markdown().splitlines() if line]
    assert [title, note] == ["### wiki\\|x: AUROC", "a \\| b"]
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[::2]] == [
        ["model", "32 a"], ["[m\\](u)", "0.5"]
    ]  # fmt: skip
    assert "\n\n| model" in table.markdown()
    lines = table.text().splitlines()
    assert [lines[0], lines[-1]] == ["wiki|x: AUROC", "a | b"]
    assert [line.split() for line in lines[1:-1]] == [["model", "32", "a"], ["[m](u)", "0.5"]]


def estimates(name, value, matched=0.5, notes=()):
    draws = np.random.default_rng(0).normal(0, 0.01, 1000)
    aurocs = {
        ("blind", ""): {
            "auroc": Estimate(99, 99, value, value + draws, trials=9999),
            "matched_auroc": Estimate(99, 99, matched, matched + draws, trials=9999),
        }
    }
    return BenchmarkEstimates(name, 99, 98, {} if notes else aurocs, notes=[*notes])


def test_a_blind_auroc_below_one_half_is_off_it_and_a_matched_one_is_not():
    config = ExamplesConfig("x", name="wiki")
    low = estimates("wiki/32/a", 0.3, 0.4)
    without_blind = estimates("wiki/64/a", 0.5, notes=["no blind row: few"])
    average = estimates("average", 0.9, 0.9)
    assert column_label("wiki/32/a", config) == "32 a"
    assert describe_sizes([low, without_blind, average], config) == (
        "Members + non-members: 32 a 99 + 98, 64 a 99 + 98."
    )
    notes = blind_notes([low, without_blind, average], config)
    assert notes[0] == "64 a: no blind row: few"
    assert notes[1].startswith("Blind AUROC off 0.5: 32 a 0.30 [0.2")
    assert len(notes) == 2


def make_network(**changed):
    numbers = {
        "features": ["a"], "center": [0.0], "scale": [1.0], "first": [[1.0, 2.0]],
        "first_bias": [0.0, 0.0], "second": [[0.0, 1.0], [1.0, 0.0]], "second_bias": [0.0, 0.0],
        "attention": [0.0, 0.0], "output": [0.0] * 4, "output_bias": 0.5,
    }  # fmt: skip
    return Network(**{**numbers, **changed})


@pytest.mark.parametrize(
    ("name", "fits", "too_far"),
    [
        ("scale", [1 / MAX_WEIGHT], [0.9 / MAX_WEIGHT]),
        ("output", [MAX_WEIGHT, -MAX_WEIGHT, 0, 0], [-1.1 * MAX_WEIGHT, 0, 0, 0]),
        ("output_bias", -1, [0.5]),
    ],
)
def test_numbers_up_to_the_limit_fit(name, fits, too_far):
    make_network(**{name: fits}).check()
    with pytest.raises(ValueError, match=f"network.{name} has "):
        make_network(**{name: too_far}).check()


def test_as_many_units_as_the_limit_fit():
    with pytest.raises(ValueError, match=f"has {MAX_UNITS + 1} numbers, not 1 to {MAX_UNITS}"):
        make_network(first_bias=[0.0] * (MAX_UNITS + 1)).check()
    with pytest.raises(ValueError, match=r"network.first has the shape \(1, 2\), not \(1, 1024\)"):
        make_network(first_bias=[0.0] * MAX_UNITS).check()


def make_sheet(**changed):
    cells = [CellRecord(name, 3, "e" * 20, "r", "x", weights, 8)
             for name, weights in (("one", "w" * 20), ("two", ""))]  # fmt: skip
    fields = {
        "date": "2025-01-02", "licence": "CC0", "seed": 7, "settings": {"hidden": 2, "epochs": 3},
        "cells": cells[:1], "held_out_cells": cells[1:], "benchmarks": {"NQ": "", "own": ""},
        "held_out_benchmarks": ["p", "q"], "text_prefixes": pack_prefixes([text_prefix("Ann")]),
    }  # fmt: skip
    return DataSheet(**{**fields, **changed})


def test_a_data_sheet_says_what_is_left_out_and_which_weights_are_known():
    numbers = [0.75, 0.7, 0.8, 0.0, 0.0, 0.0]
    results = [
        Result("held out", "held out", 1, 2, 1000, 20, method, metric, *numbers, left_out=left_out)
        for method in ("lt_mia", "loss")
        for metric, left_out in (("auroc", []), ("tpr", ["p", "q"]))
    ]  # fmt: skip
    attack = TrainedAttack(make_network(), make_sheet(results=results))
    text = format_data_sheet(attack)
    assert "is without p, q: too few texts." in text
    assert text.count("too few texts") == 1
    assert text.startswith(
        "LT-MIA, trained on 2025-01-02. Licence: CC0.\n\n- Network: 1 numbers per token, 19 weights"
        ".\n- Training: seed 7, hidden 2, epochs 3.\n- Benchmarks trained on: NQ, own.\n"
        f"- Benchmarks held out: p, q.\n- Checksum: {attack.checksum[:12]}.\n\n## Results\n\n"
    )
    assert "The 1 held-out cells share 1 model before" in text
    assert "(1 cell, 2 benchmarks, 1,000 members and 20 non-members)" in text
    rows = [line for line in text.splitlines() if line.startswith(("| lt_mia", "| loss"))]
    estimate, paired = "0.750 [0.700, 0.800]", "+0.000 [+0.000, +0.000]"
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows] == [
        ["lt_mia", estimate, "–", estimate, "–"],
        ["loss", estimate, paired, estimate, paired],
    ]
    table = text.partition("## Cells\n\n")[2].splitlines()
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in table[2:]] == [
        ["trained on", "one", "3", "w" * 12],
        ["held out", "two", "3", f"only the folder's hash: {'e' * 12}"],
    ]
    assert "## Limits" not in text


def test_an_attack_is_written_with_its_kind_and_read_again(tmp_path):
    attack, path = TrainedAttack(make_network(), make_sheet()), tmp_path / "attack.json"
    attack.write(path)
    assert path.read_text().startswith('{"kind": "lt_mia 2", "checksum": "')
    assert read_attack("weights", path, ["a"]) == attack
    for changed in ({"cells": []}, {"benchmarks": {}}, {"text_prefixes": ""}):
        TrainedAttack(make_network(), make_sheet(**changed)).write(path)
        with pytest.raises(ConfigError, match="its sheet names no text, no cell or no benchmark"):
            read_attack("weights", path, ["a"])
    TrainedAttack(make_network(), make_sheet(text_prefixes="AAAA")).write(path)
    with pytest.raises(ConfigError, match="sheet.text_prefixes is cut short"):
        read_attack("weights", path, ["a"])
    with pytest.raises(ConfigError, match="used: Is a directory. Give a file that `python"):
        read_attack("weights", tmp_path, ["a"])


def test_a_text_is_known_by_its_letters():
    sheet = make_sheet()
    assert all(map(sheet.has_trained_on, ("Ann", " a-n, N!", "ANN")))
    assert not any(map(sheet.has_trained_on, ("Anne", "", "An")))
    assert len(text_prefix("Ann")) == PREFIX_BYTES
    assert text_prefix("...") != text_prefix("!!")
    assert pack_prefixes([b"bbbbbb", b"aaaaaa", b"bbbbbb"]) == "YWFhYWFhYmJiYmJi"
    assert benchmark_key("NQ_Open - x") == "nqopenx"
    assert round_weights(np.array([[0.12345678, -1e-9], [1234567.8, 2.0]])) == [
        [0.123457, -1e-9], [1234570.0, 2.0]
    ]  # fmt: skip


def test_what_the_training_data_share_with_texts_is_described():
    sheet = make_sheet()
    texts = [make_text(str(n), text, None, "new") for n, text in enumerate(["Ann", "Ann", "Bob"])]
    assert sheet.describe_overlap(Texts.of(texts), {}) == "it was trained on 1 of these 2 texts"
    assert sheet.describe_overlap(Texts.of(texts[2:]), {}) is None
    pairs = zip(texts, ("n", "Nq", "OWN"), strict=True)
    renamed = [replace(text, benchmark=name) for text, name in pairs]
    shared = "it was trained on the benchmark Nq, OWN"
    assert sheet.describe_overlap(Texts.of(renamed), {}) == shared
    copy = SimpleNamespace(digest="e" * 20)
    for role, word in (("target", "model"), ("reference", "reference")):
        description = sheet.describe_overlap(Texts.of(renamed), {role: copy})
        assert description == f"the {word} is its training cell one"
