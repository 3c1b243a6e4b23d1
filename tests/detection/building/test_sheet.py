"""What a datasheet says, counted again."""

import re
from datetime import UTC, datetime

import pytest

from contamination.core.errors import DataError
from contamination.detection.building import datasheet
from contamination.detection.building.dates import parse_time
from contamination.detection.building.sources.stackexchange import FORMULA
from tests.detection.building.conftest import jsonl, texts
from tests.dumps import HEAD, page, wikitext

TEXTS = texts(120)
OLD, NEW = "2014-05-01T00:00:00Z", "2020-05-01T00:00:00Z"


@pytest.fixture(autouse=True)
def no_blind(monkeypatch):
    monkeypatch.setattr(datasheet, "blind_obstacle", lambda *_: "time")


def sides(number, change=lambda n, text: text):
    return [
        {"id": f"d{n}", "text": change(n, TEXTS[n]), "created": OLD if n < number else NEW}
        for n in range(2 * number)
    ]


def test_an_id_of_both_sides_is_refused(built, tmp_path):
    rows = [{**row, "id": f"d{n % 20}"} for n, row in enumerate(sides(20))]
    path = jsonl(tmp_path / "in.jsonl", rows)
    with pytest.raises(DataError, match=r"two documents have the id 'd\d+'"):
        built("source=jsonl", f"source.paths={path}", "source.id=id")


def test_copies_across_the_line_are_counted(built, tmp_path, caplog):
    rows = sides(20, lambda n, text: TEXTS[n - 20] if 20 <= n < 26 else text)
    path = jsonl(tmp_path / "in.jsonl", [*rows, {"id": "s", "text": "Short", "created": OLD}])
    words = ["source=jsonl", f"source.paths={path}", "source.id=id", "build.number=30"]
    sheet = built(*words)[1]
    assert sheet["overlap"]["left_out_since_they_repeat_a_text_of_the_other_side"] == 6
    assert sheet["read"]["repeated"] == {"non-member": 6}
    assert sheet["read"]["too_short"] == {"member": 1}
    assert sheet["read"]["taken"] == {"member": 14, "non-member": 14}
    assert "20 member texts among 21 documents, 14 non-member texts among 20" in caplog.text


def test_what_most_texts_share_is_counted_apart(built, tmp_path):
    shared = "this page is a stub and you can help by expanding it with words"
    path = jsonl(tmp_path / "in.jsonl", sides(20, lambda n, text: f"{shared} {text}"))
    found = built("source=jsonl", f"source.paths={path}", "build.number=20")[1]["overlap"]
    assert found["words_of_a_text"] == 16
    assert found["members_that_share_13_words_with_a_non-member"] == 0
    assert found["others_that_share_only_what_more_than_half_of_the_texts_share"] == 40


def test_a_member_that_is_dated_by_an_edit_is_said_to_be(built, tmp_path):
    pytest.importorskip("mwxml", reason="pip install '.[build]'")
    kinds = [(datetime(2014, 1, 1, tzinfo=UTC), True), (datetime(2020, 1, 1, tzinfo=UTC), False)]
    pages = (page(n, f"P{n}", wikitext(TEXTS[n]), [kinds[n % 2]]) for n in range(30))
    path = tmp_path / "enwiki.xml"
    path.write_text(f"{HEAD}{''.join(pages)}</mediawiki>\n")
    _, sheet, folder = built("source=wikipedia", f"source.paths={path}")
    edits = "dated_by_an_edit_before_it_since_their_creation_is_not_known"
    assert sheet["edited"][edits] == sheet["edited"]["members"] == 10
    assert re.search(r"\| 2014-\S+ to 2014-\S+ \(of some their last edit\) \| 2020", 
                     (folder / "datasheet.md").read_text())  # fmt: skip


def test_no_text_of_a_datasheet_is_a_link():
    link, shown = "[a](http://b.c) **d|", r"[a\](http\://b.c) **d\|"
    sheet = {
        "name": link, "about": "Texts.", link: {link: link, "inner": {link: [link]}},
        "sets": [{"set": link, link: 1_000, "blind": {"needs": link}}],
    }  # fmt: skip
    text = datasheet.render_markdown(sheet)
    assert text.count(shown) == text.count("b.c") == 9
    assert "1,000" in text
    assert datasheet.render_hub_card(sheet, "cc0-1.0").endswith(text)


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("1425168000", "2015-03-01"),
        (1425168000.5, "2015-03-01"),
        ("-157766400", "1965-01-01"),
        ("20150301T000000Z", "2015-03-01"),
        (-157766400, "1965-01-01"),
    ],
)
def test_dates_are_unix_seconds_too_in_tables_without_types(value, day):
    assert parse_time(value, None).date().isoformat() == day


@pytest.mark.parametrize("value", [1e300, float("inf"), 10**400, "0001-01-01T00:00:00+23:00"])
def test_a_date_out_of_range_is_none(value):
    with pytest.raises(ValueError, match="out of range"):
        parse_time(value, UTC)


@pytest.mark.parametrize("value", [0, 2015, 20150301, 2015.0])
def test_a_year_is_no_time_of_1970(value):
    with pytest.raises(ValueError, match=f"{value} is in 1970 as Unix seconds"):
        parse_time(value, UTC)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It costs $5 and I paid $10 for it.", None),
        ("from $5-$10 and US$3, a $ sign", None),
        ("$PATH and $HOME", None),
        (r"Let $x^2$ be $$y$$ and \(a\) or \[b\].", "Let   be   and   or  ."),
        ("$a$,$b$ and $ x_1 = 5 $", " ,  and  "),
        ("$5 or $x$", "$5 or  "),
    ],
)
def test_formulas_go_and_money_stays(text, left):
    assert FORMULA.sub(" ", text) == (text if left is None else left)
