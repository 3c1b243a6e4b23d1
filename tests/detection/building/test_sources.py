"""The sources of dated documents."""

import bz2
import gzip
import json
import time
import tracemalloc
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import numpy as np
import pytest
import zstandard

from contamination.core.errors import ConfigError, DataError
from contamination.detection.building import datasheet
from contamination.detection.building.sources.stackexchange import StackExchange
from tests.detection.building.conftest import jsonl, texts
from tests.dumps import HEAD, drawn_dates, page, stack_exchange, wikipedia, wikitext

pytest.importorskip("mwxml", reason="pip install '.[build]'")
pytest.importorskip("mwparserfromhell", reason="pip install '.[build]'")
BEFORE, BETWEEN, AFTER = (datetime(year, 5, 1, tzinfo=UTC) for year in (2014, 2017, 2020))


@pytest.fixture(autouse=True)
def no_blind(monkeypatch):
    monkeypatch.setattr(datasheet, "blind_obstacle", lambda *_: "time")


@pytest.mark.parametrize("suffix", ["xml", "xml.bz2"])
def test_a_dump_of_articles_gives_their_words(built, tmp_path, suffix):
    own, dates = texts(100), drawn_dates(100)
    path = wikipedia(tmp_path / f"enwiki.{suffix}", own, dates)
    rows, sheet, _ = built("source=wikipedia", f"source.paths={path}")
    for row in rows["length16"]:
        place = int(row["id"]) - 1
        assert row["text"] == " ".join(own[place].split()[:16])
        assert row["created"] == dates[place].replace(microsecond=0).isoformat()
        assert row["title"] == f"Thing {place + 1}"
    assert sum(sheet["read"]["documents"].values()) == 98  # without lists, talk and redirects


def dump(path, *pages):
    path.write_text(f"{HEAD}{''.join(pages)}</mediawiki>\n")
    return path


def test_only_what_is_known_of_a_page_makes_a_label(built, tmp_path):
    own = [wikitext(text) for text in texts(60)]
    kinds = [(BEFORE, False), (AFTER, False), (BEFORE, True), (AFTER, True)]
    pages = [page(n, f"P{n}", text, [kinds[n % 4]]) for n, text in enumerate(own, 4)]
    path = dump(tmp_path / "enwiki.xml", *pages)
    words = ["source=wikipedia", f"source.paths={path}", "build.number=30"]
    rows, sheet, _ = built(*words)
    assert sheet["read"]["documents"] == {"member": 30, "non-member": 15, "of unknown date": 15}
    assert {int(r["id"]) % 4 for r in rows["length8"] if not r["label"]} == {1}
    table = jsonl(tmp_path / "dates.jsonl", [
        {"page_id": n, "created": f"{2010 + 10 * (n % 8 > 3)}-01-01T00:00:00Z"} for n in range(64)
    ])  # fmt: skip
    words += ["source.unchanged_members=false"]
    rows, sheet, _ = built(*words, f"source.dates={table}", "build.number=32")
    assert sheet["read"]["documents"] == {"member": 44, "non-member": 16}  # 30 were there BEFORE
    assert {int(r["id"]) % 8 for r in rows["length8"] if not r["label"]} == {5, 7}


def test_a_stub_dump_gives_the_dates(built, tmp_path):
    own = [wikitext(text) for text in texts(40)]
    first = [BEFORE if n % 2 else AFTER for n in range(40)]
    pages = [page(n, f"P{n}", text, [(AFTER, True)]) for n, text in enumerate(own)]
    stubs = [page(n, f"P{n}", "", [(first[n], False), (AFTER, True)]) for n in range(40)]
    stub = tmp_path / "stub-meta-history.xml.bz2"
    stub.write_bytes(bz2.compress(dump(tmp_path / "stub.xml", *stubs).read_bytes()))
    path = dump(tmp_path / "enwiki.xml", *pages)
    words = ["source=wikipedia", f"source.paths={path}", f"source.dates={stub}"]
    rows = built(*words, "source.unchanged_members=false")[0]
    assert all(row["label"] == int(row["id"]) % 2 for row in rows["length8"])


