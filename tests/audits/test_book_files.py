"""Reading books, their boilerplate, and drawing snippets."""

import re
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from contamination.audits.books import epub
from contamination.audits.books.epub import Limits, iter_epub_books
from contamination.audits.books.reading import (
    SAME_BOOK_FRACTION,
    Book,
    check_validation_book_counts,
    describe_boilerplate,
    read_books,
)
from contamination.audits.books.shared_text import GRAM_WORDS, gram_keys, shared_fraction
from contamination.audits.books.snippets import (
    SnippetPlan,
    _draw_starts,
    draw_snippets,
    list_word_spans,
)
from contamination.core.errors import ConfigError, DataError

CONTAINER = """<?xml version="1.0"?>
<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"><metadata
xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Two
 Towns</dc:title></metadata><manifest>
<item id="b" href="text/second%20page.xhtml"/><item id="a" href="text/first.xhtml"/>
<item id="n" href="notes.xhtml"/></manifest>
<spine><itemref idref="a"/><itemref idref="n" linear="no"/><itemref idref="b"/></spine></package>"""
FIRST = """<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>No</title>
<style>p {}</style></head><body><h1>One</h1><p>It was the <i>be</i>st of
 times&#8212;&amp; the worst.</p><script>x = "<p>no</p>"</script><p>So<br/>on.</p></body></html>"""


def write_epub(path, **changed):
    files = {
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": PACKAGE,
        "OEBPS/text/first.xhtml": FIRST,
        "OEBPS/text/second page.xhtml": "<body><p>Two.</p></body>",
        "OEBPS/notes.xhtml": "<body><p>Notes.</p></body>",
        **changed,
    }
    with zipfile.ZipFile(path, "w") as book:
        for name, text in files.items():
            if text is not None:
                book.writestr(name, text)


def test_an_epub_is_read_in_the_order_of_its_spine(tmp_path):
    write_epub(tmp_path / "a.epub")
    ((title, text),) = iter_epub_books(tmp_path / "a.epub")
    assert title == "Two Towns"
    assert text == "One\nIt was the best of times—& the worst.\nSo\non.\nTwo."


@pytest.mark.parametrize(
    "changed",
    [
        {"META-INF/container.xml": None},
        {"OEBPS/text/first.xhtml": None},
        {"OEBPS/book.opf": "<package>"},
        {"OEBPS/book.opf": PACKAGE.replace('idref="b"', 'idref="c"')},
        {"META-INF/container.xml": "<container/>"},
        {"OEBPS/text/first.xhtml": b"\xff\xff"},
        {"OEBPS/text/first.xhtml": b'<?xml version="1.0" encoding="klingon"?><p>qaH'},
    ],
)
def test_a_broken_epub_is_named(tmp_path, changed):
    write_epub(tmp_path / "a.epub", **changed)
    with pytest.raises(DataError, match=r"audit.suspects: .*a\.epub can't be used"):
        read_books({"suspects": str(tmp_path)})


