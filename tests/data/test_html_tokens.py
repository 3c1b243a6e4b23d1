"""Tags and text of HTML, in linear time."""

import time

import pytest

from contamination.data.html_tokens import END, START, TEXT, iter_html_tokens


def text_of(page):
    return "".join(token.value for token in iter_html_tokens(page) if token.kind == TEXT)


def test_tags_text_and_references_come_in_order():
    page = '<?xml version="1.0"?><!DOCTYPE html><x:P a="b>c" d=\'>\'>A &amp; &#66;<br/></x:P>'
    assert [*iter_html_tokens(page)] == [
        (START, "p"), (TEXT, "A & B"), (START, "br"), (END, "br"), (END, "p")
    ]  # fmt: skip
    assert [*iter_html_tokens("<a:b:P c><STYLE>x</style><script>y</script></P >z")] == [
        (START, "p"), (START, "style"), (TEXT, "x"), (END, "style"), (START, "script"), (TEXT, "y"),
        (END, "script"), (END, "p"), (TEXT, "z"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a <!-- <p> -- > --> b", "a  b"),
        ("<![CDATA[1 < 2 &amp; <i>]]>", "1 < 2 &amp; <i>"),
        ("1 < 2 <3 and a<é", "1 < 2 <3 and a<é"),
        ("<p title=it's>so</p>", "so"),
        ("<a =''''>so", "so"),
        ("<script>if (a<b) '<p>'</SCRIPT>so", "if (a<b) '<p>'so"),
        ("a</>b<?x y?>c<!x>d", "abcd"),
        ("a<!-- x -->b<!-- y -->c<![CDATA[d]]>e<![CDATA[f]]>", "abcdef"),
        ("<p a = '>' b = \">\" c>so</p>", "so"),
    ],
)
def test_text_is_that_between_the_tags(page, text):
    assert text_of(page) == text


@pytest.mark.parametrize("piece", ["<", "< ", "é<", "<3"])
def test_signs_that_begin_no_tag_are_one_piece_of_text(piece):
    """A piece each takes 23 s for 8 MB of them."""
    page = piece * 100_000
    assert [*iter_html_tokens(f"<p>{page}</p>")] == [(START, "p"), (TEXT, page), (END, "p")]


@pytest.mark.parametrize(
    ("page", "where"),
    [
        ("a<p", "a tag, '<p'"),
        ("a<p b='and so on, and so on", 'a tag, "<p b=\'and so on, and"'),
        ("a<!-- b", "'<!--', which has no '-->'"),
        ("<![CDATA[ b", "'<![CDATA[', which has no ']]>'"),
        ("<script>a</p>", "<script>, which has no end tag"),
        ("<!x", "'<!', which has no '>'"),
        ("</", "'</', which has no '>'"),
        ("<?", "'<?', which has no '>'"),
    ],
)
def test_a_page_that_is_cut_off_is_refused(page, where):
    with pytest.raises(ValueError, match="^a page ends within") as error:
        text_of(page)
    assert str(error.value) == f"a page ends within {where}"


@pytest.mark.parametrize(
    "piece",
    ["<!--", "<![CDATA[", "<a ", '<a "', "<a a='", "<a b=", '<a b="', "<a b= ", "</", "</a", "<?",
     "<!", "&", "&#", "<script>", "<svg>", "<", "<a", "<a>", "<a b='>'"],
)  # fmt: skip
def test_any_page_is_read_in_linear_time(piece):
    """400 kB in a second or so: in quadratic time each of these takes minutes."""
    page = piece * (400_000 // len(piece))
    begin = time.process_time()
    try:
        for _ in iter_html_tokens(page):
            pass
    except ValueError:
        pass
    assert time.process_time() - begin < 20
