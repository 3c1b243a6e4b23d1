"""Reading the table of items: what each value means, and what is said of bad ones."""

import csv
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.score import inputs
from contamination.audits.score.inputs import TableFields, find_table, read_items
from contamination.core.errors import ConfigError, DataError

ROLES = ["member", "1", "non-member", "0", *["unknown"] * 10]


@pytest.fixture
def rows():
    """Two members, two non-members and ten items of unknown membership."""
    return [
        {"id": f"q{i}", "correct": str(i % 2), "score": str(i / 4), "spiked": role}
        for i, role in enumerate(ROLES)
    ]


def read(tmp_path, rows, columns=(), references=(), scores=None, method="loss"):
    file = tmp_path / "items.csv"
    with file.open("w", newline="") as open_file:
        writer = csv.DictWriter(open_file, [*dict.fromkeys(name for row in rows for name in row)])
        writer.writeheader()
        writer.writerows(rows)
    return read_items(file, TableFields(dict(columns), references, scores, method))


def test_a_table_gives_the_items_in_its_order(tmp_path, rows):
    items = read(tmp_path, rows)
    assert items.correct.tolist() == [0, 1] * 7
    assert items.score.tolist() == [i / 4 for i in range(14)]
    assert items.role.tolist() == ["member"] * 2 + ["non-member"] * 2 + ["unknown"] * 10
    assert len({*items.clusters}) == 14
    assert items.predicted is items.references is None
    assert [items.count(role) for role in ("member", "non-member", "unknown")] == [2, 2, 10]


def test_roles_and_truth_values_are_read_however_they_are_written(tmp_path, rows):
    members = ["member", "TRUE", "1", "1.0", "Yes"]
    nonmembers = ["non-member", "nonmember", "False", "0", "0.0", "no"]
    unknown = ["unknown", "", "none", "NULL", "nan", " unknown ", *["unknown"] * 4]
    roles = members + nonmembers + unknown
    table_rows = [dict(rows[0]) for _ in roles]
    for number, (row, role) in enumerate(zip(table_rows, roles, strict=True)):
        correct = ["True", "false", " 0.25 "][number % 3]
        row |= {"id": str(number), "spiked": role, "correct": correct}
    items = read(tmp_path, table_rows)
    assert items.role.tolist() == ["member"] * 5 + ["non-member"] * 6 + ["unknown"] * 10
    assert items.correct.tolist() == [1, 0, 0.25] * 7


def test_other_columns_are_read_by_the_names_that_are_given(tmp_path, rows):
    for number, row in enumerate(rows):
        row |= {"guess": str(number / 20), "b": "1", "a": str(number % 2)}
    items = read(tmp_path, rows, {"predicted": "guess"}, ["b", "a"])
    assert items.predicted.tolist() == [i / 20 for i in range(14)]
    assert items.references.tolist() == [[1, i % 2] for i in range(14)]
    with_clusters = [{**row, "cluster": f"g{i % 7}"} for i, row in enumerate(rows)]
    clusters = read(tmp_path, with_clusters).clusters.tolist()
    assert clusters == [*range(7)] * 2
    renamed = [{**row, "of": f"g{i % 7}", "cluster": ""} for i, row in enumerate(rows)]
    assert read(tmp_path, renamed, {"cluster": "of"}).clusters.tolist() == clusters


def refused(tmp_path, rows, error_class=DataError, **options):
    with pytest.raises(error_class) as error:
        read(tmp_path, rows, **options)
    return str(error.value).replace(str(tmp_path / "items.csv"), "FILE")


def test_too_few_items_and_clusters_are_said_with_their_number(tmp_path, rows):
    assert refused(tmp_path, rows[1:]) == (
        "audit.items: FILE has 1 items whose column spiked is member. Give 2 or more of each of "
        "member and non-member (spiked examples) and 10 or more unknown (the benchmark)."
    )
    assert refused(tmp_path, rows[:2] + rows[3:]) == (
        "audit.items: FILE has 1 items whose column spiked is non-member. Give 2 or more of each "
        "of member and non-member (spiked examples) and 10 or more unknown (the benchmark)."
    )
    renamed = [{**row, "role": row["spiked"]} for row in rows[:-1]]
    assert refused(tmp_path, renamed, columns={"spiked": "role"}) == (
        "audit.items: FILE has 9 items of unknown membership in the column role, whose score is "
        "corrected. Give 10 or more."
    )
    alike = [{**row, "cluster": "c" if i < 2 else str(i)} for i, row in enumerate(rows)]
    assert refused(tmp_path, alike) == (
        "audit.items: all 2 member items of FILE are of one cluster in the column cluster, so the "
        "scores have no interval. Give 2 or more clusters of each kind of item, or no such column."
    )
    file = tmp_path / "items.csv"
    file.write_text("id,correct,score,spiked\n")
    with pytest.raises(DataError, match=r"has no rows\. Give a table with one row per item\.$"):
        read_items(file, TableFields({}, [], None, "loss"))