def test_a_members_text_is_that_before_the_first_date_where_the_dump_has_it(built, tmp_path):
    def history(number, *revisions):
        parts = [page(number, f"P{number}", wikitext(t), [(at, n > 0)]) for n, (at, t) in revisions]
        head = parts[0][: parts[0].index("    <revision>")]
        own = (part[part.index("    <revision>") : part.index("  </page>")] for part in parts)
        return f"{head}{''.join(own)}  </page>\n"

    old, new = texts(60)[:30], texts(60)[30:]
    pages = [
        history(n, *enumerate([(BEFORE if n % 2 else AFTER, old[n]), (AFTER, new[n])]))
        for n in range(30)
    ]
    path = dump(tmp_path / "history.xml", *pages)
    rows, sheet, _ = built("source=wikipedia", f"source.paths={path}")
    for row in rows["length8"]:
        own = old if row["label"] else new
        assert row["text"] == " ".join(own[int(row["id"])].split()[:8])
    assert sheet["edited"]["edited_after_members_before"] == 0


@pytest.mark.parametrize("name", ["things/Posts.xml", "things.7z"])
def test_questions_have_neither_code_nor_formulas(built, tmp_path, name):
    if name.endswith("7z"):
        pytest.importorskip("py7zr", reason="pip install '.[build]'")
    own, dates = texts(80), drawn_dates(80)
    (tmp_path / "in" / "things").mkdir(parents=True)
    stack_exchange(tmp_path / "in" / name, own, dates)
    rows, sheet, _ = built("source=stackexchange", f"source.paths={tmp_path / 'in'}")
    assert sum(sheet["read"]["documents"].values()) == 80  # no answers
    for row in rows["length16"]:
        number = int(row["id"].removeprefix("things-")) // 2 - 1
        plain = f"{own[number][:200]} {own[number][200:]}".split()
        assert row["text"].split() == plain[:16]
        assert row["label"] == (dates[number].year < 2016)


def test_a_question_that_was_answered_after_the_first_date_is_no_member(built, tmp_path):
    dates = [datetime(2015, 12, 31, 12, tzinfo=UTC), *[BEFORE] * 12, *[AFTER] * 12]
    path = stack_exchange(tmp_path / "Posts.xml", texts(25), dates)
    words = ["source=stackexchange", f"source.paths={path}"]
    assert built(*words)[1]["read"]["documents"] == {
        "edited since": 1, "member": 12, "non-member": 12
    }  # fmt: skip
    kept = built(*words, "source.unchanged_members=false")[1]
    assert kept["read"]["documents"] == {"member": 13, "non-member": 12}


def test_a_question_without_a_date_is_said(built, tmp_path):
    path = stack_exchange(tmp_path / "Posts.xml", texts(1), [BEFORE])
    path.write_text(path.read_text().replace("2014-05-01", "May"))
    with pytest.raises(DataError, match=r"Posts\.xml.*no date \(.*May"):
        built("source=stackexchange", f"source.paths={path}")


def test_a_missing_path_is_named_when_the_source_is_made(tmp_path):
    with pytest.raises(ConfigError, match=r"source\.paths.*none"):
        StackExchange(name="stackexchange", paths=str(tmp_path / "none"))


def test_of_a_sites_folder_the_posts_are_read(built, tmp_path):
    stack_exchange(tmp_path / "Posts.xml", texts(60), drawn_dates(60))
    (tmp_path / "Users.xml").write_text("<users></users>")
    sheet = built("source=stackexchange", f"source.paths={tmp_path}", f"runs={tmp_path}/.runs")[1]
    assert [one["file"] for one in sheet["sources"]] == ["Posts.xml"]


