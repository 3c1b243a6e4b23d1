"""The builder of labelled benchmarks: cut, card and resumption."""

import hashlib
import re
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from contamination.core.cli import compose_stage
from contamination.core.errors import ConfigError, DataError
from contamination.detection.building import datasheet
from contamination.detection.building.candidates import CandidateScan
from contamination.detection.building.dates import (
    BETWEEN,
    EDITED,
    MEMBER,
    NONMEMBER,
    UNKNOWN,
    CutOffs,
    DatedDocument,
)
from contamination.detection.config import DetectionStage
from contamination.detection.examples import open_examples
from tests.detection.building.conftest import jsonl, texts
from tests.dumps import drawn_dates

DAY = datetime(2015, 6, 1, tzinfo=UTC), datetime(2020, 6, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_blind(monkeypatch, request):
    """Not what most of these tests are about, and most of their time."""
    if "blind" not in request.node.name:
        monkeypatch.setattr(datasheet, "blind_obstacle", lambda *_: "time")


def dated(number, start=0):
    some = zip(texts(start + number)[start:], drawn_dates(start + number)[start:], strict=True)
    return [
        {"id": f"d{start + n}", "text": text, "created": at.isoformat()}
        for n, (text, at) in enumerate(some)
    ]


@pytest.fixture
def files(tmp_path):
    """Three files of dated documents."""
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(3):
        jsonl(folder / f"{n}.jsonl", dated(40, 40 * n))
    return folder


def test_the_smallest_hashes_of_each_side_are_cut_to_words(built, files):
    rows, sheet, folder = built("source=jsonl", f"source.paths={files}", "source.id=id")
    own = {row["id"]: row for row in dated(120)}
    assert [*rows] == ["length16", "length8"]
    for length in (8, 16):
        assert Counter(row["label"] for row in rows[f"length{length}"]) == {0: 10, 1: 10}
        for row in rows[f"length{length}"]:
            assert row["text"].split() == own[row["id"]]["text"].split()[:length]
            assert row["label"] == (own[row["id"]]["created"] < "2016")
            assert own[row["id"]]["created"] < "2016" or own[row["id"]]["created"] >= "2019"
    assert len({row["id"] for row in rows["length8"]}) == 20
    assert [r["id"] for r in rows["length8"]] == [r["id"] for r in rows["length16"]]
    assert sum(sheet["read"]["documents"].values()) == 120
    digests = {one["file"]: one["sha256"] for one in sheet["sources"]}
    for path in files.iterdir():
        assert digests[path.name] == hashlib.sha256(path.read_bytes()).hexdigest()
    words = ["examples=jsonl", f"examples.path={folder}/data", "model.path=none"]
    read = open_examples(compose_stage("detection", words, DetectionStage).examples)
    names = {f"documents/{length}/original": 20 for length in (8, 16)}
    assert Counter(one.benchmark for one in read) == names
    assert sum(one.label for one in read) == 20


def test_the_card_names_the_files(built, files):
    rows, _, folder = built("source=jsonl", f"source.paths={files}")
    head = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    named = {one["config_name"]: one["data_files"] for one in head["configs"]}
    assert named == {name: f"data/{name}.jsonl" for name in rows}
    assert re.search(r"length8 \| 10 \| 10 \|", (folder / "datasheet.md").read_text())


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.*") if p.is_file()}


def test_after_a_stop_the_files_that_were_read_are_not_read_again(
    built, files, tmp_path, monkeypatch
):
    words = ["source=jsonl", f"source.paths={files}"]
    whole = contents(built(*words)[2])
    read, make = [], CandidateScan.process_piece

    def stopped(self, piece):
        read.append(piece)
        if read == [0, 1]:
            raise KeyboardInterrupt
        return make(self, piece)

    monkeypatch.setattr(CandidateScan, "process_piece", stopped)
    again = tmp_path / "again"
    with pytest.raises(KeyboardInterrupt):
        built(*words, runs=again)
    assert contents(built(*words, runs=again)[2]).keys() == whole.keys()
    assert read == [0, 1, 1, 2]
    name = Path("config.yaml"), Path("manifest.json")  # which name the runs folder
    assert {k: v for k, v in contents(built(*words, runs=again)[2]).items() if k not in name} == {
        k: v for k, v in whole.items() if k not in name
    }


def test_the_order_of_the_documents_does_not_matter(built, files, tmp_path):
    words = ["source=jsonl", "source.id=id", "build.candidates=1"]
    one = jsonl(tmp_path / "one.jsonl", [row for row in reversed(dated(120))])
    assert built(*words, f"source.paths={files}")[0] == built(*words, f"source.paths={one}")[0]


def test_another_seed_draws_others(built, files):
    words = ["source=jsonl", f"source.paths={files}"]
    ids = [{row["id"] for row in built(*words, f"seed={seed}")[0]["length8"]} for seed in (0, 1)]
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("created", "changed", "unchanged", "side"),
    [
        (DAY[0], DAY[0], True, MEMBER),
        (DAY[0], DAY[1], False, MEMBER),
        (DAY[0], DAY[1], True, EDITED),
        (DAY[1], DAY[1], False, NONMEMBER),
        (datetime(2017, 1, 1, tzinfo=UTC), DAY[1], False, BETWEEN),
        (None, DAY[0], False, MEMBER),
        (None, DAY[1], False, UNKNOWN),
        (datetime(2016, 1, 1, tzinfo=UTC), DAY[1], False, BETWEEN),
        (datetime(2019, 1, 1, tzinfo=UTC), DAY[1], False, NONMEMBER),
    ],
)
def test_a_date_that_is_not_known_makes_no_label(created, changed, unchanged, side):
    document = DatedDocument("a", "", created, changed, "")
    assert (
        CutOffs.from_dates("2016-01-01", "2019-01-01").side_or_reason(document, unchanged) == side
    )


