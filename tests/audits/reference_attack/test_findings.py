"""What the audit reports: intervals, limits, memorisation, stability, bounds, and bad input."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from contamination.audits import cells as cells_module
from contamination.audits.base import AuditStage
from contamination.audits.cells import open_cells
from contamination.audits.one_run_bound.guesses import AttackScores, GuessRule, bound
from contamination.audits.reference_attack.attacks import (
    ReferenceCells,
    attack_scores,
    usable_attacks,
)
from contamination.audits.reference_attack.audit import ReferenceAttack
from contamination.audits.reference_attack.findings import ConditionFindings, _agreement
from contamination.audits.reference_attack.hierarchy import expectations
from contamination.audits.reference_attack.inputs import read_conditions
from contamination.audits.reference_attack.report import report, strength_chart
from contamination.audits.reference_attack.strength import (
    MeanOverCells,
    d_prime,
    limit_of_models,
    mean_auroc,
)
from contamination.audits.reference_attack.tables import memorisation_table
from contamination.audits.reference_attack.variances import SHRUNK
from contamination.audits.run import run
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.report.document import html_document, markdown_document
from contamination.detection.pass_store import KIND as PASSES
from contamination.detection.passes import ORIGINAL
from tests.audits.reference_attack.simulated import audited_cells, draw_cells

HALVES = np.repeat(["a", "b"], 200)


def reference_cells(phi, dose, benchmarks):
    return ReferenceCells(phi, dose, benchmarks, phi.mean(axis=0), np.full(len(phi[0]), 10))


# AUROC and its error


def test_mean_auroc_is_the_share_of_won_pairs():
    rng = np.random.default_rng(0)
    scores, member = rng.integers(0, 9, (3, 20)).astype(float), rng.random((3, 20)) < 0.5
    benchmarks = np.repeat(["a", "b"], 10)
    by_cell = []
    for row, seen in zip(scores, member, strict=True):
        of_benchmark = []
        for name in "ab":
            pairs = [
                (row[i] > row[j]) + 0.5 * (row[i] == row[j])
                for i in np.flatnonzero(seen & (benchmarks == name))
                for j in np.flatnonzero(~seen & (benchmarks == name))
            ]
            of_benchmark.append(np.mean(pairs))
        by_cell.append(np.mean(of_benchmark))
    found = mean_auroc(scores, member, ~member, benchmarks)
    assert found.value == pytest.approx(np.mean(by_cell))
    np.testing.assert_allclose(found.cells, (by_cell - np.mean(by_cell)) / 3, atol=1e-12)
    np.testing.assert_allclose(found.influence.sum(), 0, atol=1e-12)


def test_a_cell_without_members_of_any_benchmark_is_left_out():
    scores = np.arange(12.0).reshape(2, 6)
    inside = np.array([[1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool)
    found = mean_auroc(scores, inside, ~inside, np.array(["a"] * 6))
    assert found.value == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="no cell has members and non-members"):
        mean_auroc(scores, ~(inside | ~inside), inside | ~inside, np.array(["a"] * 6))


@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_intervals_cover_the_mean_of_many_studies(shift):
    rows = []
    for seed in range(30):
        phi, dose = draw_cells(12, 400, shift, seed=seed, between=0.3)
        cells = reference_cells(phi, dose, HALVES)
        scores = attack_scores("bavaria", cells, 1)
        attack = mean_auroc(scores, *cells.sides(1), HALVES)
        method = mean_auroc(phi, *cells.sides(1), HALVES)
        difference = d_prime(attack) - d_prime(method)
        rows.append([*attack.interval(0.95), attack.value,
                     *difference.interval(0.95), difference.value])  # fmt: skip
    table = np.array(rows)
    for low, high, value in (table[:, :3].T, table[:, 3:].T):
        covered = np.mean((low <= value.mean()) & (value.mean() <= high))
        assert covered >= 0.83  # 95% of 30 studies, less 3 standard errors
        assert np.mean(high - low) < 5.5 * value.std()


def test_d_prime_of_a_known_auroc():
    phi, dose = draw_cells(6, 4000, 1.0, seed=0, between=0.0, spread=0.001)
    found = d_prime(mean_auroc(phi, dose > 0, dose == 0, np.array(["a"] * 4000)))
    assert np.sqrt(2) * norm.ppf(norm.cdf(found.value / np.sqrt(2))) == pytest.approx(found.value)


def test_the_limit_of_a_straight_line_in_d_prime_is_its_intercept():
    numbers, none = [8, 16, 32], np.zeros((2, 2))
    d_primes = 1.2 - 3 / np.array(numbers)
    aurocs = [MeanOverCells(norm.cdf(d / np.sqrt(2)), none[0], none) for d in d_primes]
    assert limit_of_models(numbers, aurocs).value == pytest.approx(1.2)
    assert limit_of_models(numbers[:2], aurocs[:2]).value == pytest.approx(1.2)
    near_one = [MeanOverCells(value, none[0], none) for value in (0.9, 0.99, 0.9999)]
    assert norm.cdf(limit_of_models(numbers, near_one).value) < 1


# findings


@pytest.fixture(scope="module")
def findings():
    (condition,) = read_conditions("audit.cells", audited_cells(16, 80, 1.5, seed=3))
    return ConditionFindings(condition, "bavaria", 0.55, (0.01,), 1e-5)


def test_the_reference_beats_the_methods_and_lacks_nothing_to_itself(findings):
    table = findings.strengths.set_index("attack")
    assert table.loc["bavaria", "auroc"] > table.loc["loss", "auroc"] + 0.1
    assert table.loc["bavaria", "lacking"] == 0
    assert table.loc["loss", "lacking_low"] > 0
    assert table.loc["bavaria", "share"] == 1
    assert 0 < table.loc["loss", "share"] < 1
    assert "multivariate_lira" not in table.index  # no passes are stored
    assert not table.loc["loss", "reads_references"]
    assert table.loc["bavaria", "tpr_at_fpr_0.01"] > 0.05


def test_a_row_has_the_auroc_its_d_prime_and_what_it_lacks_with_intervals(findings):
    reference = findings.aurocs["bavaria", 1]
    rows = findings.strengths.to_dict("records")
    assert [row["attack"] for row in rows] == [name for name, _ in findings.aurocs]
    for row, ((name, dose), auroc) in zip(rows, findings.aurocs.items(), strict=True):
        lacking = d_prime(reference) - d_prime(auroc)
        means = {"auroc": auroc, "d_prime": d_prime(auroc), "lacking": lacking}
        expected = {
            "condition": "m-lr0.001-tokens250000", "occurrences": dose, "attack": name,
            "reads_references": name not in ("loss", "min_k"),
        }  # fmt: skip
        for key, mean in means.items():
            margin = norm.ppf(0.975) * mean.error
            ends = (mean.value - margin, mean.value + margin)
            expected |= {key: mean.value, f"{key}_low": ends[0], f"{key}_high": ends[1]}
        expected["share"] = (auroc.value - 0.5) / (reference.value - 0.5)
        assert [*row][:14] == [*expected]
        assert {key: row[key] for key in expected} == pytest.approx(expected)
    assert [*rows[0]][14:] == [f"tpr_at_fpr_0.01{end}" for end in ("", "_low", "_high")]


def test_shares_are_suppressed_below_the_bound(findings):
    strict = replace(findings, share_above=0.99)
    assert strict.strengths["share"].isna().all()


def test_rates_need_enough_non_members(findings):
    few = replace(findings, fpr=(0.001,))  # 16 × 40 non-members; 5,000 are needed
    assert few.strengths["tpr_at_fpr_0.001"].isna().all()


def with_doses(findings, doses):
    references = replace(findings.condition.references, doses=doses)
    return replace(findings, condition=replace(findings.condition, references=references))


def test_a_rate_counts_the_non_members_of_all_cells_and_needs_two_cells_with_members(findings):
    outside = findings.condition.references.doses == 0
    fewest = 5 / outside.sum()  # five expected false alarms
    strengths = replace(findings, fpr=(fewest, 0.99 * fewest)).strengths
    is_given = strengths.filter(like="tpr_at_fpr").notna().all()
    assert is_given.tolist() == [True] * 3 + [False] * 3
    doses = findings.condition.references.doses.copy()
    doses[2:] = 0
    with_two_cells = with_doses(findings, doses)
    with_two_cells.__dict__["scores"] = findings.scores
    rates = with_two_cells._rates("loss", 1)
    threshold = np.sort(findings.scores["loss", 1][doses == 0])[-1 - int(0.01 * (doses == 0).sum())]
    hits = [
        (findings.scores["loss", 1][cell, doses[cell] > 0] > threshold).mean() for cell in (0, 1)
    ]
    assert rates["tpr_at_fpr_0.01"] == pytest.approx(np.mean(hits))
    doses[1] = 0
    assert np.isnan([*with_two_cells._rates("loss", 1).values()]).all()


def test_a_rates_interval_is_that_of_a_mean_over_cells(findings):
    inside, outside = findings.condition.references.sides(1)
    scores, row = findings.scores["bavaria", 1], findings.strengths.set_index("attack")
    threshold = np.sort(scores[outside])[-1 - int(0.01 * outside.sum())]
    rates = [(s[seen] > threshold).mean() for s, seen in zip(scores, inside, strict=True)]
    margin = norm.ppf(0.975) * np.std(rates, ddof=1) / np.sqrt(16)
    value, low, high = (
        row.loc["bavaria", f"tpr_at_fpr_0.01{end}"] for end in ("", "_low", "_high")
    )
    assert value == pytest.approx(np.mean(rates))
    assert (low, high) == pytest.approx((value - margin, value + margin))


def test_auroc_grows_with_the_models_towards_the_limit(findings):
    rows = findings.by_models
    rows = rows[rows["attack"] == "lira_online"].set_index("models")["auroc"]
    assert [*rows.index] == [8, 16, np.inf]
    assert rows[8] < rows[16] < rows[np.inf]
    d_primes = np.sqrt(2) * norm.ppf(rows)
    assert d_primes[2] == pytest.approx(2 * d_primes[1] - d_primes[0])


def test_fewer_models_are_disjoint_blocks_of_the_cells(findings):
    """Seven models: two blocks, and two cells of the sixteen in none."""
    cells, name = findings.condition.references, "lira_offline_pooled"
    for number in (8, 7):
        block_auroc = findings._auroc_of_blocks(name, 1, number)
        parts = [cells.of_cells(np.arange(first, first + number)) for first in (0, number)]
        aurocs = [
            mean_auroc(attack_scores(name, part, 1), *part.sides(1), cells.benchmarks)
            for part in parts
        ]
        value = np.mean([auroc.value for auroc in aurocs])
        assert block_auroc.value == pytest.approx(value)
        # a cell's contribution is its own AUROC's distance from the mean
        of_cells = [auroc.value + number * auroc.cells for auroc in aurocs]
        expected = (np.concatenate(of_cells) - value) / 2 / number
        assert block_auroc.cells[: 2 * number] == pytest.approx(expected)
        assert not block_auroc.cells[2 * number :].any()
        influence = np.concatenate([auroc.influence / 2 for auroc in aurocs])
        np.testing.assert_allclose(block_auroc.influence[: 2 * number], influence, atol=1e-12)
        assert not block_auroc.influence[2 * number :].any()


def test_a_row_of_models_has_an_interval_and_the_limit_one_on_the_scale_of_d_prime(findings):
    table, cells = findings.by_models, findings.condition.references
    assert [*table] == [
        "condition", "occurrences", "attack", "models", "auroc", "auroc_low", "auroc_high",
    ]  # fmt: skip
    assert {*table["condition"]} == {"m-lr0.001-tokens250000"}
    assert {*table["occurrences"]} == {1}
    assert [*table["attack"].unique()] == usable_attacks(cells)[:-1]  # without single_reference
    rows = table[table["attack"] == "rmia"].filter(like="auroc").to_numpy()
    means = [findings._auroc_of_blocks("rmia", 1, number) for number in (8, 16)]
    limit = limit_of_models([8, 16], means)
    margin = norm.ppf(0.975)
    for row, mean in zip(rows, [*means, limit], strict=True):
        ends = [mean.value + sign * margin * mean.error for sign in (0, -1, 1)]
        expected = norm.cdf(np.array(ends) / np.sqrt(2)) if mean is limit else ends
        assert row == pytest.approx(expected)


def test_eight_or_fewer_models_have_no_limit():
    (condition,) = read_conditions("audit.cells", audited_cells(8, 20, 1.5, seed=3))
    table = ConditionFindings(condition, "bavaria", 0.55, (), 1e-5).by_models
    assert {*table["models"]} == {8}
    assert len(table) == len(usable_attacks(condition.references)) - 1


def test_each_example_has_a_row_of_memorisation_at_each_dose(findings):
    """Also those that all or no cells saw."""
    doses = findings.condition.references.doses.copy()
    doses[:8] *= 2
    doses[:, 0], doses[:, 1], doses[:, 2] = 1, 0, np.arange(16) // 8
    changed = with_doses(findings, doses)
    table, phi = changed.memorisation, changed.condition.references.phi
    assert [*table] == [
        "example_id", "benchmark", "text", "mean_in", "mean_out", "memorisation", "standard_error",
        "shrunk", "cells_in", "cells_out", "occurrences", "condition",
    ]  # fmt: skip
    assert table["occurrences"].value_counts().to_dict() == {1: 80, 2: 80}
    assert [*table.index] == [*range(160)]
    assert table["shrunk"].is_monotonic_decreasing
    for dose in (1, 2):
        rows = table[table["occurrences"] == dose].set_index("example_id")
        rows = rows.loc[changed.condition.examples["example_id"]]
        assert rows["benchmark"].tolist() == changed.condition.examples["benchmark"].tolist()
        # a row that is no cell has all cells as its references
        sides = [np.vstack([doses == d, np.zeros((1, 80), bool)]) for d in (dose, 0)]
        counts = [side.sum(axis=0) for side in sides]
        with np.errstate(invalid="ignore"):
            means = [
                (phi * side[:-1]).sum(axis=0) / count
                for side, count in zip(sides, counts, strict=True)
            ]
        np.testing.assert_allclose(rows["mean_in"], means[0])
        np.testing.assert_allclose(rows["mean_out"], means[1])
        np.testing.assert_allclose(rows["memorisation"], means[0] - means[1])
        assert rows["cells_in"].tolist() == counts[0].tolist()
        assert rows["cells_out"].tolist() == counts[1].tolist()
        for columns in (np.arange(0, 80, 2), np.arange(1, 80, 2)):  # the benchmarks
            with_extra_row = np.vstack([phi, phi[:1]])[:, columns]
            seen, unseen = (side[:, columns] for side in sides)
            expected = expectations(with_extra_row, seen, unseen, SHRUNK, shrinks_shifts=True)
            shrunk = (expected.inside.mean - expected.outside.mean)[-1]
            np.testing.assert_allclose(rows["shrunk"].iloc[columns], shrunk, rtol=1e-6)
            variances = expected.inside.variance[-1], expected.outside.variance[-1]
            with np.errstate(divide="ignore"):
                error = np.sqrt(
                    variances[0] / counts[0][columns] + variances[1] / counts[1][columns]
                )
            error[~np.isfinite(error)] = np.nan
            np.testing.assert_allclose(rows["standard_error"].iloc[columns], error)


def test_memorisation_is_the_difference_of_means(findings):
    references, table = findings.condition.references, findings.memorisation
    assert len(table) == 80
    assert table["shrunk"].is_monotonic_decreasing
    for row in table.head(5).itertuples():
        column = findings.condition.examples["example_id"].tolist().index(row.example_id)
        phi, seen = references.phi[:, column], references.doses[:, column] > 0
        assert row.memorisation == pytest.approx(phi[seen].mean() - phi[~seen].mean())
        assert (row.cells_in, row.cells_out) == (seen.sum(), (~seen).sum())
        assert row.text == f"The text of {row.example_id}."


def test_a_long_text_is_cut_in_the_table_and_whole_in_the_file(findings):
    texts = findings.condition.examples.assign(text="A line.\n" * 30)
    long = replace(findings, condition=replace(findings.condition, examples=texts))
    table = memorisation_table([long])
    assert {line[-1] for line in table.lines} == {("A line. " * 30)[:89] + "…"}
    assert {*table.data["text"]} == {"A line.\n" * 30}


def test_shrinkage_brings_memorisation_nearer_to_the_truth():
    """The true memorisation of all simulated examples is shift × spread = 0.3."""
    (condition,) = read_conditions("audit.cells", audited_cells(8, 200, 1.0, seed=9))
    table = ConditionFindings(condition, "bavaria", 0.55, (), 1e-5).memorisation.dropna()
    own, shrunk = ((table[name] - 0.3) ** 2 for name in ("memorisation", "shrunk"))
    assert shrunk.mean() < 0.5 * own.mean()


def test_agreement_is_that_of_two_drawn_cells():
    hits, trials = np.array([0, 4, 2]), np.array([4, 4, 4])
    assert _agreement(hits, trials) == pytest.approx(np.mean([1, 1, 1 / 3]))


def test_stability_tells_hard_examples_from_chance():
    (condition,) = read_conditions("audit.cells", audited_cells(16, 80, 1.5, seed=3))
    (row,) = ConditionFindings(condition, "bavaria", 0.55, (), 1e-5).stability.to_dict("records")
    assert row["fpr"] == pytest.approx(0.05, abs=0.005)
    assert abs(row["agreement"] - row["agreement_if_alike"]) < 0.1  # examples differ little here
    assert row["found_never"] + row["found_sometimes"] + row["found_always"] == pytest.approx(1)


def test_stability_is_counted_example_by_example(findings):
    doses = findings.condition.references.doses.copy()
    doses[:, 0], doses[:, 1], doses[:, 2] = 1, 0, np.arange(16) == 3
    changed = with_doses(findings, doses)
    scores = changed.scores["bavaria", 1]
    (row,) = changed.stability.to_dict("records")
    non_members = np.sort(scores[doses == 0])[::-1]
    flagged = scores > non_members[int(0.05 * len(non_members))]
    member_flags = [flagged[doses[:, text] == 1, text] for text in range(80)]
    other_flags = [flagged[doses[:, text] == 0, text] for text in range(80)]
    rates = [flags.mean() for flags in member_flags if len(flags) > 1]
    pairs = [
        np.mean([a == b for i, a in enumerate(flags) for b in flags[:i]])
        for flags in member_flags
        if len(flags) > 1
    ]
    tpr = np.concatenate(member_flags).mean()
    assert row == {
        "condition": "m-lr0.001-tokens250000", "occurrences": 1,
        **{
            key: pytest.approx(value)
            for key, value in {
                "tpr": tpr, "fpr": np.concatenate(other_flags).mean(), "agreement": np.mean(pairs),
                "agreement_if_alike": tpr**2 + (1 - tpr) ** 2,
                "found_never": np.mean([rate == 0 for rate in rates]),
                "found_sometimes": np.mean([0 < rate < 1 for rate in rates]),
                "found_always": np.mean([rate == 1 for rate in rates]),
                "alarm_rate_above_twice": np.mean([a.mean() > 0.1 for a in other_flags if len(a)]),
            }.items()
        },
    }  # fmt: skip


def test_a_bound_is_that_of_a_quarter_of_guesses_about_one_cell(findings):
    cells, rows = findings.condition.references, findings.bounds.to_dict("records")
    names = [f"m-lr0.001-tokens250000-seed{seed}" for seed in range(16)]
    assert [(row["attack"], row["cell"]) for row in rows] == [
        (attack, name) for attack in ("bavaria", "loss") for name in names
    ]  # fmt: skip
    for number, row in ((3, rows[3]), (5, rows[21])):
        scores = AttackScores(row["attack"], findings.scores[row["attack"], 1][number],
                              cells.benchmarks)  # fmt: skip
        rule, member = GuessRule(row["attack"], 0.25), cells.doses[number] > 0
        expected = bound(rule, scores, member, 1e-5, 0.95)
        fields = ("epsilon", "p_value", "guesses", "correct", "most", "delta", "confidence")
        assert row == {
            "condition": "m-lr0.001-tokens250000", "occurrences": 1, "cell": names[number],
            "attack": row["attack"], **{name: getattr(expected, name) for name in fields},
        }  # fmt: skip


def test_each_cell_has_a_bound_by_the_attack(findings):
    bounds = findings.bounds
    assert bounds.groupby("attack").size().to_dict() == {"bavaria": 16, "loss": 16}
    means = bounds.groupby("attack")["epsilon"].mean()
    assert means["bavaria"] > means["loss"]
    assert (bounds["guesses"] == 20).all()


def test_no_bound_without_coins_or_with_several_doses():
    cells = audited_cells(8, 40, 1.0, membership="exact")
    (condition,) = read_conditions("audit.cells", cells)
    assert ConditionFindings(condition, "bavaria", 0.55, (), 1e-5).bounds.empty
    (condition,) = read_conditions("audit.cells", audited_cells(8, 40, 1.0, doses=(1, 4)))
    mixed = ConditionFindings(condition, "bavaria", 0.55, (), 1e-5)
    assert mixed.bounds.empty
    by_dose = mixed.strengths.query("attack == 'bavaria'").set_index("occurrences")["auroc"]
    assert by_dose[4] > by_dose[1] + 0.05


def test_the_page_says_what_was_found(findings):
    content = report([findings], {"cells": "16"})
    text, page = markdown_document(content), html_document(content)
    assert "bavaria reaches AUROC" in text
    assert "No passes" not in text
    assert "multivariate_lira is left out" in text
    assert "One run shows ε ≥" in text
    headers = {table.name: table.header for table in content.tables}
    assert headers["bounds"] == [
        "condition", "copies", "attack", "cells", "median ε", "lowest", "highest",
        "cells with ε above 0", "ε if all guesses were right",
    ]  # fmt: skip
    assert page.count("<svg") == 2
    assert ">models (scale: 1 / models)<" in page
    both = [findings, replace(findings, condition=replace(findings.condition, cells=[
        replace(c, cell=replace(c.cell, learning_rate=4e-3)) for c in findings.condition.cells
    ]))]  # fmt: skip
    assert html_document(report(both, {})).count("<svg") == 5  # and one by copies and rate


def test_the_chart_shows_the_strength_of_each_attack_and_method(findings):
    (axes,) = strength_chart(findings).figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    shown = {names[int(point.get_ydata()[0])]: point.get_xdata()[0] for point in points}
    assert shown == findings.strengths.set_index("attack")["d_prime"].to_dict()


# bad input


def test_fewer_than_four_cells_are_refused():
    message = (
        "audit.cells: m-lr0.001-tokens250000 has 3 cells, and the reference attack needs at least "
        "4 that differ in their seeds alone, better 16. Sweep `seed`."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read_conditions("audit.cells", audited_cells(3, 20, 0.0))
    assert len(read_conditions("audit.cells", audited_cells(4, 20, 0.0))) == 1


def test_a_condition_has_what_is_stored_of_its_cells():
    cells = audited_cells(4, 6, 1.0, seed=2)
    lengths = np.array([0, 1, 2, 3, 40, 50])
    for cell in cells:
        cell.cell.examples["n_tokens"] = lengths
    renamed = [c.cell.scores["contaminated"].rename(columns={"min_k": "other"}) for c in cells[3:]]
    cells[3] = replace(cells[3], cell=replace(cells[3].cell, scores={
        **cells[3].cell.scores, "contaminated": renamed[0]
    }))  # fmt: skip
    (condition,) = read_conditions("audit.cells", cells[::-1])
    assert condition.name == "m-lr0.001-tokens250000"
    assert [cell.cell.seed for cell in condition.cells] == [0, 1, 2, 3]
    assert [*condition.methods] == ["loss"]  # the one that all cells have
    phi = np.stack([c.cell.scores["contaminated"]["loss", ""] for c in cells])
    assert (condition.methods["loss"] == phi).all()
    references = condition.references
    assert (references.phi == phi).all()
    assert (references.doses == np.stack([c.cell.examples["occurrences"] for c in cells])).all()
    assert references.benchmarks.tolist() == ["imdb", "boolq"] * 3
    assert (references.clean == cells[0].cell.scores["clean"]["loss", ""]).all()
    assert references.lengths.tolist() == [1, 1, 1, 2, 39, 49]  # the first token is not scored
    assert references.tokens == []
    assert condition.examples["example_id"].tolist() == [f"p-{n:03d}" for n in range(6)]
    assert condition.learning_rate == 1e-3


def test_a_condition_is_named_without_swapped_and_needs_the_mean_log_probability():
    cells = audited_cells(4, 6, 1.0, seed=2)
    swapped = [replace(c, cell=replace(c.cell, condition="m-swapped-last9")) for c in cells]
    (condition,) = read_conditions("audit.cells", swapped)
    assert condition.name == "m-last9"
    scores = cells[2].cell.scores
    without_loss = {**scores, "contaminated": scores["contaminated"].drop(columns=[("loss", "")])}
    cells[2] = replace(cells[2], cell=replace(cells[2].cell, scores=without_loss))
    with pytest.raises(ConfigError, match=r"^audit.cells is 'loss': cell .*-seed2 has no such"):
        read_conditions("audit.cells", cells)


def test_stored_passes_give_the_tokens_of_each_example(tmp_path, monkeypatch, caplog):
    """A pass counts if it is whole, of the cell's model, and has all texts."""
    passes, cells = {}, []
    texts = [f"p-{number:03d}" for number in range(6)]
    for number, cell in enumerate(audited_cells(4, 6, 1.0, seed=2)):
        paths = replace(cell.paths, contaminated=str(tmp_path / "scores" / f"a-{number}-hash"))
        cells.append(replace(cell, paths=paths))
        kinds = {"0": ("", 99), "1": ("other", 98), "2": (cell.cell.digests["model"], 97),
                 "3": (cell.cell.digests["model"], 10 * number)}  # fmt: skip
        for name, (model, level) in kinds.items():
            folder = tmp_path / PASSES / f"a-{number}-{ORIGINAL.view}-{name}"
            folder.mkdir(parents=True)
            stored = texts[:2] if name == "2" else texts
            logprobs = [np.array([level, place], np.float32) for place in range(len(stored))]
            stats = {
                text: [SimpleNamespace(logprob=x), SimpleNamespace(logprob=x + 50)]
                for text, x in zip(stored, logprobs, strict=True)
            }
            passes[folder] = model, stats
    module = "contamination.audits.reference_attack.inputs"
    monkeypatch.setattr(f"{module}.is_complete", lambda path: passes[path][0] != "")
    monkeypatch.setattr(
        f"{module}.open_artifact",
        lambda path, kind: SimpleNamespace(inputs={"model": passes[path][0]} if kind else {}),
    )
    monkeypatch.setattr(f"{module}.StoredPass", lambda path: passes[path][1])
    (condition,) = read_conditions("audit.cells", cells)
    tokens = condition.references.tokens
    assert {x.dtype for x in tokens} == {np.dtype(np.float64)}
    assert [x.tolist() for x in tokens] == [
        [[10 * cell, place] for cell in range(4)] for place in range(6)
    ]  # fmt: skip
    assert not caplog.messages
    passes[tmp_path / PASSES / f"a-2-{ORIGINAL.view}-3"] = "", {}
    (condition,) = read_conditions("audit.cells", cells)
    assert condition.references.tokens == []
    name = condition.cells[2].name
    warning = f"reference attack: no pass of {name} is stored, so its tokens are not compared."
    assert caplog.messages == [warning]


