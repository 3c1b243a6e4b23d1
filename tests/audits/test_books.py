"""The audit of books from files to its report."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.base import AuditStage
from contamination.audits.run import run
from contamination.core.errors import ConfigError, DataError
from contamination.detection.config import ScoredModelConfig
from contamination.launch import cli
from tests.detection.golden import GOLDEN
from tests.detection.model.served.server import Server

WORDS = [
    *("river", "stone", "lantern", "garden", "winter", "morning", "bridge", "harbour", "letter"),
    *("window", "market", "orchard", "violin", "candle", "meadow", "shadow", "thunder", "copper"),
    *("ribbon", "saddle", "ladder", "heron", "marble", "willow", "cellar", "pepper", "basket"),
]


def prose(name, words):
    rng = np.random.default_rng([*name.encode()])
    return " ".join(rng.choice(WORDS, words))


def write_books(folder, **books):
    folder.mkdir(exist_ok=True)
    for name, words in books.items():
        (folder / f"{name}.txt").write_text(prose(name, words))


@pytest.fixture
def stage(tmp_path):
    node = {"_target_": "contamination.audits.books.audit.Books", "length": 12, "snippets": 6}
    for role in ("positives", "negatives", "suspects"):
        write_books(tmp_path / role, **{f"{role} {i}": 120 for i in range(5)})
        node[role] = str(tmp_path / role)
    return AuditStage(
        audit=node,
        runs=str(tmp_path / "runs"),
        model=ScoredModelConfig(str(GOLDEN / "target")),
        method={
            "loss": {"_target_": "contamination.detection.methods.loss.Loss"},
            "min_k": {"_target_": "contamination.detection.methods.min_k.MinK", "k": [0.2, 0.5]},
        },
    )


def test_a_folder_of_books_becomes_a_report(stage, tmp_path):
    write_books(tmp_path / "suspects", short=40)
    made = run(stage)
    suspects = pd.read_parquet(made.path / "suspects.parquet")
    assert sorted(suspects["title"]) == sorted([*(f"suspects {i}" for i in range(5)), "short"])
    assert suspects["contamination_rate"].is_monotonic_decreasing
    assert suspects["p"].between(1 / 6, 1).all()
    assert (suspects["q"] >= suspects["p"]).all()
    known = pd.read_parquet(made.path / "candidates.parquet")
    assert known["variant"].tolist() == ["", "k=0.2", "k=0.5", ""]
    assert known["chosen"].sum() == 1
    assert made.counts == {
        "positives": 5,
        "negatives": 5,
        "suspects": 6,
        "snippets": 96,
        "found": 0,
    }
    text = (made.path / "audit.md").read_text()
    for words in ("None of 6 suspects", "With 5 negatives no suspect can be found",
                  "'short', are too short", "blind (no model)", "can't be told"):  # fmt: skip
        assert words in text, words
    assert run(stage).path == made.path


def refused(stage, *words, error=DataError, **audit):
    with pytest.raises(error) as found:
        run(replace(stage, audit={**stage.audit, **audit}))
    for word in words:
        assert word in str(found.value)
    assert "\n" not in str(found.value)


def test_what_is_no_book_is_named_and_nothing_is_written(stage, tmp_path):
    first = tmp_path / "positives" / "positives 0.txt"
    whole = first.read_text()
    for content, word in (
        (b" \n", "has no text"),
        (b"\xff", "can't decode"),
        (b"a b c", "3 words"),
    ):
        first.write_bytes(content)
        refused(stage, "audit.positives", "positives 0", word)
    first.write_text(whole)
    refused(stage, "audit.suspects", "nowhere", error=ConfigError, suspects="nowhere")
    (tmp_path / "none").mkdir()
    refused(stage, "audit.suspects", "it has no book", ".epub", error=ConfigError,
            suspects=str(tmp_path / "none"))  # fmt: skip
    refused(stage, "audit.length is 1", error=ConfigError, length=1)
    refused(stage, "audit.null_model", "luck", error=ConfigError, null_model="luck")
    (tmp_path / "suspects" / "positives 0.txt").write_text(prose("x", 99))
    refused(stage, "two books are called 'positives 0'")
    assert not (tmp_path / "runs").exists()


def test_too_few_validation_books_are_refused(stage, tmp_path):
    (tmp_path / "negatives" / "negatives 4.txt").unlink()
    refused(stage, "audit.negatives", "4 books", "at least 5")


def test_books_of_one_licence_are_audited_and_the_report_says_what_was_set_aside(stage, tmp_path):
    for role in ("positives", "suspects"):
        for file in sorted((tmp_path / role).iterdir())[:2]:
            file.write_text(f"{file.read_text()} {prose('licence', 60)}")
    text = (run(stage).path / "audit.md").read_text()
    assert "up to 60 words at the end of 4 books" in text
    assert re.search("Text that several books share was set aside", text)


def test_the_first_sentence_says_that_none_could_have_been_found(stage):
    lines = (run(stage).path / "audit.md").read_text().splitlines()
    first = next(line for line in lines if line.startswith(("**", "- **")))
    assert "With 5 negatives no suspect can be found** at a false discovery rate of 5%" in first
    assert "at least 19 negatives are needed, and 99 to find one of 5" in first
    assert "None of 5 suspects** is found, which therefore says nothing" in first


def test_limits_of_reading_name_no_folder(stage):
    assert (
        run(stage).path == run(replace(stage, audit={**stage.audit, "max_book_bytes": 9_999})).path
    )
    refused(stage, "audit.max_book_bytes=99 bytes", max_book_bytes=99)


def test_one_book_in_two_roles_is_refused_by_its_content(stage, tmp_path):
    text = (tmp_path / "positives" / "positives 0.txt").read_text()
    edition = f"A new foreword. {text.upper().replace(' ', '  ')}, the end."
    (tmp_path / "suspects" / "other.txt").write_text(edition)
    refused(stage, "'other'", "'positives 0'", "the same book")


def test_a_jsonl_holds_a_book_a_line_or_one_book(stage, tmp_path):
    rows = [{"title": f"T{i}", "text": prose(f"t{i}", 80)} for i in range(3)]
    (tmp_path / "three.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = run(replace(stage, audit={**stage.audit, "suspects": str(tmp_path / "three.jsonl")}))
    assert made.counts["suspects"] == 3
    (tmp_path / "mixed.jsonl").write_text(f'{json.dumps(rows[0])}\n{{"text": "a b"}}')
    refused(
        stage, "mixed.jsonl", "some lines have a `title`", suspects=str(tmp_path / "mixed.jsonl")
    )
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 3}')
    refused(stage, "bad.jsonl", "line 2", suspects=str(tmp_path / "bad.jsonl"))


def test_tokens_are_the_models_own(stage):
    made = run(replace(stage, audit={**stage.audit, "unit": "tokens", "length": 20}))
    assert re.search("6 of 20 tokens per book", (made.path / "audit.md").read_text())


@pytest.mark.slow
def test_a_served_model_is_audited_as_one_in_files(stage):
    local = run(stage)
    with Server(folder=GOLDEN / "target") as server:
        model = ScoredModelConfig(url=server.url, tokenizer=str(GOLDEN / "target"))
        served = run(replace(stage, model=model))
    columns = ["title", "contamination_rate", "p", "q"]
    tables = [pd.read_parquet(m.path / "suspects.parquet")[columns] for m in (local, served)]
    pd.testing.assert_frame_equal(*tables)


def test_the_command_is_as_the_readme_has_it(stage, tmp_path, capsys, monkeypatch):
    node = stage.audit
    words = [f"{role}={node[role]}" for role in ("positives", "negatives", "suspects")]
    given = ["length=12", "snippets=6", "method=[loss]", f"runs={tmp_path / 'runs'}"]
    model = f"model.path={GOLDEN / 'target'}"
    monkeypatch.setattr(
        sys, "argv", ["contamination", "audit", "audit=books", *words, *given, model]
    )
    for package in ("audits", "detection"):  # as in a process of its own
        monkeypatch.delitem(sys.modules, f"contamination.{package}.__main__", raising=False)
    assert cli.main() == 0
    said = capsys.readouterr().out
    assert "**None of 5 suspects**" in said
    assert "report.html" in said.splitlines()[-1]