def test_a_page_in_an_encoding_that_takes_quadratic_time_is_refused(tmp_path):
    page = b'<?xml version="1.0" encoding="punycode"?><p>a</p>-b'
    write_epub(tmp_path / "a.epub", **{"OEBPS/text/first.xhtml": page})
    with pytest.raises(DataError, match="the encoding punycode: save it as UTF-8"):
        read_books({"suspects": str(tmp_path)})


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<body><p><![CDATA[Two & <i>.]]></p></body>", "Two & <i>."),
        ("<body><!-- <![CDATA[ --><p>So.</p><!-- ]]> --></body>", "So."),
        ("<x:head><x:title>No</x:title></x:head><x:p>So</x:p><x:p>on.</x:p>", "So\non."),
        ('<head><title/><script src="a.js"/></head><body><svg/><p>So.</p></body>', "So."),
        ("<svg><title>Map</title><text>Label</text></svg><p>So.</p>", "So."),
    ],
)
def test_an_epubs_xhtml_is_read_as_xhtml(tmp_path, page, text):
    write_epub(tmp_path / "a.epub", **{"OEBPS/text/first.xhtml": page})
    assert [*iter_epub_books(tmp_path / "a.epub")] == [("Two Towns", f"{text}\nTwo.")]


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "utf-8-sig"])
def test_an_epubs_pages_are_read_in_their_encoding_and_beside_their_package(tmp_path, encoding):
    page = f'<?xml version="1.0" encoding="{encoding}"?><p>Une journée.</p>'.encode(encoding)
    package = PACKAGE.replace("text/first.xhtml", "../pages/first.xhtml")
    write_epub(tmp_path / "a.epub", **{"OEBPS/book.opf": package, "pages/first.xhtml": page})
    assert [*iter_epub_books(tmp_path / "a.epub")] == [("Two Towns", "Une journée.\nTwo.")]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", "\n", "it is empty"),
        ("a.jsonl", '{"title": null, "text": "Once."}', "None as its `title`: give a string"),
        ("a.txt", "O\0n\0c\0e\0", "null characters, as UTF-16 does: save it as UTF-8"),
    ],
)
def test_a_file_without_a_readable_book_is_named(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"audit.suspects: .* can't be used: .*{said}"):
        read_books({"suspects": str(tmp_path)})


def test_the_lines_of_a_jsonl_are_books_by_their_titles_or_one_book(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"title": "", "text": "y z"}\n\n{"title": " A\\n tale ", "text": "x"}\n'
    )
    books = read_books({"suspects": str(path)})
    assert [(book.role, book.title, book.text, book.file) for book in books] == [
        ("suspects", "A tale", "x", str(path)), ("suspects", "mine", "y z", str(path))
    ]  # fmt: skip
    path.write_text('{"text": "x"}\n{"text": "y"}\n')
    (book,) = read_books({"suspects": str(path)})
    assert (book.title, book.text) == ("mine", "x\ny")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "x"}\n{', "line 2 is not JSON ("),
        ('\n{"text": 3}', "line 2 is not an object with a string as its `text`. "),
        ('["text"]', "line 1 is not an object with a string as its `text`. "),
        ('{"text": "x", "title": 3}', "line 1 has 3 as its `title`: give a string. "),
        ('{"text": "x", "title": "T"}\n{"text": "y"}', "only some lines have a `title`: give one "),
        ('{"text": " ", "title": "T"}', "the book 'T' has no text. "),
    ],
)
def test_a_line_that_is_no_book_is_named(tmp_path, content, message):
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as error:
        read_books({"suspects": str(path)})
    assert str(error.value).startswith(f"audit.suspects: {path} can't be used: {message}")
    assert str(error.value).endswith(". Fix the file, or remove it.")