def test_a_deleted_text_is_counted(built, tmp_path):
    own = [page(n, f"P{n}", wikitext(t), [(BEFORE if n % 2 else AFTER, False)])
           for n, t in enumerate(texts(40))]  # fmt: skip
    own[0] = own[0].replace("<text ", '<text deleted="deleted" /><x ').replace("</text>", "</x>")
    own[0] = own[0][: own[0].index("<x ")] + own[0][own[0].index("</x>") + 4 :]
    path = dump(tmp_path / "enwiki.xml", *own)
    sheet = built("source=wikipedia", f"source.paths={path}")[1]
    assert sheet["read"]["left_out"] == {"empty document": 1}


@pytest.mark.parametrize("kind", ["wikipedia", "stackexchange"])
def test_what_came_before_a_dump_is_cut_off_is_kept_where_asked(built, tmp_path, kind):
    make = {"wikipedia": wikipedia, "stackexchange": stack_exchange}[kind]
    path = make(tmp_path / "Posts.xml", texts(120), drawn_dates(120))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    words = [f"source={kind}", f"source.paths={path}"]
    with pytest.raises(DataError, match=r"Posts.xml, after (page|row) .*cut off.*on_error=skip"):
        built(*words)
    sheet = built(*words, "source.on_error=skip")[1]
    assert 60 < sum(sheet["read"]["documents"].values()) < 90
    assert sheet["read"]["left_out"] == {"XML cut off or broken": 1}


def test_a_packed_dump_that_is_cut_off_is_told(built, tmp_path):
    path = wikipedia(tmp_path / "enwiki.xml.bz2", texts(120), drawn_dates(120))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"enwiki.xml.bz2.*end-of-stream"):
        built("source=wikipedia", f"source.paths={path}")


