"""The summary over the parts of a labelled benchmark."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.core.statistics.estimates import Estimate, confidence_interval
from contamination.core.statistics.metrics import AUROC
from contamination.data.config import ExamplesConfig, SourceConfig
from contamination.data.examples import make_text
from contamination.data.texts import Texts
from contamination.detection.api import evaluate
from contamination.detection.baselines.blind import BLIND
from contamination.detection.baselines.matching import MATCHED
from contamination.detection.benchmark_summary import (
    average_over_parts,
    blind_notes,
    describe_sizes,
    estimate_parts,
    make_metric_tables,
    model_name_in_papers,
    render_benchmark_report,
)
from contamination.detection.evaluation import CONFIDENCE, BenchmarkEstimates, group_by_method
from contamination.detection.summary import format_estimate

CONFIG = ExamplesConfig(
    "x", name="wikimia", same_texts=["length", "setting"], papers="wikimia.csv",
    sources=[SourceConfig(has={"length": [32, 64], "setting": ["original"]})],
)  # fmt: skip
WORDS = ("river", "harbour", "ladder", "orchard", "winter", "window", "copper", "engine")


def made(shift=0.0, n=120, seed=0):
    """Texts of two parts with drawn labels; members tell of 2014 oftener by `shift`."""
    rng = np.random.default_rng(seed)
    texts, rows = [], []
    for length in (32, 64):
        for i in range(n):
            member = i % 2 == 0
            old = rng.random() < (0.5 + shift if member else 0.5 - shift)
            words = " ".join(rng.choice(WORDS, length // 4))
            text = f"{words} in {rng.integers(2010, 2016) if old else rng.integers(2018, 2024)}"
            name = f"wikimia/{length}/original"
            texts.append(make_text(f"{name}/{i}", text, member, name))
            rows.append([f"{name}/{i}", "loss", "", float(old) + rng.normal(0, 0.4), "", True])
    columns = ["example_id", "method", "variant", "score", "flag", "ranked"]
    return Texts.of(texts), pd.DataFrame(rows, columns=columns)


@pytest.fixture(scope="module")
def plain():
    """Texts without a shift, a method's scores, and their groups."""
    texts, table = made()
    return texts, table, groups_of(texts, table)


def groups_of(texts, table, config=CONFIG):
    return estimate_parts(lambda: group_by_method([table]), texts, config)


def test_a_part_is_evaluated_as_by_itself(plain):
    texts, table, (part, *_) = plain
    ids = [t.example_id for t in texts if t.benchmark == part.name]
    own = table[table["example_id"].isin(ids)]
    frame = pd.DataFrame([{"id": t.example_id, "text": t.text, "label": t.label,
                           "benchmark": t.benchmark} for t in texts][:120])  # fmt: skip
    expected = evaluate(own, frame, blind=False)
    value = expected[expected["metric"] == "auroc"]["value"].item()
    assert part.estimates["loss", ""]["auroc"].value == pytest.approx(value, abs=1e-12)


def test_the_average_of_the_same_texts_is_no_surer_than_its_parts(plain):
    texts, table, (*parts, average) = plain
    found = [one.estimates["loss", ""]["auroc"] for one in (*parts, average)]
    assert found[2].value == pytest.approx((found[0].value + found[1].value) / 2)
    widths = [np.diff(confidence_interval(one, CONFIDENCE)).item() for one in found]
    assert widths[2] == pytest.approx((widths[0] + widths[1]) / 2, rel=0.05)
    apart = ExamplesConfig("x", name="wikimia", sources=CONFIG.sources)
    alone = average_over_parts(parts, apart).estimates["loss", ""]["auroc"]
    assert np.diff(confidence_interval(alone, CONFIDENCE)).item() == pytest.approx(
        widths[2] / 2**0.5, rel=0.1
    )


def test_a_planted_shift_is_said_and_matched_away():
    groups = groups_of(*made(shift=0.3))
    for one in groups[:2]:
        raw, matched = one.estimates["loss", ""]["auroc"], one.estimates["loss", ""][MATCHED.name]
        assert one.estimates["blind", ""]["auroc"].value > 0.65 < raw.value
        low, high = confidence_interval(matched, CONFIDENCE)
        assert low <= 0.5 <= high
        assert high - low < 0.35
    (said,) = blind_notes(groups, CONFIG)  # and none of style: matching takes a few dates away
    assert said.startswith("Blind AUROC off 0.5: 32 original 0.")
    assert "may measure dates and style, not memory" in said


@pytest.mark.parametrize(("parts", "said"), [(1, True), (2, False), (8, False)])
def test_one_of_several_parts_is_not_off_by_the_measure_of_a_single_one(parts, said):
    """A blind AUROC whose 95% interval just excludes 0.5: of eight sound parts a third have one."""
    draws = np.random.default_rng(0).normal(0.605, 0.05, 1000)
    blind = Estimate(100, 100, 0.605, draws, trials=400)
    assert 0.5 < confidence_interval(blind, CONFIDENCE)[0] < 0.51
    sound = replace(blind, value=0.5)
    found = [{(BLIND, ""): {"auroc": blind if i == 0 else sound}} for i in range(parts)]
    groups = [
        BenchmarkEstimates(f"wikimia/{i}/original", 100, 100, own) for i, own in enumerate(found)
    ]
    assert bool(blind_notes(groups, CONFIG)) == said