def test_two_books_of_one_title_and_folders_without_books_are_named(tmp_path):
    for role, name in (("positives", "a"), ("suspects", "A")):
        (tmp_path / role).mkdir()
        (tmp_path / role / f"{name}.txt").write_text(name)
    folders = {role: str(tmp_path / role) for role in ("positives", "suspects")}
    with pytest.raises(DataError) as error:
        read_books(folders)
    assert str(error.value) == (
        f"audit.suspects: two books are called 'A', in {tmp_path}/positives/a.txt and in "
        f"{tmp_path}/suspects/A.txt. Remove one, or give them different titles."
    )
    (tmp_path / "none").mkdir()
    for folder, message in (
        (tmp_path / "none", "it has no book. Give a folder of books, each a .txt, .epub, .jsonl "
         "file, or one such file."),
        (tmp_path / "no", "there is no such folder. Give a folder of books."),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as error:
            read_books({"suspects": str(folder)})
        assert str(error.value) == f"audit.suspects is {str(folder)!r}: {message}"


def test_five_books_of_each_label_are_needed():
    books = [Book(role, f"{role} {i}", "", "") for role in ("positives", "negatives")
             for i in range(5)]  # fmt: skip
    check_validation_book_counts(books)
    with pytest.raises(DataError) as error:
        check_validation_book_counts(books[:-1])
    assert str(error.value) == (
        "audit.negatives: it has 4 books, too few to choose a threshold on some and to evaluate it "
        "on others. Give at least 5, better 20 or more."
    )


def test_what_is_no_book_is_said(tmp_path, caplog):
    (tmp_path / "a.txt").write_text("Once.")
    (tmp_path / "b.pdf").write_text("Twice.")
    (tmp_path / "more").mkdir()
    (book,) = read_books({"suspects": str(tmp_path)})
    assert (book.title, book.text) == ("a", "Once.")
    assert "2 files in" in caplog.text
    assert "such as b.pdf, are left out" in caplog.text


def test_a_book_without_spaces_is_known_again():
    text = "".join(chr(0x4E00 + place * 7 % 5000) for place in range(3000))
    one, other = gram_keys(text), gram_keys(f"前言：{text}")
    assert len(np.intersect1d(one, other)) == len(one) > 300


def bomb(path, size, **changed):
    """An EPUB whose first page unpacks to so many bytes, and is packed to a thousandth of them."""
    write_epub(path, **{"OEBPS/text/first.xhtml": None, **changed})
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as book,
        book.open("OEBPS/text/first.xhtml", "w", force_zip64=True) as page,
    ):
        for _ in range(size >> 20):
            page.write(b"a " * (1 << 19))


def test_a_page_that_unpacks_to_more_than_the_limit_is_refused_unread(tmp_path):
    bomb(tmp_path / "a.epub", 64 << 20)
    tracemalloc.start()
    with pytest.raises(
        DataError, match=r"first\.xhtml is larger than audit.max_page_bytes=16777216"
    ):
        read_books({"suspects": str(tmp_path)})
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_an_archive_that_understates_a_pages_size_gives_no_more_than_that(tmp_path):
    path = tmp_path / "a.epub"
    bomb(path, 64 << 20)
    with zipfile.ZipFile(path) as book:
        size = book.getinfo("OEBPS/text/first.xhtml").file_size
    told = path.read_bytes().replace(size.to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    path.write_bytes(told.replace(size.to_bytes(8, "little"), (1000).to_bytes(8, "little")))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"can't be used.*(CRC|Overlapped)"):
        read_books({"suspects": str(tmp_path)})
    assert tracemalloc.get_traced_memory()[1] < 80 << 20
    tracemalloc.stop()


def test_a_page_that_the_spine_names_again_and_again_counts_each_time(tmp_path):
    spine = '<itemref idref="a"/>' * 20
    package = PACKAGE.replace('<itemref idref="a"/>', spine)
    page = f"<p>{'word ' * 200}</p>"
    write_epub(tmp_path / "a.epub", **{"OEBPS/book.opf": package, "OEBPS/text/first.xhtml": page})
    with pytest.raises(DataError, match=r"the book is larger than audit.max_book_bytes=10000"):
        read_books({"suspects": str(tmp_path)}, Limits(max_book_bytes=10_000))


def test_a_book_as_large_as_the_limit_is_read(tmp_path):
    page, more = "<p>So.</p>", "<p>On.</p>"
    pages = {"OEBPS/text/first.xhtml": page, "OEBPS/text/second page.xhtml": more}
    write_epub(tmp_path / "a.epub", **pages)
    size = len(page) + len(more)
    (book,) = read_books({"suspects": str(tmp_path)}, Limits(max_book_bytes=size))
    assert book.text == "So.\nOn."
    with pytest.raises(DataError, match=f"larger than audit.max_book_bytes={size - 1}"):
        read_books({"suspects": str(tmp_path)}, Limits(max_book_bytes=size - 1))


