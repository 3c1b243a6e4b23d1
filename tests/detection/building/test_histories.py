"""Pages with several revisions, in the order that dumps have them in."""

import re
from collections import Counter
from datetime import UTC, datetime

import pytest

from contamination.core.errors import DataError
from contamination.detection.building import datasheet
from contamination.detection.building.sources.page_dates import Revisions
from tests.detection.building.conftest import jsonl, texts
from tests.dumps import HEAD, page, wikitext

pytest.importorskip("mwxml", reason="pip install '.[build]'")
pytest.importorskip("mwparserfromhell", reason="pip install '.[build]'")
OLD, OLDER, CUT, NEW = (datetime(year, 5, 1, tzinfo=UTC) for year in (2014, 2012, 2016, 2020))

TEXTS = texts(40)
TEXT = re.compile(r"<text .*?</text>", re.DOTALL)


@pytest.fixture(autouse=True)
def no_blind(monkeypatch):
    monkeypatch.setattr(datasheet, "blind_obstacle", lambda *_: "time")


def history(number, *revisions):
    """A page; of each revision its date and what its text begins with, None where it is hidden."""
    parts = [
        page(number, f"P{number}", wikitext(f"{own} {TEXTS[number % 40]}"), [(at, n > 0)])
        for n, (at, own) in enumerate(revisions)
    ]
    head, tail = parts[0].partition("    <revision>")[0], "  </page>\n"
    found = [part[part.index("    <revision>") : part.index(tail)] for part in parts]
    for n, (_, own) in enumerate(revisions):
        if own is None:
            found[n] = TEXT.sub('<text bytes="3" deleted="deleted" />', found[n])
    return f"{head}{''.join(found)}{tail}"


def dump(path, *pages):
    path.write_text(f"{HEAD}{''.join(pages)}</mediawiki>\n")
    return path


def beginnings(rows):
    return {(row["label"], row["text"].split()[0], row["changed"][:4]) for row in rows["length8"]}


OTHERS = [history(n, (NEW, "New")) for n in range(20, 35)]
MEMBERS = [history(n, (OLD, "Old")) for n in range(35, 50)]


@pytest.mark.parametrize(
    ("revisions", "label"),
    [
        ([(OLDER, "Old"), (OLD, None), (NEW, "Edited")], (1, "Old", "2012")),  # one is hidden
        ([(OLDER, "Old"), (NEW, None)], (1, "Old", "2012")),
        ([(NEW, "Late"), (OLD, "Imported")], (1, "Imported", "2014")),  # a later number than date
        (
            [(OLDER, "First"), (OLD, "Old"), (OLDER, "Imported"), (NEW, "Edited")],
            (1, "Old", "2014"),
        ),
    ],
)
def test_the_text_is_that_before_the_first_date_in_any_order(built, tmp_path, revisions, label):
    pages = [history(n, *revisions) for n in range(15)]
    path = dump(tmp_path / "history.xml", *pages, *OTHERS)
    assert beginnings(built("source=wikipedia", f"source.paths={path}")[0]) == {
        label, (0, "New", "2020")
    }  # fmt: skip


def test_a_page_whose_texts_before_the_first_date_are_hidden_is_left_out(built, tmp_path):
    pages = [history(n, (OLD, None), (NEW, "Edited")) for n in range(15)]
    path = dump(tmp_path / "history.xml", *pages, *OTHERS, *MEMBERS)
    rows, sheet, _ = built("source=wikipedia", f"source.paths={path}")
    assert beginnings(rows) == {(1, "Old", "2014"), (0, "New", "2020")}
    assert sheet["read"]["left_out"] == {"empty document": 15}