def test_the_papers_figures_stand_below_those_of_the_same_model(plain):
    groups = []
    for one in plain[2]:
        other = {"loss": "min_k_plus_plus", "blind": "blind"}
        found = {(other[method], v): line for (method, v), line in one.estimates.items()}
        groups.append(replace(one, estimates=found))
    (auroc, *_) = make_metric_tables({"huggyllama/llama-7b": groups}, CONFIG)
    assert auroc.header == ["method", "variant", "32 original", "64 original", "average"]
    paper = ["  min_k_plus_plus", "Raoof et al. 2025, table 11", "0.852", "0.859", "–"]
    assert [line[0] for line in auroc.lines] == ["min_k_plus_plus", paper[0], "blind"]
    assert auroc.lines[1] == paper
    assert model_name_in_papers("/models/Llama-7B/") == "llama-7b"
    (other, *_) = make_metric_tables({"llama-3b": groups}, CONFIG)
    assert [line[0] for line in other.lines] == ["min_k_plus_plus", "blind"]


def test_several_models_are_in_one_table_and_its_files(tmp_path):
    texts, table = made(shift=0.45, n=60)
    models = {"a/one": lambda: [table], "b/two": lambda: [table]}
    said = render_benchmark_report(CONFIG, texts, models, tmp_path)
    assert "Blind AUROC off 0.5: 32 original 0." in said
    assert said.count("a/one") == said.count("b/two") == 2 + 2 + 2
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    one, two = ([r for r in rows if r["model"] == model] for model in models)
    assert [{**row, "model": 0} for row in one] == [{**row, "model": 0} for row in two]
    page = (tmp_path / "benchmark.md").read_text()
    assert page.startswith("# wikimia: a/one, b/two\n\n")
    assert "\n\n### wikimia: AUROC (95% intervals)\n" in page


def test_what_a_part_can_not_carry_is_a_dash_with_the_reason(plain):
    *_, groups = plain
    rate = make_metric_tables({"m": groups}, CONFIG)[2]
    assert rate.lines[0][2:] == ["–", "–", "–"]
    assert rate.notes == ["– needs ≥ 100 non-members: 32 original, 64 original."]
    assert AUROC.name in groups[0].estimates["blind", ""]


def test_an_estimate_is_shown_with_its_interval(plain):
    *_, groups = plain
    auroc = make_metric_tables({"m": groups}, CONFIG)[0]
    assert auroc.lines[0][2:] == [
        format_estimate(part.estimates["loss", ""][AUROC.name]) for part in groups
    ]


def test_the_sizes_copies_across_the_labels_and_texts_without_a_label_are_said(tmp_path):
    texts, table = made(n=40)
    rows = list(texts)
    for n, text, label in ((1, rows[0].text, False), (42, rows[42].text, None)):
        one = rows[n]
        rows[n] = make_text(one.example_id, text, label, one.benchmark)
    said = render_benchmark_report(CONFIG, Texts.of(rows), {"m": lambda: [table]}, tmp_path)
    said = " ".join(said.split())
    assert "Members + non-members: 32 original 20 + 20, 64 original 19 + 20." in said
    assert "32 original: 1 of 40 texts are exact duplicates of another one" in said
    assert "32 original: 1 members and 1 non-members are near-duplicates of one another" in said
    assert "1 texts have no label: metrics leave them out." in said
    notes = json.loads((tmp_path / "results.json").read_text())["notes"]
    assert sum("style alone" not in note for note in notes) == 4


def test_where_matching_leaves_style_its_figures_are_said_to_be_no_evidence(plain):
    left = Estimate(60, 60, 0.6, np.linspace(0.56, 0.64, 100))
    part = plain[2][0]
    found = {**part.estimates, ("blind", ""): {**part.estimates["blind", ""], MATCHED.name: left}}
    (note,) = blind_notes([replace(part, estimates=found)], CONFIG)
    assert note.endswith(
        "The matched AUROC of a score of style alone is 32 original 0.60 [0.56, 0.64]."
    )


def books(clusters):
    """Snippets of 24 books, each of its own words; nothing else tells members."""
    rng, rows, texts = np.random.default_rng(3), [], []
    for book in range(24):
        words = [*WORDS, *("".join(rng.choice([*"aeklmnorstu"], 7)) for _ in range(4))]
        effect = rng.normal()
        for i in range(6):
            text = make_text(f"{book}-{i}", " ".join(rng.choice(words, 12)), book < 12, "bookmia")
            texts.append(replace(text, cluster=str(book) if clusters else ""))
            rows.append([f"{book}-{i}", "loss", "", effect + rng.normal() / 2, "", True])
    columns = ["example_id", "method", "variant", "score", "flag", "ranked"]
    return Texts.of(texts), pd.DataFrame(rows, columns=columns)


def test_snippets_of_a_book_are_drawn_and_left_out_together():
    config = ExamplesConfig("x", name="bookmia")
    (whole,), (single,) = (groups_of(*books(clusters), config) for clusters in (True, False))
    assert (whole.clusters, single.clusters) == ((12, 12), None)
    wide, narrow = (
        np.diff(confidence_interval(one.estimates["loss", ""]["auroc"], CONFIDENCE)).item()
        for one in (whole, single)
    )
    assert wide > 2 * narrow
    assert whole.estimates["loss", ""]["auroc"].value == single.estimates["loss", ""]["auroc"].value
    blind = {one.clusters: one.estimates[BLIND, ""]["auroc"] for one in (whole, single)}
    assert blind[None].value > 0.8  # of another snippet's label it knows the book's
    low, high = confidence_interval(blind[12, 12], CONFIDENCE)
    assert low < 0.5 < high
    assert "bookmia 72 + 72 (of 12 + 12 clusters)" in describe_sizes([whole], config)
    assert "resample whole clusters" in describe_sizes([whole], config)
    assert "cluster" not in describe_sizes([single], config)