def test_a_page_that_the_spine_names_several_times_is_read_once(tmp_path, monkeypatch):
    package = PACKAGE.replace('<itemref idref="a"/>', '<itemref idref="a"/>' * 20)
    write_epub(tmp_path / "a.epub", **{"OEBPS/book.opf": package})
    read, unpacked = [], epub._unpack_file
    monkeypatch.setattr(
        epub,
        "_unpack_file",
        lambda book, name, limits: read.append(name) or unpacked(book, name, limits),
    )
    ((_, text),) = iter_epub_books(tmp_path / "a.epub")
    assert read.count("OEBPS/text/first.xhtml") == 1
    assert text.count(text.split("\n")[0]) == 20


def test_the_number_of_pages_in_a_spine_is_limited(tmp_path):
    package = PACKAGE.replace('<itemref idref="a"/>', '<itemref idref="a"/>' * 10_001)
    write_epub(tmp_path / "a.epub", **{"OEBPS/book.opf": package})
    with pytest.raises(
        DataError, match=r"its spine names 10,00\d pages, more than the maximum of 10,000"
    ):
        read_books({"suspects": str(tmp_path)})


@pytest.mark.parametrize("name", ["META-INF/container.xml", "OEBPS/book.opf"])
def test_an_epubs_entities_are_refused(tmp_path, name):
    laughs = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    whole = {"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": PACKAGE}[name]
    head, _, rest = whole.rpartition("?>")
    write_epub(tmp_path / "a.epub", **{name: f"{head}{'?>' if head else ''}{laughs}{rest}"})
    with pytest.raises(DataError, match="an XML entity is declared"):
        read_books({"suspects": str(tmp_path)})


def test_an_epubs_pages_are_packed_as_the_standard_has_it(tmp_path):
    write_epub(tmp_path / "a.epub", **{"OEBPS/text/first.xhtml": None})
    with zipfile.ZipFile(tmp_path / "a.epub", "a", zipfile.ZIP_BZIP2) as book:
        book.writestr("OEBPS/text/first.xhtml", "<p>So.</p>")
    with pytest.raises(DataError, match="first.xhtml is neither stored nor compressed"):
        read_books({"suspects": str(tmp_path)})


@pytest.mark.parametrize(("name", "what"), [("a.txt", "it"), ("a.jsonl", "line 1")])
def test_a_file_that_is_larger_than_a_book_is_refused(tmp_path, name, what):
    (tmp_path / name).write_text(f'{{"text": "{"word " * 100}"}}\n')
    with pytest.raises(DataError, match=f"{what} is larger than audit.max_book_bytes=99 bytes"):
        read_books({"suspects": str(tmp_path)}, Limits(max_book_bytes=99))


@pytest.mark.parametrize("piece", ["<!--", "<![CDATA[", "<a "])
def test_a_page_of_what_has_no_end_is_refused_at_once(tmp_path, piece):
    page = f"<body><p>So.</p>{piece * (80_000 // len(piece))}"
    write_epub(tmp_path / "a.epub", **{"OEBPS/text/first.xhtml": page})
    begin = time.process_time()
    with pytest.raises(DataError, match=r"OEBPS/text/first.xhtml: a page ends within"):
        read_books({"suspects": str(tmp_path)})
    assert time.process_time() - begin < 2


def prose(seed, words):
    return " ".join(f"w{n}" for n in np.random.default_rng(seed).integers(0, 4_000, words))


def licensed(title, seed, words, licence):
    """A file as Project Gutenberg has them: the title stands within the licence's beginning."""
    head = f"The Library's eBook of {title}. This eBook is for the use of anyone. {licence[:400]}"
    own = f"*** START OF {title} ***\n{prose(seed, words)}\n*** END OF {title} ***"
    return f"{head}\n\n{own}\n{licence}"


LICENCE = prose(108, 2_900).replace("w", "x")