@pytest.fixture
def near_duplicates(tmp_path):
    """The overrides for twelve documents of each label, and the ids of two that share a text."""
    rows = dated(60)
    members = [row for row in rows if row["created"] < "2016"][:12]
    others = [row for row in rows if row["created"] > "2019"][:12]
    others[0]["text"] = members[0]["text"].upper()
    members[0]["text"] = f"Also {members[0]['text']}"
    path = jsonl(tmp_path / "in.jsonl", members + others)
    return ["source=jsonl", f"source.paths={path}", "source.id=id"], {
        members[0]["id"], others[0]["id"]
    }  # fmt: skip


def test_near_duplicates_across_the_line_are_kept_and_counted(built, near_duplicates):
    words, pair = near_duplicates
    kept, sheet, _ = built(*words, "build.number=12")
    assert pair <= {row["id"] for row in kept["length16"]}
    assert sheet["overlap"]["members_that_share_13_words_with_a_non-member"] == 1


def test_near_duplicates_across_the_line_are_dropped_and_others_taken(built, near_duplicates):
    words, pair = near_duplicates
    kept, *_ = built(*words, "build.number=11", "build.near_duplicates=drop")
    assert not pair & {row["id"] for row in kept["length16"]}
    assert Counter(row["label"] for row in kept["length16"]) == {0: 11, 1: 11}


def test_a_slice_has_a_months_nonmembers(built, tmp_path):
    months = ("2014-05", "2019-01", "2019-02")
    rows = dated(60)
    for n, row in enumerate(rows):
        row["created"] = f"{months[n % 3]}-03T00:00:00Z"
    words = ["source=jsonl", f"source.paths={jsonl(tmp_path / 'in.jsonl', rows)}"]
    found = built(*words, "build.slices=month", "build.lengths=[8]")[0]
    assert [*found] == ["length8-2019-01", "length8-2019-02"]
    for name, own in found.items():
        assert {r["created"][:7] for r in own if not r["label"]} == {name[-7:]}
    members = [{r["id"] for r in own if r["label"]} for own in found.values()]
    assert members[0] == members[1]


