"""Dated documents as their sources give them, and the counts and tables made of them."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.core.hashing import digests_by_name
from contamination.data.readers.rows import Tally
from contamination.detection.building import datasheet, labelled_sets
from contamination.detection.building.candidates import CandidateScan, SmallestKeys, sum_counts
from contamination.detection.building.dates import (
    EDITED,
    MEMBER,
    NONMEMBER,
    UNKNOWN,
    CutOffs,
    DatedDocument,
    parse_time,
)
from contamination.detection.building.labelled_sets import LabelledSet, SelectedDocument
from contamination.detection.building.overlap_selection import BORDER, iter_chunks
from contamination.detection.building.sources.jsonl import Jsonl
from contamination.detection.building.sources.page_dates import (
    PageDates,
    Revisions,
    write_date_array,
)
from contamination.detection.building.sources.stackexchange import StackExchange

CUT_OFFS = CutOffs.from_dates("2016-01-01", "2019-01-01")
OLD, NEW = datetime(2014, 5, 1, tzinfo=UTC), datetime(2020, 5, 1, tzinfo=UTC)


def documents_of(source, on_error="stop"):
    tally, sizes = Tally(on_error, "source.on_error"), []
    (file,) = source.files
    documents = [*source.documents(file, tally, CUT_OFFS, sizes.append)]
    assert sum(sizes) == file.path.stat().st_size
    return documents, tally.skipped


def jsonl(path, rows, **fields):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Jsonl(name="own", paths=str(path), **fields)


def test_a_row_is_a_document(tmp_path):
    rows = [
        {"text": "One.", "created": "2014-05-01T00:00:00Z", "title": "First", "at": "2020-05-01"},
        {"text": "Two.", "created": 1588291200, "title": 7, "at": "2020-05-01"},
        {"text": "Three.", "created": "2014-05-01T02:00:00+02:00", "at": "2020-05-01"},
    ]
    path = tmp_path / "in.jsonl"
    assert documents_of(jsonl(path, rows)) == (
        [
            DatedDocument("in.jsonl:1", "First", OLD, OLD, "One."),
            DatedDocument("in.jsonl:2", "7", NEW, NEW, "Two."),
            DatedDocument("in.jsonl:3", "", OLD, OLD, "Three."),
        ],
        {},
    )
    numbered_rows = [{**row, "meta": {"n": 10 + number}} for number, row in enumerate(rows)]
    fields = {"changed": "at", "id": "meta.n", "title": None, "zone": "Europe/Paris"}
    changed = datetime(2020, 5, 1, tzinfo=ZoneInfo("Europe/Paris"))
    documents, _ = documents_of(jsonl(path, numbered_rows, **fields))
    assert [(d.id, d.title, d.created, d.changed) for d in documents] == [
        ("10", "", OLD, changed), ("11", "", NEW, changed), ("12", "", OLD, changed)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        ({"text": 3, "created": "2014-05-01"}, "no text", "'text' is a int, not a string"),
        ({"text": "\ud800", "created": "2014-05-01"}, "no text", "surrogates not allowed"),
        ({"text": "a", "created": "May"}, "no date", "'created': Invalid isoformat.*; ISO"),
        (
            {"text": "a", "created": "2014-05-01"}, "no date",
            "'created': the date '2014-05-01' names no time zone; set source.zone, such as "
            "source.zone=UTC",
        ),
    ],
)  # fmt: skip
def test_a_row_that_is_no_document_is_told_or_counted(tmp_path, row, reason, message):
    source = jsonl(tmp_path / "in.jsonl", [row])
    with pytest.raises(DataError, match=f"in.jsonl, row 1.*{message}"):
        documents_of(source)
    assert documents_of(source, "skip") == ([], {reason: 1})


def test_a_zone_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="source.zone is 'Mars'.*give a zone such as UTC or Eu"):
        jsonl(tmp_path / "in.jsonl", [{}], zone="Mars")


def test_a_question_is_a_document_and_an_answer_is_none(tmp_path):
    at = 'CreationDate="2014-05-01T00:00:00.000"'
    later = 'LastActivityDate="2020-05-01T00:00:00.000"'
    path = tmp_path / "cooking.stackexchange.com" / "Posts.xml"
    path.parent.mkdir()
    path.write_text(
        f'<posts><row Id="4" PostTypeId="1" {at} {later} Title="Why?" Body="One" />'
        f'<row Id="5" PostTypeId="2" {at} Body="Because" />'
        f'<row Id="6" PostTypeId="1" {at} Body="Two" /></posts>'
    )
    source = StackExchange(name="own", paths=str(tmp_path))
    (file,) = source.files
    documents = [*source.documents(file, Tally("stop", ""), CUT_OFFS, lambda size: None)]
    assert [(d.title, d.created, d.changed, d.raw) for d in documents] == [
        ("Why?", OLD, NEW, "One"), ("", OLD, OLD, "Two")
    ]  # fmt: skip
    assert [document.id.rpartition("-")[2] for document in documents] == ["4", "6"]
    code = "<p>Run <code>ls <b>-l</b></code>now</code> and <p>then</p><pre>x</pre>."
    assert source.text(code, 10).split() == ["Run", "now", "and", "then."]


def test_the_earliest_date_of_a_page_is_found_by_its_id(tmp_path):
    table, array_file = tmp_path / "dates.jsonl", tmp_path / "dates.npy"
    dates = [(9, "2020-05-01"), (3, "2021-01-01"), (9, "2014-05-01"), (5, "2015-01-01")]
    rows = [{"page_id": page, "created": f"{day}T00:00:00Z"} for page, day in dates]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert write_date_array(table, array_file, 1000) == {"pages": 3}
    page_dates = PageDates(array_file)
    assert page_dates.date_of(9) == OLD
    assert page_dates.date_of(5) == datetime(2015, 1, 1, tzinfo=UTC)
    assert page_dates.date_of(3) == datetime(2021, 1, 1, tzinfo=UTC)
    assert [page_dates.date_of(page) for page in (2, 4, 10)] == [None] * 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"page_id": 1, "day": "x"}, "no 'created'; its fields are page_id, day"),
        ({"page_id": 1, "created": "2014-05-01"}, "names no time zone"),
        ({"page_id": 2**63, "created": 1588291200}, "does not fit into 64 bits"),
        ({"page_id": None, "created": 1588291200}, "no date"),
    ],
)
def test_a_table_of_dates_that_says_too_little_is_told(tmp_path, row, message):
    table = tmp_path / "dates.jsonl"
    table.write_text(json.dumps(row) + "\n")
    place = "dates.jsonl, row 1"
    with pytest.raises(DataError, match=f"{place}.*{message}|{message}.*{place}"):
        write_date_array(table, tmp_path / "dates.npy", 1000)


def test_a_table_without_pages_is_told(tmp_path):
    table = tmp_path / "stub.xml"
    table.write_text("<mediawiki></mediawiki>")
    with pytest.raises(DataError, match="source.dates is '.*stub.xml': it has no page with a"):
        write_date_array(table, tmp_path / "dates.npy", 1000)


def test_a_page_has_the_text_that_was_its_last_before_the_cut_off():
    page = Revisions(CUT_OFFS.members_before)
    assert (page.created, page.version_to_use) == (None, None)
    page.add(OLD + timedelta(1), "old", 1)
    assert (page.created, page.version_to_use) == (None, (OLD + timedelta(1), "old"))
    page.add(NEW, "new", 2)
    page.add(OLD, "older", 3)
    page.add(OLD + timedelta(2), None, 4)  # a hidden text
    page.add(None, "undated", 5)
    assert (page.created, page.count) == (OLD, 5)
    assert page.version_to_use == (OLD + timedelta(1), "old")
    page.add(OLD + timedelta(1), "again", 6)  # of one second: the later in the file
    assert page.version_to_use == (OLD + timedelta(1), "again")
    young = Revisions(CUT_OFFS.members_before)
    young.add(CUT_OFFS.members_before, "first", None)
    assert (young.created, young.version_to_use) == (
        CUT_OFFS.members_before, (CUT_OFFS.members_before, "first")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "zone", "time"),
    [
        (365 * 24 * 3600, None, datetime(1971, 1, 1, tzinfo=UTC)),
        ("100000000", None, datetime(1973, 3, 3, 9, 46, 40, tzinfo=UTC)),
        (" 2014-05-01 ", UTC, OLD),
        ("2014-05-01T02:00:00+02:00", UTC, OLD),
        (datetime(2014, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))), None, OLD),
        (datetime(2014, 5, 1), UTC, OLD),  # noqa: DTZ001
    ],
)
def test_a_time_is_in_utc(value, zone, time):
    parsed = parse_time(value, zone)
    assert (parsed, parsed.tzinfo) == (time, UTC)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (365 * 24 * 3600 - 1, "31535999 is in 1970 as Unix seconds"),
        (True, "Invalid isoformat string: 'True'"),
        (datetime(2014, 5, 1), "the date '2014-05-01 00:00:00' names no time zone"),  # noqa: DTZ001
    ],
)
def test_a_value_that_is_no_time_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        parse_time(value, None)


@pytest.mark.parametrize(
    ("created", "changed", "side"),
    [
        (OLD, None, UNKNOWN), (None, None, UNKNOWN),
        (OLD, CUT_OFFS.members_before, EDITED),
        (OLD, CUT_OFFS.members_before - timedelta(seconds=1), MEMBER),
        (CUT_OFFS.nonmembers_from, None, NONMEMBER),
    ],
)  # fmt: skip
def test_the_last_edit_decides_where_members_have_to_be_unchanged(created, changed, side):
    assert CUT_OFFS.side_or_reason(DatedDocument("a", "", created, changed, ""), True) == side


def test_cut_offs_that_are_no_dates_are_told():
    with pytest.raises(ConfigError, match=r"build.members_before is 'soon' and build.nonmembers_fr"
                       r"om is '2019-01-01': Inv.*Give dates such as 2017-01-01"):  # fmt: skip
        CutOffs.from_dates("soon", "2019-01-01")
    with pytest.raises(ConfigError, match=r"build.members_before is '2020-01-01': it must not be "
                       r"after build.nonmembers_from=2019-01-01: they cross"):  # fmt: skip
        CutOffs.from_dates("2020-01-01", "2019-01-01")
    cut_offs = CutOffs.from_dates("2016-01-01", "2016-01-01")
    assert cut_offs.members_before == cut_offs.nonmembers_from == datetime(2016, 1, 1, tzinfo=UTC)


def make_document(name, created=OLD, changed=OLD, raw="a b c d"):
    return DatedDocument(name, name.title(), created, changed, raw)


def test_the_smallest_keys_of_each_group_are_kept_in_order():
    smallest = SmallestKeys(2)
    for group, key in [("b", 5), ("a", 9), ("a", 7), ("a", 8), ("a", 10), ("a", 8)]:
        smallest.add(group, key, make_document(f"{group}{key}"))
    assert [(group, key, document.id) for group, key, document in smallest] == [
        ("a", 7, "a7"), ("a", 8, "a8"), ("b", 5, "b5")
    ]  # fmt: skip


def test_the_candidates_of_several_files_are_merged(tmp_path):
    names = [*"abcdefgh"]
    (tmp_path / "in").mkdir()
    (tmp_path / "own").mkdir()
    for number, part in enumerate((names[:4], names[4:])):
        rows = [
            {"id": name, "text": f"Of {name}", "title": name.upper(),
             "created": ("2014-05-01T00:00:00Z", "2020-05-01T00:00:00Z",
                         "2020-06-01T00:00:00Z", "2017-05-01T00:00:00Z")[i]}
            for i, name in enumerate(part)
        ]  # fmt: skip
        path = tmp_path / "in" / f"{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = Jsonl(name="own", paths=str(tmp_path / "in"), id="id")
    scan = CandidateScan(source, CUT_OFFS, 0, 9, True, tmp_path / "own", 1)
    assert len(scan) == 2
    scanned = [scan.process_piece(piece) for piece in range(2)]
    assert sum_counts(scanned, "sides") == {"between the cut-offs": 2, "member": 2, "non-member": 4}
    assert sum_counts(scanned, "months") == {
        "member 2014-05": 2, "non-member 2020-05": 2, "non-member 2020-06": 2
    }  # fmt: skip
    assert sum_counts(scanned, "skipped") == {}
    merged = scan.merge_candidates()
    ids = {group: sorted(document.id for _, document in keyed) for group, keyed in merged.items()}
    assert ids == {
        "member": ["a", "e"], "non-member 2020-05": ["b", "f"], "non-member 2020-06": ["c", "g"]
    }  # fmt: skip
    for keyed in merged.values():
        assert [key for key, _ in keyed] == sorted(key for key, _ in keyed)
    (candidate,) = (document for _, document in merged["member"] if document.id == "a")
    assert candidate == DatedDocument("a", "A", OLD, OLD, "Of a")


def test_candidates_are_counted_by_what_becomes_of_them():
    raws = {
        "member": ["a b c", "d e f g", "x", "a b c z", "broken", "k l m", "n o p"],
        "non-member": ["d e f", "q r s", "q r s t", "u"],
    }

    def text(raw, min_words):
        if raw == "broken":
            raise ValueError
        return raw

    groups = {
        group: [(i, make_document(f"{group}{i}", raw=raw)) for i, raw in enumerate(texts)]
        for group, texts in raws.items()
    }
    selected, counts = labelled_sets.select_documents(SimpleNamespace(text=text), groups, 3, 3)
    assert {group: [d.longest for d in documents] for group, documents in selected.items()} == {
        "member": ["a b c", "d e f", "k l m"], "non-member": ["q r s"]
    }  # fmt: skip
    assert [document.key for document in selected["member"]] == [0, 1, 5]
    assert all(document.member for document in selected["member"])
    assert [document.member for document in selected["non-member"]] == [False]
    assert counts.looked_at == {"member": 6, "non-member": 4}  # the first three are enough
    assert counts.too_short == {"member": 1, "non-member": 1}
    assert counts.unreadable == {"member": 1}
    assert counts.repeated == {"member": 1, "non-member": 2}
    assert +counts.across == {"non-member": 1}


def selection(group, keys, **dates):
    documents = [make_document(f"{group}{key}", **dates) for key in keys]
    return [
        SelectedDocument(document, key, "a b c d", group == MEMBER)
        for document, key in zip(documents, keys, strict=True)
    ]


def test_groups_are_cut_to_the_size_of_the_smaller_label():
    members, nonmembers = selection(MEMBER, [3, 1, 4, 6]), selection(NONMEMBER, [5, 9, 2])
    balanced = labelled_sets.balance_groups(
        {MEMBER: members, "non-member 2020-01": nonmembers, "non-member 2020-02": nonmembers[:1]},
        [members[1], nonmembers[0]], 3,
    )  # fmt: skip
    keys = {group: [d.key for d in documents] for group, documents in balanced.items()}
    assert keys == {
        "member": [3, 4], "non-member 2020-01": [9, 2], "non-member 2020-02": []
    }  # fmt: skip


def test_a_set_per_month_and_length_has_its_rows_by_hash():
    groups = {
        MEMBER: selection(MEMBER, [3, 8]),
        "non-member 2020-01": selection(NONMEMBER, [5], created=None, changed=NEW),
        "non-member 2020-02": [],
    }
    sets = [*labelled_sets.iter_labelled_sets(groups, [2, 4], "wiki")]
    assert [labelled_set.name for labelled_set in sets] == ["length2-2020-01", "length4-2020-01"]
    common = {"benchmark": "wiki-2020-01", "length": 2, "setting": "original", "text": "a b"}
    assert sets[0].rows == [
        {**common, "id": "member3", "title": "Member3", "label": 1, "created": OLD.isoformat(),
         "changed": OLD.isoformat()},
        {**common, "id": "non-member5", "title": "Non-Member5", "label": 0, "created": None,
         "changed": NEW.isoformat()},
    ]  # fmt: skip
    assert [row["text"] for row in sets[1].rows] == ["a b c d"] * 2
    assert LabelledSet(8, "", "swap", []).name == "length8-swap"
    assert LabelledSet(8, "", "original", []).name == "length8"


def test_members_that_were_edited_or_have_no_date_are_counted():
    members = [
        *selection(MEMBER, [1], changed=CUT_OFFS.members_before),
        *selection(MEMBER, [2], changed=None), *selection(MEMBER, [3], created=None),
        *selection(MEMBER, [4], changed=NEW),
    ]  # fmt: skip
    assert labelled_sets.count_edited(members, CUT_OFFS) == {
        "members": 4,
        "edited_after_members_before": 2,
        "dated_by_an_edit_before_it_since_their_creation_is_not_known": 1,
    }
    months = {
        "non-member 2020-02": 3,
        "member 2014-05": 2,
        "member 2014-07": 4,
        "member 2020-01": 1,
    }
    assert labelled_sets.year_rows(months) == [
        {"year": "2014", "member": 6, "non-member": 0},
        {"year": "2020", "member": 1, "non-member": 3},
    ]


def test_shared_texts_are_counted_by_label_and_dropped_ones_are_said():
    text = " ".join(f"w{number}" for number in range(16))
    documents = {
        group: [SelectedDocument(make_document(f"{group}{number}"), number, words, group == MEMBER)
                for number, words in enumerate(texts)]
        for group, texts in {
            MEMBER: [text, *(" ".join(f"m{number}x{i}" for i in range(16)) for number in range(3))],
            NONMEMBER: [f"more {text}", f"other {text}",
                        *(" ".join(f"n{number}x{i}" for i in range(16)) for number in range(3))],
        }.items()
    }  # fmt: skip
    counts = labelled_sets.CandidateCounts(across=Counter(member=2, other=1))
    expected = {
        "words_of_a_text": 16,
        "members_that_share_13_words_with_a_non-member": 1,
        "non-members_that_share_13_words_with_a_member": 2,
        "these_are": "kept",
        "others_that_share_only_what_more_than_half_of_the_texts_share": 0,
        "left_out_since_they_repeat_a_text_of_the_other_side": 3,
    }
    assert labelled_sets.count_shared_texts(documents, [], counts, 16) == expected
    dropped = [documents[MEMBER][1], documents[MEMBER][2], documents[NONMEMBER][4]]
    assert labelled_sets.count_shared_texts(documents, dropped, counts, 16) == {
        **expected,
        "members_that_share_13_words_with_a_non-member": 2,
        "non-members_that_share_13_words_with_a_member": 1,
        "these_are": "dropped",
    }


def test_texts_are_searched_in_chunks_that_keep_their_number():
    half = "a" * (1 << 17)
    chunks = [*iter_chunks([half, half[1:], "b", half, half, "c"])]
    assert [size for _, size in chunks] == [3, 2, 1]
    assert chunks[0][0].split() == [half, BORDER.strip(), half[1:], BORDER.strip(), "b"]
    assert chunks[1][0].split() == [half, BORDER.strip(), half]
    assert chunks[2][0] == "c"
    assert [*iter_chunks([])] == []


def test_the_datasheet_of_small_sets(tmp_path, monkeypatch):
    clusters = []
    monkeypatch.setattr(
        datasheet, "blind_obstacle",
        lambda texts, member, group: clusters.append(group) or "12 texts",
    )  # fmt: skip
    rows = [
        {"id": "1", "text": "Ann waits", "label": 1, "benchmark": "a", "cluster": "x",
         "created": "2014-05-01T00:00:00+00:00", "changed": "2015-01-01T00:00:00+00:00"},
        {"id": "2", "text": "Bob é", "label": 0, "benchmark": "a", "cluster": "x",
         "created": None, "changed": "2020-02-03T00:00:00+00:00"},
        {"id": "3", "text": "Eve", "label": 1, "benchmark": "b", "cluster": "x",
         "created": "2010-01-01T00:00:00+00:00"},
    ]  # fmt: skip
    undated = [{"text": "No", "label": 0, "benchmark": "a", "created": None}]
    benchmark = datasheet.write_benchmark(
        tmp_path,
        {"name": "wiki: own", "about": "About it.", "settings": {"seed": 0, "near_duplicates": "x"},
         "read": {"documents": {"member": 1200, "of_no_date": 3}, "on": True, "shares": [0.5]},
         "dates": [{"year": "2014", "member": 1}, {"year": "2015", "non-member": 20000}]},
        {"length8": rows, "other": undated}, "cc0-1.0",
    )  # fmt: skip
    files = {name: tmp_path / "data" / f"{name}.jsonl" for name in ("length8", "other")}
    lines = files["length8"].read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert "é" in lines[1]
    assert benchmark.content == [
        "data/length8.jsonl", "data/other.jsonl", "datasheet.json", "datasheet.md", "README.md"
    ]  # fmt: skip
    assert benchmark.counts == {"sets": 2}
    assert (len({*clusters[0]}), clusters[0][0] == clusters[0][1]) == (2, True)
    sets = json.loads((tmp_path / "datasheet.json").read_text())["sets"]
    hashes = digests_by_name(files)
    assert sets[0] == {
        "set": "length8", "members": 2, "nonmembers": 1,
        "members_created": "2010-01-01 to 2014-05-01",
        "nonmembers_created": "2020-02-03 to 2020-02-03 (of some their last edit)",
        "characters": 17, "blind": {"needs": "12 texts"}, "sha256": hashes["length8"],
    }  # fmt: skip
    assert (sets[1]["members_created"], sets[1]["nonmembers_created"]) == ("", "")
    text = (tmp_path / "datasheet.md").read_text()
    head, _, table = text.partition("\n## Sets\n\n")
    assert head == (
        "# wiki: own\n\nAbout it.\n"
        "\n## Settings\n\n- seed: 0\n- near duplicates: x\n"
        "\n## Read\n\n- documents: member 1,200, of no date 3\n- on: true\n- shares: \\[0.5]\n"
        "\n## Dates\n\n| year | member | non-member |\n| --- | --- | --- |\n"
        "| 2014 | 1 |  |\n| 2015 |  | 20,000 |\n"
    )
    assert table.startswith(
        "| set | members | nonmembers | members created | nonmembers created | characters | blind "
        "| sha256 |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| length8 | 2 | 1 | 2010-01-01 to 2014-05-01 | 2020-02-03 to 2020-02-03 (of some their "
        "last edit) | 17 | not measured: 12 texts | "
    )
    card = (tmp_path / "README.md").read_text()
    assert card == (
        "---\nlicense: cc0-1.0\npretty_name: 'wiki: own'\ntags:\n- membership-inference\n"
        "- contamination-detection\nconfigs:\n- config_name: length8\n"
        "  data_files: data/length8.jsonl\n- config_name: other\n  data_files: data/other.jsonl\n"
        f"---\n\n{text}"
    )


def test_a_blind_auroc_is_shown_with_its_interval_and_its_warning():
    blind = {"auroc": 0.61236, "low": 0.5, "high": 0.7, "warning": None}
    warned = {**blind, "warning": "Mind it."}
    sets = [{"set": 1, "blind": auroc} for auroc in (blind, warned)]
    text = datasheet.render_markdown({"name": "n", "about": "a", "sets": sets})
    interval = "0.612 [0.500, 0.700]"
    assert text.endswith(f"| 1 | {interval} |\n| 1 | {interval} Mind it. |\n")


def test_the_blind_row_draws_folds_once_where_there_are_many_texts(monkeypatch):
    calls = []

    def baseline(texts, member, seed, *, group, repeats):
        calls.append((len(texts), member.sum(), group, repeats))
        raise InterruptedError

    monkeypatch.setattr(datasheet, "blind_obstacle", lambda *_: "")
    monkeypatch.setattr(datasheet, "blind_baseline", baseline)
    for number in (598, 600):
        with pytest.raises(InterruptedError):
            datasheet.blind_auroc_row(["a"] * number, [1, 0] * (number // 2), np.arange(number) % 9)
    assert [(texts, members, repeats == 1) for texts, members, _, repeats in calls] == [
        (598, 299, False), (600, 300, True)
    ]  # fmt: skip
    assert calls[1][2].tolist() == (np.arange(600) % 9).tolist()


def test_a_finished_benchmark_keeps_no_notes(tmp_path):
    def make(folder, intermediates):
        (intermediates / "half").write_text("x")
        (folder / "content").write_text("y")
        return datasheet.WrittenFiles(["content"])

    built = [
        datasheet.build_benchmark(str(tmp_path), "wiki", {}, {"n": 1}, {"a": "digest"}, make).path
        for _ in range(2)
    ]
    assert built[0] == built[1]
    assert built[0].parent == tmp_path / "benchmark"
    assert built[0].name.startswith("wiki-")
    assert not (built[0] / "notes").exists()
    inputs = {"a": "other"}
    changed = datasheet.build_benchmark(str(tmp_path), "wiki", {}, {"n": 1}, inputs, make)
    assert changed.path != built[0]
    assert datasheet.digest_rows({"a": "1", "b": "2"}) == [
        {"file": "a", "sha256": "1"}, {"file": "b", "sha256": "2"}
    ]  # fmt: skip
