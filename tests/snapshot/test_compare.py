"""The comparison of two records, on folders made up here."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.snapshot.commands import COMMANDS, Command
from tests.snapshot.compare import compare
from tests.snapshot.contents import kind_of, page_numbers, read_table
from tests.snapshot.record import write_record
from tests.snapshot.run import Recorder, Result

SCORES = pd.DataFrame({
    "example_id": ["a", "b", "c"], "method": ["loss"] * 3, "score": [0.5, -1.25, 2.0],
    "logprob": [[-0.5, -1.0], [-2.0], []],
})  # fmt: skip


def record(out, scores=SCORES, kind="scores", name="tiny-llama", digest="0123456789ab", **changes):
    """A record of one command that left one artefact."""
    artefact = f"{kind}/{name}-{digest}"
    folder = out / "runs" / artefact
    (folder / "hf").mkdir(parents=True)
    scores.to_parquet(folder / f"{changes.get('file', 'scores')}.parquet")
    (folder / "hf" / "model.safetensors").write_bytes(changes.get("weights", b"weights"))
    (folder / "report.md").write_text(changes.get("page", "AUROC 0.76 of 1,000 texts"))
    (folder / "metrics.jsonl").write_text(
        json.dumps({"loss": 1.5, "tokens_per_second": hash(str(out))})
    )
    (folder / "config.yaml").write_text(yaml.safe_dump(changes.get("config", {"k": 0.2})))
    (folder / "manifest.json").write_text(
        json.dumps({"digest": digest * 5 + "abcd", "counts": changes.get("counts", {"texts": 3})})
    )
    recorder = Recorder(out, Path(), [Command("score", ("detection",))])
    recorder.results["score"] = Result((), changes.get("status", 0), 1.0, 1.0, [artefact])
    (recorder.folder("score") / "files").mkdir(parents=True)
    (recorder.folder("score") / "stdout").write_text(f"wrote {folder}")
    write_record(recorder)
    return out / "record"


@pytest.fixture
def before(tmp_path):
    return record(tmp_path / "before")


def tallies(report):
    """The classes with something other than equal things."""
    return {
        name: (tally.differing, tally.missing, tally.new)
        for name, tally in report.tallies.items()
        if tally.differing or tally.missing or tally.new
    }


def test_the_same_results_in_another_folder_under_another_hash_are_equal(before, tmp_path):
    report = compare(before, record(tmp_path / "after", digest="ba9876543210"))
    assert not report.differs(strict=True)
    assert not report.names
    assert report.tallies["scores"].numbers == 3 + 3
    assert "| scores | 1 | 0 | 0 | 0 | 6 | 0 |" in report.markdown()


def test_a_number_that_differs_is_reported_with_the_largest_difference(before, tmp_path):
    changed = SCORES.assign(score=[0.5, -1.0, 2.0 + 2**-20])
    report = compare(before, record(tmp_path / "after", changed))
    assert report.differs()
    assert tallies(report) == {"scores": (1, 0, 0)}
    assert report.tallies["scores"].largest == 0.25
    assert "score: 2 of 3 numbers differ, by up to 0.25" in report.differences[0]


def test_a_number_in_a_list_that_differs_is_reported(before, tmp_path):
    changed = SCORES.assign(logprob=[[-0.5, -1.5], [-2.0], []])
    report = compare(before, record(tmp_path / "after", changed))
    assert report.tallies["scores"].largest == 0.5
    assert report.differs()


def test_a_number_that_became_nan_differs_and_nan_equals_itself(before, tmp_path):
    missing = SCORES.assign(score=[0.5, float("nan"), 2.0])
    first = record(tmp_path / "nan", missing)
    assert compare(before, first).tallies["scores"].largest == float("inf")
    assert not compare(first, record(tmp_path / "again", missing)).differs(strict=True)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"weights": b"others"}, "data files"),
        ({"counts": {"texts": 4}}, "counts"),
        ({"config": {"k": 0.3}}, "settings"),
        ({"status": 2}, "commands"),
        ({"scores": SCORES[:2]}, "scores"),
        ({"scores": SCORES.drop(columns="score")}, "scores"),
    ],
)
def test_each_kind_of_result_is_compared(before, tmp_path, change, kind):
    report = compare(before, record(tmp_path / "after", **change))
    assert report.differs()
    assert tallies(report) == {kind: (1, 0, 0)}


def test_a_missing_artefact_is_a_difference_and_a_new_one_is_none(before, tmp_path):
    index = json.loads((before / "index.json").read_text())
    index["artefacts"] = [
        artefact for artefact in index["artefacts"] if artefact["kind"] == "output"
    ]
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    (fewer / "index.json").write_text(json.dumps(index))
    gone = compare(before, fewer)
    assert gone.differs()
    assert gone.tallies["scores"].missing == 1
    assert gone.tallies["counts"].missing == 1
    more = compare(fewer, before)
    assert not more.differs(strict=True)
    assert more.tallies["scores"].new == 1


def test_names_may_change_and_are_listed(before, tmp_path):
    renamed = SCORES.rename(columns={"score": "value"}).assign(method=["mean_loss"] * 3)
    config = {"k": 0.2, "_target_": "contamination.detection.methods.Loss"}
    report = compare(
        before, record(tmp_path / "after", renamed, "score", "llama", file="table", config=config)
    )
    assert not report.differs(strict=True)
    assert dict(report.names) == {
        "kinds of artefacts": ["`scores` → `score`"],
        "artefacts": ["`tiny-llama` → `llama`"],
        "fields gone or new": ["`_target_` is new"],
        "files": ["`scores.parquet` → `table.parquet`"],
        "columns and fields": ["`score` → `value`"],
        "words in method": ["`loss` → `mean_loss`"],
    }


def test_rows_in_another_order_are_equal_and_said(before, tmp_path):
    report = compare(before, record(tmp_path / "after", SCORES[::-1]))
    assert not report.differs()
    assert report.names["order of rows"] == ["scores"]


def test_words_that_did_not_change_in_one_way_differ(before, tmp_path):
    report = compare(before, record(tmp_path / "after", SCORES.assign(method=["x", "y", "loss"])))
    assert report.differs()
    assert "method: 3 texts differ" in report.differences[0]


def test_one_written_as_a_float_is_no_difference(tmp_path):
    integers = SCORES.assign(score=[1, 2, 3])
    reports = [record(tmp_path / "before", integers),
               record(tmp_path / "after", integers.astype({"score": float}))]  # fmt: skip
    assert not compare(*reports).differs()


def test_the_wording_of_a_page_may_change_and_its_numbers_count_where_asked_for(before, tmp_path):
    words = record(tmp_path / "words", page="AUROC is 0.76. There are 1000 texts.")
    assert not compare(before, words).differs(strict=True)
    numbers = compare(before, record(tmp_path / "numbers", page="AUROC is 0.77 of 1000 texts."))
    assert not numbers.differs()
    assert numbers.differs(strict=True)
    assert "1 numbers gone (0.76), 1 new (0.77)" in numbers.differences[0]


def test_a_page_is_read_without_scripts_and_drawings(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(
        "<style>p {width: 3px}</style><svg><path d='M 4 5'/></svg><script>var a = 6</script>"
        "<p id=7>k=0.2 gives −1.5 [−2, 1,000]&nbsp;min_k8 sha 9f</p>"
        '<script type="application/json">{"a": 10}</script>'
    )
    assert sorted(page_numbers(page)) == ["-1.5", "-2", "0.2", "10", "1000"]


def test_times_on_a_page_are_left_out(tmp_path):
    page = tmp_path / "report.md"
    page.write_text("0.76 after 82 s, 1.5 min or 2 hours, on 2026-11-23 23:18 UTC; 00:56; 3 steps.")
    assert sorted(page_numbers(page)) == ["0.76", "3"]


def test_exact_text_reads_back_as_the_same_number(tmp_path):
    values = [0.1 + 0.2, 1e-300, -0.0, float("nan"), None]
    pd.DataFrame({"a": values, "b": pd.array(values, "Float32")}).to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert [float(cell) for cell in table.columns["a"][:3]] == values[:3]
    assert table.columns["b"][0] == "0.3"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("scores.parquet", "table"), ("tokens.csv.gz", "table"), ("metrics.jsonl", "table"),
        ("hf/config.json", "data"), ("tokenizer/tokenizer.json", "data"), ("tokens.bin", "data"),
        ("report.md", "page"), ("stdout", "page"), ("charts/roc.svg", "chart"),
    ],
)  # fmt: skip
def test_files_are_known_by_their_names(name, kind):
    assert kind_of(name) == kind


def test_commands_need_only_commands_that_come_before_them():
    makers = [command for command in COMMANDS if command.makes]
    for place, command in enumerate(makers):
        assert command.needs <= {other.name for other in makers[:place]}, command.name
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
