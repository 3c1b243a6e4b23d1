"""Words in scripts with and without spaces."""

import pytest

from contamination.data.words import first_words, has_words, word_spans


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