@pytest.mark.parametrize("kind", ["table", "stub"])
def test_a_page_was_there_by_any_revision_that_the_dumps_have(built, tmp_path, kind):
    """Whatever a table of dates says of it, and in whatever order a stub dump has them."""
    pages = [page(n, f"P{n}", wikitext(f"Own {text}"), [(OLD if kind == "table" else NEW, True)])
             for n, text in enumerate(TEXTS[:15])]  # fmt: skip
    path = dump(tmp_path / "enwiki.xml", *pages, *OTHERS, *MEMBERS)
    dates = {
        "table": lambda: jsonl(
            tmp_path / "dates.jsonl", [{"page_id": n, "created": str(NEW)} for n in range(15)]
        ),
        "stub": lambda: dump(
            tmp_path / "stub.xml", *(history(n, (NEW, "a"), (OLD, "a")) for n in range(15))
        ),
    }[kind]()
    words = ["source=wikipedia", f"source.paths={path}", f"source.dates={dates}"]
    side = "member" if kind == "table" else "edited since"  # the stubs' pages have a text of NEW
    expected = Counter({"member": 15, "non-member": 15}) + Counter({side: 15})
    assert built(*words)[1]["read"]["documents"] == expected
    words += ["source.unchanged_members=false"]
    assert built(*words)[1]["read"]["documents"] == {"member": 30, "non-member": 15}


def test_a_page_whose_text_is_younger_than_the_first_date_is_no_member(built, tmp_path, caplog):
    """Pages of 2012 whose text is of 2020: only one who asks for it gets them, and a warning."""
    edited = [page(n, f"P{n}", wikitext(f"New {TEXTS[n]}"), [(NEW, True)]) for n in range(15)]
    path = dump(tmp_path / "enwiki.xml", *edited, *OTHERS, *MEMBERS)
    dates = jsonl(
        tmp_path / "dates.jsonl",
        [{"page_id": n, "created": str(OLDER if n < 15 else NEW)} for n in range(50)],
    )
    words = ["source=wikipedia", f"source.paths={path}", f"source.dates={dates}"]
    rows, sheet, _ = built(*words)
    assert sheet["read"]["documents"] == {"edited since": 15, "member": 15, "non-member": 15}
    assert beginnings(rows) == {(1, "Old", "2014"), (0, "New", "2020")}
    assert "last edited (`changed`) before the first date" in sheet["about"]
    rows, sheet, _ = built(*words, "source.unchanged_members=false", "build.number=30")
    assert beginnings(rows) == {(1, "Old", "2014"), (1, "New", "2020"), (0, "New", "2020")}
    assert re.search(r"unchanged_members is false: \d+ of 15 members were edited", caplog.text)
    words[1] = f"source.paths={dump(tmp_path / 'new.xml', *edited, *OTHERS)}"
    with pytest.raises(
        DataError, match=r"15 edited since.*give a source that has it .pages-meta-history"
    ):
        built(*words)


@pytest.mark.parametrize("last", ["", None])
def test_a_page_that_was_blank_at_the_first_date_is_no_member(built, tmp_path, last):
    """Hidden (None) is not blank: then the text before it was there."""
    pages = [history(n, (OLDER, "Old"), (OLD, "x"), (NEW, "Edited")) for n in range(15)]
    blank = '<text bytes="0" sha1="a" xml:space="preserve" />'
    if last is None:
        blank = '<text bytes="9" deleted="deleted" />'
    pages = [TEXT.sub("@", one, 2).replace("@", TEXT.search(one)[0], 1).replace("@", blank)
             for one in pages]  # fmt: skip
    path = dump(tmp_path / "history.xml", *pages, *OTHERS, *MEMBERS)
    sheet = built("source=wikipedia", f"source.paths={path}")[1]
    blanked = {"empty document": 15} if last == "" else {}
    assert sheet["read"]["left_out"] == blanked
    assert sheet["read"]["documents"]["member"] == (15 if blanked else 30)


