"""Words in scripts with and without spaces."""

import pytest

from contamination.data.words import (
    first_words,
    has_words,
    is_contained_in,
    normalise_text,
    separate_words,
    split_at_share,
    split_at_zero_width_spaces,
    word_spans,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Two  towns,\nit's so.", ["Two", "towns,", "it's", "so."]),
        ("北京是中国的首都。", ["北", "京", "是", "中", "国", "的", "首", "都。"]),
        ("東京タワーへ行く", [*"東京タワーへ行く"]),
        ("ภาษาไทย", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),
        ("ที่นี่", ["ที่", "นี่"]),  # marks belong to their letter
        ("한국어 문장", ["한국어", "문장"]),  # with spaces
        ("iPhone在2007年发布", ["iPhone", "在", "2007", "年", "发", "布"]),
        ("Ünïcödé नमस्ते мир", ["Ünïcödé", "नमस्ते", "мир"]),
        ("", []),
    ],
)
def test_a_letter_is_a_word_where_no_spaces_part_words(text, words):
    assert [text[a:b] for a, b in word_spans(text)] == words
    assert has_words(text, len(words))
    assert not has_words(text, len(words) + 1)


def test_the_first_words_stand_as_they_are_written():
    assert first_words("北京 是\n中国的首都。", 4) == "北京 是 中"
    assert first_words("a \n b c", 2) == "a b"
    assert first_words("a b", 9) == "a b"
    assert first_words("a b", 2) == "a b"
    assert first_words("", 1) == ""


def test_words_stand_apart_in_any_script():
    assert separate_words("iPhone在2007年  now.") == "iPhone 在 2007 年 now."
    assert has_words("", 0)
    assert has_words("a b", 1)
    assert not has_words("", 1)


@pytest.mark.parametrize(
    ("share", "max_words", "beginning"),
    [(0.5, None, " a b"), (0.49, None, " a"), (0.0, None, " a"), (1.0, None, " a b  c d"),
     (1.0, 3, " a b  c"), (0.5, 3, " a b"), (0.25, 1, " a")],
)  # fmt: skip
def test_a_text_is_cut_after_its_share_of_words_or_the_most(share, max_words, beginning):
    text = " a b  c d "
    assert split_at_share(text, share, max_words) == (beginning, text[len(beginning) :])


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  A\tb\n\x00C \x7f", "a b c"),
        ("e\u0301 \u00ad\u200bSTRASSE Stra\u00dfe", "\u00e9 strasse strasse"),
        ("\ufeffa\u2003b\x85c", "a b c"),
        ("\u01c6 \ufb01", "\u01c6 fi"),  # compatibility characters stay but for their case
        ("\u0600a\x0eb", "ab"),
    ],
)
def test_normal_texts_have_single_spaces_one_case_and_nothing_invisible(text, normal):
    assert normalise_text(text) == normal


def test_a_short_text_is_contained_only_in_itself():
    five = "one two three four five"
    assert is_contained_in(five, f"so {five} so")
    assert not is_contained_in(five, "one two three four six")
    assert not is_contained_in("one two three four", f"so {five} so")
    assert is_contained_in("one", "one")


def test_a_zero_width_space_between_letters_may_be_a_space():
    assert split_at_zero_width_spaces("\u200bone\u200b\u200btwo \u200bthree\u00ad\u200bfour") == [
        "\u200bone", "two \u200bthree", "four"
    ]  # fmt: skip