@pytest.mark.parametrize(
    ("column", "value", "remedy"),
    [
        ("correct", "2", "Give 0, 1 or a probability between them."),
        ("correct", "x", "Give 0, 1 or a probability between them."),
        ("score", "1e101", "Give a finite number up to 1e+100; higher means member."),
        ("score", "nan", "Give a finite number up to 1e+100; higher means member."),
        ("spiked", "maybe", "Give member, non-member or unknown (or empty)."),
    ],
)
def test_a_value_that_means_nothing_is_said_with_its_row(tmp_path, rows, column, value, remedy):
    rows[4][column] = value
    message = refused(tmp_path, rows)
    assert message.endswith(f"row 5: {column} is {value!r}. {remedy}")


def test_the_largest_numbers_are_read(tmp_path, rows):
    rows[4] |= {"score": "-1e100", "correct": "1"}
    rows[5] |= {"score": "1e100", "correct": "0"}
    assert read(tmp_path, rows).score[4:6].tolist() == [-1e100, 1e100]


def test_repeated_items_and_clusters_without_a_name_are_said_with_their_rows(tmp_path, rows):
    repeated = [*rows, {**rows[3]}]
    message = refused(tmp_path, repeated)
    assert "row 15: id is 'q3', as in " in message
    assert message.endswith(
        "row 4. Give each item once, or a column cluster with one name for the rows of an item."
    )
    for row in rows[:2]:
        row["id"] = ""  # no name is no repetition
    assert read(tmp_path, rows).count("member") == 2
    named = [{**row, "cluster": str(i)} for i, row in enumerate(rows)]
    named[6]["cluster"] = " "
    assert refused(tmp_path, named).endswith(
        "row 7: cluster is empty. Name a cluster for each item (its own for an item that belongs "
        "to no other), or leave the column out."
    )


def test_columns_and_files_that_are_not_there_are_named(tmp_path, rows):
    def without(name, **options):
        lacking = [{key: value for key, value in row.items() if key != name} for row in rows]
        return refused(tmp_path, lacking, ConfigError, **options)

    assert without("score").startswith(
        "audit.columns.score is 'score': audit.items has no such column. "
    )
    assert without("spiked").startswith("audit.columns.spiked is 'spiked': ")
    assert without("id", scores="DIR").startswith("audit.columns.id is 'id': ")
    assert without("", references=["refs"]).startswith("audit.references is 'refs': ")
    assert without("", columns={"predicted": "guess"}).startswith(
        "audit.columns.predicted is 'guess': "
    )
    with pytest.raises(ConfigError) as error:
        find_table(tmp_path)
    assert str(error.value) == (
        f"audit.items is {tmp_path!r}: give a CSV, TSV, JSONL or Parquet file."
    )


@pytest.fixture
def stored(monkeypatch):
    """Scores of two variants of a method and of another one, at two checkpoints."""
    methods = [("min_k", "k=0.1", False), ("min_k", "k=0.2", True), ("loss", "", True)]
    table = pd.DataFrame(
        (f"q{i}", method, variant, default, step, 100 * step + 10 * number + i / 100, True)
        for number, (method, variant, default) in enumerate(methods)
        for step in (2, 1)
        for i in range(14)
    ).set_axis(
        ["example_id", "method", "variant", "default", "checkpoint_step", "score", "ranked"], axis=1
    )
    stored = SimpleNamespace(table=table)
    monkeypatch.setattr(inputs, "open_scores", lambda path: stored if path == "DIR" else None)
    return stored


def test_stored_scores_are_of_the_last_checkpoint_and_of_the_method_or_its_variant(
    tmp_path, rows, stored
):
    def scores(method):
        return read(tmp_path, rows, scores="DIR", method=method).score - np.arange(14) / 100

    assert scores("loss") == pytest.approx(220)
    assert scores("min_k") == pytest.approx(210)  # of its default variant
    assert scores("min_k k=0.1") == pytest.approx(200)
    stored.table.loc[stored.table["score"] == 220.05, "ranked"] = False
    assert refused(tmp_path, rows, scores="DIR").endswith(
        "row 6: id is 'q5', for which audit.scores has no score that may be compared. Score the "
        "same items, with these ids."
    )
    stored.table["default"] = True
    assert refused(tmp_path, rows, scores="DIR", method="min_k") == (
        "audit.scores: DIR has several scores of min_k for one id. Name one variant in "
        "audit.method."
    )
    message = refused(tmp_path, rows, ConfigError, scores="DIR", method="min_k k=0.3")
    assert message.startswith("audit.method is 'min_k k=0.3': no such scores there. ")
    assert "min_k k=0.1" in message
