"""What the audit reports: intervals, limits, memorisation, stability, bounds, and bad input."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from contamination.audits import cells as cells_module
from contamination.audits.base import AuditStage
from contamination.audits.cells import open_cells
from contamination.audits.reference_attack.attacks import ReferenceCells, attack_scores
from contamination.audits.reference_attack.audit import ReferenceAttack
from contamination.audits.reference_attack.findings import ConditionFindings, _agreement
from contamination.audits.reference_attack.inputs import read_conditions
from contamination.audits.reference_attack.report import report, strength_chart
from contamination.audits.reference_attack.strength import (
    MeanOverCells,
    d_prime,
    limit_of_models,
    mean_auroc,
)
from contamination.audits.reference_attack.tables import memorisation_table
from contamination.audits.run import run
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.report.document import html_document, markdown_document
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


def test_shares_are_suppressed_below_the_bound(findings):
    strict = replace(findings, share_above=0.99)
    assert strict.strengths["share"].isna().all()


def test_rates_need_enough_non_members(findings):
    few = replace(findings, fpr=(0.001,))  # 16 × 40 non-members; 5,000 are needed
    assert few.strengths["tpr_at_fpr_0.001"].isna().all()


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
    with pytest.raises(ConfigError, match=r"audit.cells: .* has 3 cells, .* at least 4"):
        read_conditions("audit.cells", audited_cells(3, 20, 0.0))


def test_cells_of_different_pools_are_refused():
    mixed = audited_cells(4, 20, 0.0) + audited_cells(1, 20, 0.0, seed=5, pool="q")
    mixed[-1] = replace(mixed[-1], cell=replace(mixed[-1].cell, seed=9))
    with pytest.raises(ConfigError, match=r"have different pools of examples"):
        read_conditions("audit.cells", mixed)


def test_swapped_replicates_are_refused():
    from tests.audits.reference_attack.simulated import audited_cell

    phi, dose = draw_cells(3, 20, 0.0)
    members = [*dose, 1 - dose[0]]
    phi = np.vstack([phi, phi[:1]])
    cells = [audited_cell(p, d, p, k) for k, (p, d) in enumerate(zip(phi, members, strict=True))]
    with pytest.raises(ConfigError, match=r"cells \d and \d are swapped replicates"):
        read_conditions("audit.cells", cells)


def test_exact_balance_over_cells_is_refused():
    from tests.audits.reference_attack.simulated import audited_cell

    rng = np.random.default_rng(0)
    members = np.array([rng.permutation([0, 0, 1, 1, 0, 1]) for _ in range(20)]).T
    phi = rng.normal(size=members.shape)
    cells = [audited_cell(p, d, p, k) for k, (p, d) in enumerate(zip(phi, members, strict=True))]
    with pytest.raises(ConfigError, match="exactly 3 of 6 cells"):
        read_conditions("audit.cells", cells)


def test_cells_with_the_same_members_are_refused():
    from tests.audits.reference_attack.simulated import audited_cell

    phi, dose = draw_cells(5, 20, 0.0)
    dose[4] = dose[1]
    cells = [audited_cell(p, d, p, k) for k, (p, d) in enumerate(zip(phi, dose, strict=True))]
    with pytest.raises(ConfigError, match="two cells have the same members"):
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
    with pytest.raises(ConfigError, match="audit.reference is 'multivariate_lira': it needs"):
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
    checked = []
    monkeypatch.setattr(
        "contamination.injection.membership.check_membership",
        lambda _, corpus: checked.append(corpus),
    )
    prepared = ReferenceAttack(cells="report").prepare(AuditStage(audit={}))
    assert checked == [cell.corpus for cell in cells]  # their members were drawn by coins
    digests = {digest for cell in cells for digest in cell.cell.digests.values()}
    assert {*prepared.inputs.values()} == digests