def test_cells_of_different_pools_are_refused():
    mixed = audited_cells(4, 20, 0.0) + audited_cells(1, 20, 0.0, seed=5, pool="q")
    mixed[-1] = replace(mixed[-1], cell=replace(mixed[-1].cell, seed=9))
    message = (
        "audit.cells: m-lr0.001-tokens250000-seed9 and m-lr0.001-tokens250000-seed0 have different "
        "pools of examples, so neither is a reference for the other. Give cells that share "
        "injection.pool_seed and the benchmarks."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read_conditions("audit.cells", mixed)


@pytest.mark.parametrize("column", ["example_id", "benchmark", "text"])
def test_a_pool_is_its_examples_and_their_texts(column):
    cells = audited_cells(4, 20, 0.0)
    cells[2].cell.examples.loc[7, column] = "other"
    with pytest.raises(ConfigError, match="seed2 and .*seed0 have different pools of examples"):
        read_conditions("audit.cells", cells)


def test_swapped_replicates_are_refused():
    from tests.audits.reference_attack.simulated import audited_cell

    phi, dose = draw_cells(3, 20, 0.0)
    members = [*dose, 1 - dose[0]]
    phi = np.vstack([phi, phi[:1]])
    cells = [audited_cell(p, d, p, k) for k, (p, d) in enumerate(zip(phi, members, strict=True))]
    message = (
        "audit.cells: in m-lr0.001-tokens250000 cells 1 and 4 are swapped replicates, so that an "
        "example's other cells tell whether it is a member of the target, without any model. Give "
        "cells whose members were drawn independently (another seed each, "
        "injection.swap_members=false)."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read_conditions("audit.cells", cells)


def test_exact_balance_over_cells_is_refused():
    from tests.audits.reference_attack.simulated import audited_cell

    rng = np.random.default_rng(0)
    members = np.array([rng.permutation([0, 0, 1, 1, 0, 1]) for _ in range(20)]).T
    phi = rng.normal(size=members.shape)
    cells = [audited_cell(p, d, p, k) for k, (p, d) in enumerate(zip(phi, members, strict=True))]
    with pytest.raises(ConfigError, match="each example is a member of exactly 3 of 6 cells, "):
        read_conditions("audit.cells", cells)


def test_cells_with_the_same_members_are_refused():
    from tests.audits.reference_attack.simulated import audited_cell

    phi, dose = draw_cells(5, 20, 0.0)
    dose[4] = dose[1]
    cells = [audited_cell(p, d, p, k) for k, (p, d) in enumerate(zip(phi, dose, strict=True))]
    message = (
        "audit.cells: in m-lr0.001-tokens250000 two cells have the same members, so the one gives "
        "away the other. Give each cell another seed, and no injection.membership_seed."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read_conditions("audit.cells", cells)


@pytest.mark.parametrize("given", [5, [], [5], {"corpus": "x"}])
def test_what_is_no_list_of_cells_is_named(given):
    with pytest.raises(ConfigError, match=r"audit.cells is .*: give the folder of a report"):
        open_cells("audit.cells", given)
    with pytest.raises(ConfigError, match=r"audit.cells: .*typo"):
        open_cells("audit.cells", [{"corpus": "x", "typo": "y"}])


def test_a_folder_that_is_no_report_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=str(tmp_path)):
        open_cells("audit.cells", str(tmp_path))


def stage(tmp_path, **fields):
    target = "contamination.audits.reference_attack.audit.ReferenceAttack"
    return AuditStage(audit={"_target_": target, **fields}, runs=str(tmp_path))


def test_the_audit_is_an_artefact(tmp_path, monkeypatch):
    cells = audited_cells(6, 40, 1.0, membership="exact")
    monkeypatch.setattr(cells_module, "open_cells", lambda *_: cells)
    made = run(stage(tmp_path, cells="report"))
    names = {"attacks", "models", "stability", "memorisation"}
    expected = {f"{name}.{kind}" for name in names for kind in ("csv", "parquet")}
    own = {name for name in made.files if not name.startswith("charts/")}
    assert own == {*expected, "audit.md", "report.html"}
    assert {*made.files} - own
    assert run(stage(tmp_path, cells="another path")).path == made.path
    assert run(stage(tmp_path, cells="report", reference="rmia")).path != made.path
    message = (
        "audit.reference is 'multivariate_lira': it needs the cells' stored passes, which "
        "m-lr0.001-tokens250000 lacks. Choose another, or score the cells again."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        run(stage(tmp_path, cells="report", reference="multivariate_lira"))
    monkeypatch.setattr(cells_module, "open_cells", lambda *_: cells[:3])
    with pytest.raises(ConfigError, match=r"^audit\.cells: .* has 3 cells"):
        run(stage(tmp_path, cells="report"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cells": None}, "audit.cells is None"),
        ({"cells": 1, "reference": "loss"}, "audit.reference is 'loss': choose from bavaria"),
        ({"cells": 1, "share_above": 0.5}, "audit.share_above is 0.5"),
        ({"cells": 1, "fpr": [0.1, 0.1]}, "audit.fpr"),
        ({"cells": 1, "delta": 1}, "audit.delta is 1"),
    ],
)
def test_bad_fields_are_named(tmp_path, fields, words):
    with pytest.raises(ConfigError, match=words):
        run(stage(tmp_path, **fields))


def test_all_cells_name_the_folder_of_the_audit(monkeypatch):
    """Cells of several doses have the same names until they are named apart."""
    cells = [
        cell
        for copies in (1, 4)
        for cell in audited_cells(4, 20, 0.0, seed=copies, copies=copies, pool=f"p{copies}")
    ]
    monkeypatch.setattr("contamination.audits.cells.open_cells", lambda *_: cells)
    checks = []
    monkeypatch.setattr(
        "contamination.injection.membership.check_membership",
        lambda field, corpus: checks.append((field, corpus)),
    )
    prepared = ReferenceAttack(cells="report").prepare(AuditStage(audit={}))
    # their members were drawn by coins
    assert checks == [("audit.cells", cell.corpus) for cell in cells]
    assert (prepared.slug, prepared.settings) == ("m", {"revision": 1, "tokens": False})
    digests = {digest for cell in cells for digest in cell.cell.digests.values()}
    assert {*prepared.inputs.values()} == digests


def test_the_settings_are_those_of_the_report(tmp_path, monkeypatch):
    cells = audited_cells(5, 40, 1.0)
    monkeypatch.setattr("contamination.audits.cells.open_cells", lambda *_: cells)
    monkeypatch.setattr("contamination.injection.membership.check_membership", lambda *_: None)
    settings = {"reference": "rmia", "share_above": 0.625, "fpr": [0.25], "delta": 1e-6}
    calls = []
    monkeypatch.setattr(
        "contamination.audits.reference_attack.report.report",
        lambda findings, facts: calls.append((findings, facts)) or "content",
    )
    prepared = ReferenceAttack(cells="report", **settings).prepare(AuditStage(audit={}))
    result = prepared.conduct(tmp_path)
    assert (result.content, result.counts) == ("content", {"cells": 5})
    (((findings,), facts),) = calls
    assert findings == ConditionFindings(findings.condition, "rmia", 0.625, (0.25,), 1e-6)
    assert facts == {"cells": "5", "examples": "40", "reference": "rmia, named in advance"}
