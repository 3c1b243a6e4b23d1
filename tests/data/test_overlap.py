"""Near-duplicates across the labels of texts to score."""

import json

from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.data.near_duplicates import (
    describe_duplicates,
    describe_near_duplicates,
    duplicate_notes_by_part,
)
from contamination.data.texts import Texts
from contamination.detection.examples import open_examples

LONG = "it was ann who first crossed the wide and frozen river by night on the old stone bridge"
ROWS = [
    {"text": "The quick brown fox", "label": 1},
    {"text": "A text of its own", "label": 0},
    {"text": "the QUICK\n brown  fox!", "label": 0},
    {"text": "the quick brown fox jumps", "label": 0},
    {"text": f"They said: {LONG}", "label": 1},
    {"text": f"{LONG} -- so they said", "label": 1},
    {"text": f"{LONG}, I think", "label": 0},
    {"text": f"{LONG}, you think"},  # of no label
    {"text": "The quick brown fox?", "label": 0},
    *({"text": f"Text number {i}, of which there is no other", "label": i % 2} for i in range(20)),
]


def written(tmp_path, rows):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_near_duplicates_across_the_labels_are_counted_and_named(tmp_path):
    said = describe_near_duplicates(open_examples(ExamplesConfig(written(tmp_path, ROWS))))
    assert said.startswith("3 members and 3 non-members are near-duplicates of one another (")
    assert "such as 0 and 2: " in said
    assert (
        describe_near_duplicates(
            open_examples(ExamplesConfig(written(tmp_path, ROWS[:2] + ROWS[9:])))
        )
        == ""
    )
    same = [{**row, "label": 1} for row in ROWS]
    assert describe_near_duplicates(open_examples(ExamplesConfig(written(tmp_path, same)))) == ""


def test_benchmarks_have_templates_of_their_own_and_are_compared_with_one_another(tmp_path):
    template = "read this short text with care and then choose the one best answer of all"
    rows = [{"text": f"{name}: {template} {name}{i}", "label": i % 2, "benchmark": name}
            for name in "abcde" for i in range(4)]  # fmt: skip
    for row in rows[4:]:
        row["text"] = row["text"].replace("read", f"read-{row['benchmark']}")
    assert describe_near_duplicates(open_examples(ExamplesConfig(written(tmp_path, rows)))) == ""
    rows[-1] = {**rows[0], "label": 1, "benchmark": "e"}
    said = describe_near_duplicates(open_examples(ExamplesConfig(written(tmp_path, rows))))
    assert said.startswith("1 members and 1 non-members")
    assert "2 of them of a text of another benchmark, such as 0 and 19: " in said


def test_the_notes_of_each_part_are_sentences():
    rows = [
        ("0", "The same", True, "one"), ("1", "The same", True, "one"), ("2", "the same!", False,
        "one"), ("3", "A text", True, "two"), ("4", "Another", None, "two"),
        ("5", "The same", False, "one"),
    ]  # fmt: skip
    texts = Texts.of([make_text(*row) for row in rows])
    exact = (
        "2 of 4 texts are exact duplicates of another one, such as 1 of 0: each counts, so "
        "intervals are too narrow."
    )
    near = (
        "2 members and 2 non-members are near-duplicates of one another (13 words in a row in "
        "both, or no difference but case, punctuation and white space), such as 0 and 2: no score "
        "can tell these apart. Remove them, or give both the same label."
    )
    assert duplicate_notes_by_part(texts, lambda name: f"part {name}") == [
        f"part one: {exact}", f"part one: {near}",
        "1 texts have no label: metrics leave them out.",
    ]  # fmt: skip
    assert duplicate_notes_by_part(texts[3:4], str) == []
    assert describe_duplicates(texts[2:5]) == ""