@pytest.mark.parametrize(
    "mark",
    ["{{disambiguation}}", "{{Disambig|geo}}", "{{hndis|Smith, J}}", "{{Begriffsklärung}}",
     "{{曖昧さ回避}}", "__DISAMBIG__", "{{ geodis }}"],
)  # fmt: skip
def test_pages_that_lead_to_several_articles_are_left_out(built, tmp_path, mark):
    pages = [page(n, f"P{n}", f"{wikitext('Old ' + TEXTS[n])}\n{mark}", [(OLD, False)])
             for n in range(5)]  # fmt: skip
    titled = page(5, "P5 (disambiguation)", wikitext(f"Old {TEXTS[5]}"), [(OLD, False)])
    needed = page(
        6, "P6", wikitext(f"{TEXTS[6]} {{{{disambiguation needed|date=x}}}}"), [(OLD, False)]
    )
    path = dump(tmp_path / "enwiki.xml", *pages, titled, needed, *OTHERS, *MEMBERS)
    words = ["source=wikipedia", f"source.paths={path}"]
    sheet = built(*words)[1]
    assert sheet["read"]["left_out"] == {"disambiguation page": 5}
    assert sheet["read"]["documents"]["member"] == 16
    sheet = built(*words, "source.disambiguation=''")[1]
    assert sheet["read"]["documents"]["member"] == 21


def test_a_revision_that_is_not_as_the_schema_has_it_is_told(built, tmp_path):
    odd = history(7, (OLD, "Odd")).replace("<model>", "<odd /><model>")
    words = [
        "source=wikipedia",
        f"source.paths={dump(tmp_path / 'odd.xml', odd, *OTHERS, *MEMBERS)}",
    ]
    with pytest.raises(DataError, match=r"odd.xml, page 7.*no MediaWiki dump.*'odd'"):
        built(*words)
    sheet = built(*words, "source.on_error=skip")[1]
    assert sheet["read"]["documents"] == {"member": 15, "non-member": 15}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<timestamp>2014", "<timestamp>May", "odd.xml, page 7: no date .*May-05-01"),
        ("<id>7</id>", "<id>seven</id>", "odd.xml, page seven: no date"),
        ("<id>7</id>", f"<id>{2**63}</id>", "no date .the page id '9223.* not fit into 64 bits"),
        (
            "<timestamp>2014-05-01T00:00:00Z",
            "<timestamp>0001-01-01T00:00:00+23:00",
            "no date .*out",
        ),
        ("</page>", "", "odd.xml, after .*cut off or broken"),
    ],
)
def test_a_dump_of_dates_that_is_none_is_told(built, tmp_path, old, new, said):
    odd = dump(tmp_path / "odd.xml", history(7, (OLD, "Odd")))
    odd.write_text(odd.read_text().replace(old, new, 1))
    path = dump(tmp_path / "enwiki.xml", *OTHERS)
    with pytest.raises(DataError, match=said):
        built("source=wikipedia", f"source.paths={path}", f"source.dates={odd}")


@pytest.mark.parametrize(
    ("page_id", "created"),
    [("9223372036854775808", "1425168000"), ("1e999", "1425168000"), ("7", "1e300")],
)
def test_a_table_of_dates_with_a_number_out_of_range_is_told(built, tmp_path, page_id, created):
    table = tmp_path / "dates.jsonl"
    table.write_text(f'{{"page_id": {page_id}, "created": {created}}}\n')
    path = dump(tmp_path / "enwiki.xml", *OTHERS)
    with pytest.raises(DataError, match="dates.jsonl.*(no date|number too large)"):
        built("source=wikipedia", f"source.paths={path}", f"source.dates={table}")


def test_a_foreign_dump_has_no_dates(built, tmp_path):
    odd = tmp_path / "odd.xml"
    odd.write_text("<posts></posts>")
    path = dump(tmp_path / "enwiki.xml", *OTHERS)
    with pytest.raises(DataError, match="its root is <posts>, not <mediawiki>"):
        built("source=wikipedia", f"source.paths={path}", f"source.dates={odd}")


def test_two_texts_of_one_second_are_in_the_order_of_the_file():
    found = Revisions(CUT)
    for text in "ab":
        found.add(OLD, text, None)
    assert found.version_to_use == (OLD, "b")
    assert found.created == OLD