@contextmanager
def memory(most):
    """Python's own peak stays below so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


LONG = 8_000_000
"""Characters of a text that is longer than the limit."""


@pytest.mark.parametrize("suffix", ["xml", "xml.bz2", "xml.gz"])
@pytest.mark.parametrize("kind", ["wikipedia", "stackexchange"])
def test_of_a_text_that_is_longer_than_the_limit_no_more_is_read(built, tmp_path, kind, suffix):
    make = {"wikipedia": wikipedia, "stackexchange": stack_exchange}[kind]
    path = make(tmp_path / "Posts.xml", ["one", "@"], [BEFORE, AFTER])
    pack = {"xml": bytes, "xml.bz2": bz2.compress, "xml.gz": gzip.compress}[suffix]
    long = b"%d " * (LONG // 8) % (*range(10**7, 10**7 + LONG // 8),)
    content = pack(path.read_bytes().replace(b"@", long, 1))
    path.unlink()
    path = tmp_path / f"Posts.{suffix}"
    path.write_bytes(content)
    words = [f"source={kind}", f"source.paths={path}", "source.max_text_bytes=100000"]
    said = r"Posts.*, after .*larger than source.max_text_bytes=100000 bytes"
    with memory(LONG // 2), pytest.raises(DataError, match=said):
        built(*words)


def test_an_archive_that_unpacks_in_blocks_of_any_size_is_refused(built, tmp_path):
    py7zr = pytest.importorskip("py7zr", reason="pip install '.[build]'")
    path = tmp_path / "things.7z"
    with py7zr.SevenZipFile(path, "w", filters=[{"id": py7zr.FILTER_ZSTD}]) as archive:
        archive.writestr("<posts></posts>", "Posts.xml")
    with pytest.raises(
        DataError, match="compressed by zstandard, which py7zr decompresses in blocks of"
    ):
        built("source=stackexchange", f"source.paths={path}")


def test_many_revisions_are_no_long_text(built, tmp_path):
    """A page of any kind may have any number of them."""
    own = [wikitext(text) for text in texts(40)]
    at = [(BEFORE, n > 0) for n in range(400)]
    pages = [page(n, f"P{n}", text, [(AFTER if n % 2 else BEFORE, False)])
             for n, text in enumerate(own)]  # fmt: skip
    busy = [page(90, "Talk:P", own[0], at, ns=1), page(91, "Busy", own[1], at)]
    path = dump(tmp_path / "enwiki.xml", *busy, *pages)
    words = ["source=wikipedia", f"source.paths={path}", "source.max_text_bytes=20000"]
    assert built(*words)[1]["read"]["documents"] == {"member": 21, "non-member": 20}


@pytest.mark.parametrize("kind", ["wikipedia", "stackexchange"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_dump_with_entities_of_its_own_is_refused(built, tmp_path, kind, encoding):
    make = {"wikipedia": wikipedia, "stackexchange": stack_exchange}[kind]
    path = make(tmp_path / "Posts.xml", texts(60), drawn_dates(60))
    body = path.read_text().removeprefix('<?xml version="1.0" encoding="utf-8"?>\n')
    laughs = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x [<!ENTITY a "ha">]>'
    path.write_bytes(f"{laughs}{body}".encode(encoding))
    with pytest.raises(DataError, match="it has a document type"):
        built(f"source={kind}", f"source.paths={path}")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_line_that_is_longer_than_the_limit_is_refused(built, tmp_path, suffix):
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    path = tmp_path / f"in.jsonl{suffix}"
    path.write_bytes(pack(b'{"text": "' + b"a " * (3 * LONG) + b'"}'))
    said = r"line too long \(more than source.max_text_bytes=1000000 bytes"
    with memory(40_000_000), pytest.raises(DataError, match=said):  # zstd: in blocks of 16 MiB
        built("source=jsonl", f"source.paths={path}", "source.max_text_bytes=1000000")


@pytest.mark.parametrize(
    ("language", "letters"),
    [("zh", [chr(0x4E00 + n) for n in range(3_000)]),
     ("ja", [chr(0x3042 + n) for n in range(80)] + [chr(0x4E00 + n) for n in range(900)]),
     ("th", [chr(0x0E01 + n) for n in range(46)])],
)  # fmt: skip
def test_texts_without_spaces_are_measured_in_letters(built, tmp_path, language, letters):
    rng = np.random.default_rng(0)
    drawn = ["。".join("".join(rng.choice(letters, 9)) for _ in range(4)) for _ in range(40)]
    pages = [page(n, f"P{n}", text, [(AFTER if n % 2 else BEFORE, False)])
             for n, text in enumerate(drawn)]  # fmt: skip
    path = dump(tmp_path / f"{language}wiki.xml", *pages)
    rows, sheet, _ = built("source=wikipedia", f"source.paths={path}")
    assert Counter(row["label"] for row in rows["length16"]) == {0: 10, 1: 10}
    for row in rows["length16"]:
        assert row["text"] == drawn[int(row["id"])][:17]  # with its full stop, and no spaces
    assert sheet["read"]["too_short"] == {}


def test_a_question_whose_html_is_cut_off_is_counted(built, tmp_path):
    path = stack_exchange(tmp_path / "Posts.xml", texts(40), [BEFORE, AFTER] * 20)
    path.write_text(path.read_text().replace('Body="&lt;p&gt;', 'Body="&lt;!-- &lt;p&gt;', 13))
    sheet = built("source=stackexchange", f"source.paths={path}")[1]
    assert 0 < sum(sheet["read"]["unreadable"].values()) <= 7  # others stand in answers


@pytest.mark.parametrize("piece", ["<a ", "<!--", "\\[", "\\(", "$", "$x_", "$$", "_", "$ _"])
def test_any_question_is_read_in_linear_time(piece):
    source = StackExchange(name="a", paths=__file__)
    begin = time.process_time()
    with suppress(ValueError):
        source.text(f"$ {piece * (200_000 // len(piece))}", 10)
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"so \[ a \\[2pt] b \] on", "so   on"),
        (r"so \(a_1\) on $b^2$, $c$ and $5 or $6", "so   on  ,   and $5 or $6"),
        ("so $$ a\nb $$ on", "so   on"),
        ("$ x_1 $ is", "  is"),
    ],
)
def test_formulas_are_left_out(body, text):
    assert StackExchange(name="a", paths=__file__).text(body, 10) == text


@pytest.mark.parametrize("kind", ["wikipedia", "stackexchange"])
def test_an_archive_of_several_dumps_is_not_read_in_part(built, tmp_path, kind):
    py7zr = pytest.importorskip("py7zr", reason="pip install '.[build]'")
    make = {"wikipedia": wikipedia, "stackexchange": stack_exchange}[kind]
    part = make(tmp_path / "Posts.xml", texts(60), drawn_dates(60))
    with py7zr.SevenZipFile(tmp_path / "both.7z", "w") as archive:
        archive.write(part, "a/Posts.xml")
        archive.write(part, "b/Posts.xml")
    with pytest.raises(DataError, match=r"both.7z.* has 2 files .*a/Posts.xml, b/Pos.*unpack"):
        built(f"source={kind}", f"source.paths={tmp_path / 'both.7z'}")


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("wikipedia", "<posts><row /></posts>", "its root is <posts>, not <mediawiki>"),
        ("stackexchange", "<mediawiki></mediawiki>", "its root is <mediawiki>, not <posts>"),
        ("wikipedia", "", "no element found"),
        ("stackexchange", "", "no element found"),
        ("wikipedia", "<mediawiki><odd /></mediawiki>", "no MediaWiki dump"),
        ("stackexchange", '<posts><row Id="1" PostTypeId="1" Body="a" /></posts>', "CreationDate"),
    ],
)
def test_a_foreign_or_an_empty_file_is_told(built, tmp_path, kind, content, said):
    path = tmp_path / "Posts.xml"
    path.write_text(content)
    with pytest.raises(DataError, match=said):
        built(f"source={kind}", f"source.paths={path}")


@pytest.mark.parametrize(
    ("created", "said"),
    [
        ("2015-03-01", "names no time zone; set source.zone"),
        ("last year", "Invalid isoformat"),
        (None, "null field"),
    ],
)
def test_a_date_that_says_too_little_is_told(built, tmp_path, created, said):
    path = jsonl(tmp_path / "in.jsonl", [{"text": "a", "created": created}])
    with pytest.raises(DataError, match=f"in.jsonl, row 1: .*{said}"):
        built("source=jsonl", f"source.paths={path}")


def test_a_missing_date_field_is_told_with_those_that_there_are(built, tmp_path):
    path = jsonl(tmp_path / "in.jsonl", [{"text": "a", "date": "2020"}])
    with pytest.raises(DataError, match="no 'created'; its fields are text, date"):
        built("source=jsonl", f"source.paths={path}")


def test_dates_without_a_zone_take_the_one_that_is_given(built, tmp_path):
    at = ["2015-12-31T23:30:00", "2019-01-01T00:30:00"]
    rows = [{"text": text, "created": at[n % 2]} for n, text in enumerate(texts(40))]
    path = jsonl(tmp_path / "in.jsonl", rows)
    words = ["source=jsonl", f"source.paths={path}"]
    count = {}
    for zone in ("UTC", "Asia/Tokyo"):
        sides = built(*words, f"source.zone={zone}", "build.nonmembers_from=2018-12-31")[1]
        count[zone] = Counter(sides["read"]["documents"])
    assert count["UTC"] == count["Asia/Tokyo"] == {"member": 20, "non-member": 20}
    with pytest.raises(DataError, match="no documents on both sides .*20 between"):
        built(*words, "source.zone=Asia/Tokyo")
    assert json.dumps(count)


def test_a_package_that_is_missing_is_named(built, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mwxml", None)
    path = dump(tmp_path / "enwiki.xml")
    with pytest.raises(ConfigError, match=r"source=wikipedia needs mwxml.*\[build\]"):
        built("source=wikipedia", f"source.paths={path}")