def texts_of(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return {book.title: book for book in read_books({"suspects": str(folder)})}


@pytest.mark.parametrize("number", [3, 6])
def test_books_of_one_licence_are_different_books(tmp_path, number):
    own = {f"b{n}": licensed(f"Book {n}", n, 1_500, LICENCE) for n in range(number)}
    books = texts_of(tmp_path, plain=prose(99, 800), **own)
    for n in range(number):
        left = books[f"b{n}"].text.split()
        assert prose(n, 1_500) in " ".join(left)
        assert len(left) < 1_500 + 20  # the licence is gone
        assert {run.position for run in books[f"b{n}"].boilerplate} == {"beginning", "end"}
    assert (books["plain"].text, books["plain"].boilerplate) == (prose(99, 800), ())
    beginning, end = describe_boilerplate(books.values())
    assert re.search(rf"up to 2,9\d\d words at the end of {number} books", end)
    assert "which begin with \"The Library's eBook" in beginning


SAME_BOOK_ERROR = r"'b' and 'a'.*are the same book"


def test_what_two_books_alone_share_stays_in_both(tmp_path):
    own = {name: licensed(name, n, 1_500, LICENCE) for n, name in enumerate("ab")}
    with pytest.raises(DataError, match=f"{SAME_BOOK_ERROR}.*such as a licence"):
        texts_of(tmp_path, **own)


@pytest.mark.parametrize("copies", [1, 3])
def test_the_beginning_of_a_book_is_the_same_book(tmp_path, copies):
    """Some file has no other text than what the others begin with."""
    whole = prose(7, 30_000)
    parts = {name: " ".join(whole.split()[:4_000]) for name in "bcd"[:copies]}
    with pytest.raises(DataError, match=r"'[bcd]' and '[abc]'.*are the same book"):
        texts_of(tmp_path, a=whole, **parts)


def test_a_work_of_few_words_is_no_licence_of_the_anthologies_that_have_it(tmp_path):
    tale = prose(7, 4_000)
    anthologies = {name: f"{tale} {prose(n, 40_000)}" for n, name in enumerate("bcd")}
    with pytest.raises(DataError, match=r"'[bcd]' and 'a'.*are the same book"):
        texts_of(tmp_path, a=tale, **anthologies)


def test_a_story_with_and_without_its_licence_is_the_same_book(tmp_path):
    others = {f"c{n}": licensed(f"Other {n}", n, 9_000, LICENCE) for n in range(3)}
    with pytest.raises(DataError, match=SAME_BOOK_ERROR):
        texts_of(tmp_path, a=prose(7, 3_000), b=licensed("Story", 7, 3_000, LICENCE), **others)
    with pytest.raises(DataError, match=SAME_BOOK_ERROR):
        texts_of(tmp_path, a=prose(7, 3_000), b=f"{LICENCE} {prose(7, 3_000)}")


def test_one_book_under_two_licences_is_still_found(tmp_path):
    """With its licence shared by others, with a foreword, and in whatever length."""
    other = licensed("Other", 5, 9_000, LICENCE)
    for size in (700, 4_000, 20_000):
        story = prose(7, size)
        copies = {
            "a": licensed("Story", 7, size, LICENCE),
            "b": f"A foreword. {prose(8, size // 20)} {story}",
        }
        with pytest.raises(DataError, match=r"'b' and 'a'.*are the same book"):
            texts_of(tmp_path, other=other, third=licensed("Third", 6, 3_000, LICENCE), **copies)


def test_three_editions_of_a_long_book_share_no_licence(tmp_path):
    story = prose(7, 20_000)
    editions = {name: f"{prose(n, 3_000)} {story}" for n, name in enumerate("abc")}
    with pytest.raises(DataError, match="are the same book"):
        texts_of(tmp_path, **editions)


def test_what_stands_in_the_middle_of_two_books_is_their_own(tmp_path):
    poem = prose(3, 300)
    own = {name: f"{prose(n, 2_000)} {poem} {prose(n + 9, 2_000)}" for n, name in enumerate("ab")}
    assert not any(book.boilerplate for book in texts_of(tmp_path, **own).values())


def test_a_file_that_is_no_zip_is_named(tmp_path):
    (tmp_path / "a.epub").write_text("no")
    with pytest.raises(DataError, match=r"a\.epub can't be used: it can't be read as an EPUB"):
        read_books({"suspects": str(tmp_path / "a.epub")})


def test_snippets_are_the_books_own_words_without_overlap():
    text = " \n".join(f"w{i}" for i in range(1_000))
    found = draw_snippets(
        Book("suspects", "a", text, "a.txt"), SnippetPlan(20, 50, "words", list_word_spans, 0)
    )
    assert (found.effective_count, found.has_overlaps) == (20, False)
    assert [w for one in found.texts for w in one.text.split()] == text.split()  # the only way
    drawn = [
        draw_snippets(
            Book("suspects", "a", text, ""), SnippetPlan(5, 50, "words", list_word_spans, s)
        )
        for s in range(9)
    ]
    for one in drawn:
        used = [word for snippet in one.texts for word in snippet.text.split()]
        assert len({*used}) == 250
        assert all(snippet.text in text and snippet.label is None for snippet in one.texts)
    assert len({one.texts[0].text for one in drawn}) > 4


def test_every_way_to_place_snippets_is_as_likely():
    ways = [tuple(_draw_starts(6, 2, 2, np.random.default_rng(s))) for s in range(1_200)]
    counts = {way: ways.count(way) for way in {*ways}}
    assert {*counts} == {(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4)}
    assert all(140 <= count <= 260 for count in counts.values())


def test_in_a_short_book_snippets_overlap_and_count_as_fewer():
    found = draw_snippets(
        Book("suspects", "a", "a b c d e f g h i j", ""),
        SnippetPlan(100, 4, "words", list_word_spans, 0),
    )
    assert (len(found.texts), found.effective_count, found.has_overlaps) == (7, 2, True)
    assert len({one.text for one in found.texts}) == 7


@pytest.mark.parametrize("words", [200, 500, 600])
def test_a_short_text_in_a_long_one_is_found_by_the_same_share(words):
    """A long text has one key in SAMPLING_INTERVAL, a short one all: matched all the same."""
    rng = np.random.default_rng(words)
    long, own = ([*map(str, rng.integers(0, 5_000, size))] for size in (20_000, words))
    for part, same in ((0.5, True), (0.1, False)):
        cut = int(part * words)
        texts = " ".join(long), " ".join(long[700 : 700 + cut] + own[cut:])
        share = shared_fraction(*map(gram_keys, texts))
        assert abs(share - part) < 0.2
        assert (share >= SAME_BOOK_FRACTION) == same


def test_a_text_of_up_to_40_runs_of_words_has_all_its_keys():
    words = [str(number) for number in range(40 * GRAM_WORDS + 1)]
    assert len(gram_keys(" ".join(words[:-1]))) == len(words) - GRAM_WORDS
    assert len(gram_keys(" ".join(words))) < len(words) / 2


def test_a_text_of_one_run_of_words_shares_all_or_nothing():
    long = " ".join(map(str, range(600)))
    assert shared_fraction(gram_keys("a b"), gram_keys(long)) == 0
    assert shared_fraction(gram_keys("a b"), gram_keys("A, b!")) == 1


def test_shared_text_is_found_whatever_its_case_and_marks():
    rng = np.random.default_rng(0)
    one, other = (" ".join(map(str, rng.integers(0, 500, 3_000))) for _ in range(2))
    keys = gram_keys(one)
    assert len(np.intersect1d(keys, gram_keys(other))) == 0
    half = f"{other[:5_000]} {one[:5_000].replace(' ', ', ').upper()}"
    share = len(np.intersect1d(keys, gram_keys(half))) / len(keys)
    assert SAME_BOOK_FRACTION < share < 0.6
    assert len(gram_keys("a b")) == 1
    assert len(gram_keys("...")) == 0
