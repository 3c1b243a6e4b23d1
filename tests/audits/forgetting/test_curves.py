"""d′ and what lies between exposure and score, beside naive loops; the report on them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from contamination.audits.forgetting import curves, effects
from contamination.audits.forgetting.report import (
    Findings,
    _against_weight_decay,
    conditions_chart,
    report,
)
from contamination.core.errors import ConfigError
from contamination.core.report.document import html_document, markdown_document
from tests.audits.forgetting.simulated import STEP_TOKENS, STEPS, forgetting_cell


@pytest.fixture(scope="module")
def cells():
    return [forgetting_cell(seed) for seed in range(3)]


def naive_d_prime(cell, scored, occurrences):
    examples = cell.cell.cell.examples
    aurocs = []
    for name in ("boolq", "imdb"):
        wins = []
        for i, member in examples.iterrows():
            copies = member["occurrences"]
            is_compared = copies > 0 if occurrences == "any" else copies == int(occurrences)
            if member["benchmark"] != name or not is_compared:
                continue
            for j, other in examples.iterrows():
                if other["benchmark"] == name and not other["member"]:
                    wins.append(scored.scores.iloc[i, 0] > scored.scores.iloc[j, 0])
        aurocs.append(np.mean(wins))
    return np.sqrt(2) * norm.ppf(np.mean(aurocs))


@pytest.mark.parametrize("occurrences", ["any", "1", "4"])
def test_d_prime_is_that_of_naive_comparisons(cells, occurrences):
    table = curves.points_table(cells[:1], ["loss"])
    rows = table[table["occurrences"] == occurrences].set_index("step")
    clean = replace(cells[0].steps[0], scores=cells[0].cell.cell.scores["clean"])
    before = naive_d_prime(cells[0], clean, occurrences)
    for scored in (cells[0].steps[0], cells[0].steps[-1]):
        expected = naive_d_prime(cells[0], scored, occurrences)
        assert rows.loc[scored.step, "d_prime"] == pytest.approx(expected)
        assert rows.loc[scored.step, "excess"] == pytest.approx(expected - before)


def test_what_happened_since_is_counted_from_each_members_last_exposure():
    cell = forgetting_cell(7, decay=3.0)
    exposures, group = cell.model.exposures, cell.doses > 0
    names = cell.cell.cell.examples["example_id"]
    tokens, sums, left = [], [], []
    for name in names[group]:
        last = max(row.step for row in exposures.itertuples() if row.example_id == name)
        tokens.append((20 - last) * STEP_TOKENS)
        total, product = 0.0, 1.0
        for step in range(last + 1, 21):
            decay = 3.0 if step > 5 else 0.1
            total += 4e-3 * decay
            product *= 1 - 4e-3 * decay
        sums.append(total)
        left.append(product)
    found = cell.since(20, group)
    assert found["tokens_since"] == pytest.approx(np.mean(tokens))
    assert (found["tokens_since_low"], found["tokens_since_high"]) == (min(tokens), max(tokens))
    assert found["decay_since"] == pytest.approx(np.mean(sums))
    assert found["share_left"] == pytest.approx(np.mean(left))


def test_the_mean_over_seeds_lies_in_its_interval_and_falls(cells):
    table = curves.all_members(curves.means_table(cells, ["loss"]))
    assert table["step"].tolist() == [*STEPS]
    assert (table["seeds"] == 3).all()
    assert (table["excess_low"] < table["excess"]).all()
    assert (table["excess"] < table["excess_high"]).all()
    assert (np.diff(table["excess"]) < 0).all()


def test_the_half_life_that_was_simulated_is_found(cells):
    table = curves.half_life_table(curves.fits_table(curves.points_table(cells, ["loss"])))
    row = curves.all_members(table).set_index("form").loc["exponential"]
    assert row["half_life"] == pytest.approx(20_000, rel=0.25)
    assert row["chosen"]


def with_variants(cell, *variants):
    """The cell with its loss as the variants of min_k, the second of them turned round."""
    names = pd.MultiIndex.from_tuples([("min_k", variant) for variant in variants])

    def renamed(scores):
        columns = [sign * scores[("loss", "")].to_numpy() for sign in (1, -1)]
        return pd.DataFrame(np.array(columns).T, index=scores.index, columns=names)

    content = cell.cell.cell
    scores = {**content.scores, "clean": renamed(content.scores["clean"])}
    inner = replace(content, scores=scores, defaults={("min_k", variants[0])})
    steps = [replace(scored, scores=renamed(scored.scores)) for scored in cell.steps]
    return replace(cell, cell=replace(cell.cell, cell=inner), steps=steps)


def test_a_method_is_named_with_its_variant_or_without_that_of_its_default(cells):
    loss = curves.points_table(cells[:1], ["loss"])
    cell = with_variants(cells[0], "k=0.2", "k=0.1")
    for name, sign in (("min_k", 1), ("min_k k=0.2", 1), ("min_k k=0.1", -1)):
        table = curves.points_table([cell], [name])
        assert {*table["method"]} == {name}
        assert table["excess"].tolist() == pytest.approx((sign * loss["excess"]).tolist())
    with pytest.raises(ConfigError, match=r"no such scores, only min_k k=0\.2, min_k k=0\.1, or"):
        curves.points_table([cell], ["loss"])


def test_an_unknown_method_and_different_examples_are_refused(cells):
    with pytest.raises(ConfigError, match="audit.methods has 'zlib'.* no such scores, only loss"):
        curves.points_table(cells, ["zlib"])
    fewer = replace(cells[1], steps=cells[1].steps[1:])
    with pytest.raises(ConfigError, match="different scored steps"):
        curves.means_table([cells[0], fewer], ["loss"])
    others = forgetting_cell(1, examples=90)
    with pytest.raises(ConfigError, match="different examples"):
        curves.means_table([cells[0], others], ["loss"])


def findings_of(cells):
    points, means = (make(cells, ["loss"]) for make in (curves.points_table, curves.means_table))
    fits = curves.fits_table(points)
    detectable = curves.detectable_fits(fits, means)
    factors = effects.factor_table(cells)
    found, problems = effects.effects_table(detectable, factors)
    tasks = points[["condition", "seed", "step", "occurrences", "tokens_since"]].assign(
        task="accuracy", members=0.5, nonmembers=0.4, examples=9
    )
    return Findings(
        "loss", points, means, fits, curves.half_life_table(detectable), found, factors, tasks,
        tuple(problems), facts={"cells": "3"},
    )  # fmt: skip


def test_the_report_says_what_was_found(cells):
    content = report(findings_of(cells))
    text, page = markdown_document(content), html_document(content)
    assert "The excess d′ falls to half in" in text
    assert "faster than weight decay alone" in text
    assert "No factor varies" in text
    assert [chart.name.split("-")[0] for chart in content.charts] == ["forgetting"]
    assert "power law (Chang et al. 2024)" in page
    assert "Π(1 − λη) (Bordt et al. 2024)" in page
    assert "nan" not in text.lower().replace("tenant", "")
    assert all(isinstance(table.data, pd.DataFrame) and table.lines for table in content.tables)


def test_the_chart_of_all_conditions_has_a_line_for_each(cells):
    findings = findings_of(cells)
    names = ("web-lr1e-3-copies1", "web-lr1e-3-copies4")
    tables = [findings.means.assign(condition=name) for name in names]
    tables[1]["excess"] /= 2
    chart = conditions_chart(replace(findings, means=pd.concat(tables)))
    legend = [text.get_text() for text in chart.figure.legends[0].get_texts()]
    assert legend == ["copies1", "copies4"]
    assert "all of web-lr1e-3." in chart.caption
    rows = findings.means[findings.means["occurrences"] == "any"]
    first, second, _ = chart.figure.axes[0].lines  # and that of no excess
    for line, share in ((first, 1), (second, 1 / 2)):
        assert [*line.get_xdata()] == rows["tokens_since"].tolist()
        assert [*line.get_ydata()] == pytest.approx((share * rows["excess"]).tolist())


@pytest.mark.parametrize(("shares", "said"), [
    ([0.70, 0.75, 0.80], "c: faster than weight decay alone"),
    ([0.94, 0.95, 0.96], "c: slower than weight decay alone"),
    ([0.70, 0.95, 0.95], "c: not clearly faster or slower than weight decay alone"),
    ([0.70], "c: one seed, no interval"),
])  # fmt: skip
def test_forgetting_is_compared_with_weight_decay_by_the_seeds(cells, shares, said):
    """The members keep a share of their excess; the decay alone would leave 0.9 of it."""
    rows = [
        {"condition": "c", "method": "loss", "occurrences": "any", "seed": seed, "step": step,
         "excess": 2.0 * (share if step == 9 else 1), "share_left": 0.9 if step == 9 else 1.0}
        for seed, share in enumerate(shares) for step in (9, 3)
    ]  # fmt: skip
    means = pd.DataFrame(rows).assign(excess_low=1.0, tokens_since=1.0)
    means = pd.concat([means, means.assign(method="other", excess_low=-1.0)])
    findings = replace(findings_of(cells), points=pd.DataFrame(rows), means=means)
    (sentence,) = _against_weight_decay(findings)
    assert sentence.startswith(f"**{said}.**")
    assert f"is 2.00 and {2 * np.mean(shares):.2f}; weight decay alone" in sentence
    assert "Π(1 − λη) = 0.90" in sentence
    assert f"last model: {2 * (np.mean(shares) - 0.9):.2f}" in sentence


def test_members_that_were_never_detectable_have_no_half_life():
    """Half-lives of noise look like any other: they are not computed."""
    findings = findings_of([forgetting_cell(seed, level=0.0) for seed in range(3)])
    content = report(findings)
    text, page = markdown_document(content), html_document(content)
    assert "nothing to forget" in text
    assert "not detectable right after their last exposure" in text
    assert "falls to half" not in text
    assert "weight decay alone" not in text + page
    assert findings.half_lives.empty
    assert len(findings.fits)


def test_only_the_groups_that_are_detectable_have_half_lives(cells):
    means = curves.means_table(cells, ["loss"])
    first = (means["step"] == STEPS[0]) & (means["occurrences"] == "1")
    hidden = means.assign(excess_low=means["excess_low"].mask(first, -0.01))
    fits = curves.fits_table(curves.points_table(cells, ["loss"]))
    assert {*curves.detectable_fits(fits, hidden)["occurrences"]} == {"any", "4"}
    assert curves.detectable_fits(fits, means).equals(fits)


def test_three_scored_models_have_no_curve_and_the_report_says_so(cells):
    """An empty table of half-lives had no columns."""
    content = report(findings_of([replace(cell, steps=cell.steps[-3:]) for cell in cells]))
    text = markdown_document(content)
    assert "It has 3, and a curve needs 4" in text
    assert "half-life" not in text.partition("##")[2].partition("What this can't prove")[0]
    assert html_document(content)


def test_curves_at_the_limit_are_warned_of(cells):
    fits = curves.fits_table(curves.points_table(cells, ["loss"]))
    assert curves.limit_warnings(fits.assign(at_limit=False)) == ()
    (warning,) = curves.limit_warnings(fits.assign(at_limit=fits.index == 1))
    assert f"1 of {len(fits)} curves have the largest rate" in warning