def test_fewer_than_asked_is_said(built, tmp_path, caplog):
    path = jsonl(tmp_path / "in.jsonl", dated(30))
    rows, _, _ = built("source=jsonl", f"source.paths={path}", "build.number=40")
    (labels,) = {tuple(sorted(r["label"] for r in own)) for own in rows.values()}
    assert 0 < sum(labels) == len(labels) / 2 < 30
    assert "build.number is 40" in caplog.text
    with pytest.raises(
        DataError, match=r"with 99 words and more there are 0 member texts.*build.lengths"
    ):
        built("source=jsonl", f"source.paths={path}", "build.lengths=[99]")


def test_a_rewording_is_as_near_as_bleu_asks(built, files):
    sacrebleu = pytest.importorskip("sacrebleu", reason="pip install '.[build]'")
    words = ["source=jsonl", f"source.paths={files}", "rewording=swap", "build.lengths=[24]"]
    rows = built(*words, "rewording.share=0.01")[0]
    old = {row["id"]: row["text"] for row in rows["length24"]}
    new = rows["length24-swap"]
    assert Counter(row["label"] for row in new).most_common(1)[0][1] * 2 == len(new) > 4
    for row in new:
        assert sorted(row["text"].split()) == sorted(old[row["id"]].split())
        assert row["text"] != old[row["id"]]
        assert sacrebleu.sentence_bleu(row["text"], [old[row["id"]]]).score > 75
    with pytest.raises(DataError, match="BLEU above build.least_bleu=0.75"):
        built(*words, "rewording.share=1")


def test_cut_offs_that_cross_are_refused(built, files):
    with pytest.raises(ConfigError, match="members_before.*2020.*cross"):
        built("source=jsonl", f"source.paths={files}", "build.members_before=2020-01-01")


def test_a_side_without_documents_is_named(built, files):
    with pytest.raises(DataError, match="no documents on both sides .*120 non-member"):
        built("source=jsonl", f"source.paths={files}", "build.members_before=1999-01-01",
              "build.nonmembers_from=1999-01-01")  # fmt: skip


def test_the_blind_row_sees_a_shift_and_none_where_dates_are_drawn(built, tmp_path):
    rows = dated(400)
    words = ["source=jsonl", "build.number=60", "build.lengths=[16]"]
    path = jsonl(tmp_path / "in.jsonl", rows)
    (own,) = built(*words, f"source.paths={path}")[1]["sets"]
    assert own["blind"]["low"] < 0.5 < own["blind"]["high"]
    assert own["blind"]["warning"] is None
    for row in rows:
        if row["created"] > "2019":
            row["text"] = row["text"].replace("near", "beside")
    (own,) = built(*words, f"source.paths={jsonl(path, rows)}")[1]["sets"]
    assert own["blind"]["low"] > 0.5
    assert "The texts alone tell members" in own["blind"]["warning"]


def test_a_finished_benchmark_is_found(built, files):
    words = ["source=jsonl", f"source.paths={files}"]
    folder = built(*words)[2]
    shutil.rmtree(folder / "notes", ignore_errors=True)
    assert built(*words, "build.processes=2")[2] == folder
    moved = shutil.copytree(files, files.with_name("moved"))
    assert built("source=jsonl", f"source.paths={moved}")[2] == folder
    jsonl(moved / "2.jsonl", dated(40, 200))
    assert built("source=jsonl", f"source.paths={moved}")[2] != folder
    assert built(*words, "build.number=11")[2] != folder


@pytest.mark.slow
def test_processes_share_the_files(built, files):
    words = ["source=jsonl", f"source.paths={files}"]
    assert built(*words)[0] == built(*words, "build.processes=2", runs=files.with_name("two"))[0]
