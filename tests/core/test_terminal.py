"""Tables that fit a terminal, and text that can't harm it."""

import sys

import pytest

from contamination.core.terminal import (
    counted,
    escape_controls,
    fit_columns,
    format_approximate_duration,
    format_descriptions,
    format_duration,
    terminal_width,
)

HEADER = ["method", "variant", "AUROC", "TPR"]
ROWS = [["Loss", "", "0.5", "0.1"], ["Min-K%++", "k=0.2", "0.75", "0.2"]]
WHOLE = 8 + 2 + 7 + 2 + 5 + 2 + 3


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "copy", "1 copy"), (0, "copy", "0 copies"), (2_000, "text", "2,000 texts")],
)
def test_a_noun_is_plural_unless_there_is_one(number, noun, text):
    assert counted(number, noun) == text


def test_a_table_that_fits_is_whole():
    fitted = fit_columns(HEADER, ROWS, WHOLE)
    assert (fitted.header, fitted.rows, fitted.note) == (HEADER, ROWS, "")
    assert fitted.lines(n_left_aligned=1) == [
        "method    variant  AUROC  TPR",
        "Loss                 0.5  0.1",
        "Min-K%++    k=0.2   0.75  0.2",
    ]


@pytest.mark.parametrize(
    ("width", "least", "kept"),
    [
        (WHOLE - 1, [], ["method", "variant", "AUROC"]),
        (WHOLE - 1, ["variant"], ["method", "AUROC", "TPR"]),
        (16, ["variant", "no column"], ["method", "AUROC"]),
        (1, ["method"], ["method"]),
    ],
)
def test_the_least_important_columns_go_first_and_are_named(width, least, kept):
    fitted = fit_columns(HEADER, ROWS, width, least=least)
    assert fitted.header == kept
    assert [len(row) for row in fitted.rows] == [len(kept)] * 2
    gone = ", ".join(name for name in HEADER if name not in kept)
    assert fitted.lines()[-1].startswith(f"(not in {width} columns: {gone};")


def test_what_stands_between_and_beside_the_columns_counts():
    for width, kept in ((WHOLE + 3 + 4, 4), (WHOLE + 3 + 3, 3)):
        assert len(fit_columns(HEADER, ROWS, width, between=3, edges=4).header) == kept


def test_wide_signs_take_two_columns():
    rows = [["模型", "0.5"], ["größe", "0.75"]]
    lines = fit_columns(["name", "AUROC"], rows, 12).lines(n_left_aligned=1)
    assert lines == ["name   AUROC", "模型     0.5", "größe   0.75"]
    assert fit_columns(["name", "AUROC"], [["模型模", "0.5"]], 12).header == ["name"]


TEXTS = ["the mean log-likelihood of a token", ""]


@pytest.mark.parametrize(("width", "lines"), [
    (None, ["  模型  the mean log-likelihood of a token", "  zl"]),
    (26, ["  模型  the mean", "        log-likelihood of", "        a token", "  zl"]),
    (15, ["  模型", "    the mean", "    log-likelihood", "    of a token", "  zl"]),
])  # fmt: skip
def test_texts_beside_names_are_wrapped_or_stand_below(monkeypatch, width, lines):
    monkeypatch.setattr("contamination.core.terminal.terminal_width", lambda: None)
    assert format_descriptions(["模型", "zl"], TEXTS, width) == lines


@pytest.mark.parametrize(("is_terminal", "width"), [(True, 20), (False, None)])
def test_the_terminals_width_counts_only_where_there_is_one(monkeypatch, is_terminal, width):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "20")
    assert terminal_width() == width
    assert bool(fit_columns(HEADER, ROWS).note) == is_terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2J\x1b[31m", r"\x1b[2J\x1b[31m"),
        ("line\rother\x08", r"line\rother\x08"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("safe\u202egpj.exe\u2066", r"safe\u202egpj.exe\u2066"),
        ("two\u2028lines \udce9", r"two\u2028lines \udce9"),
        ("caf\u00e9\t\u65e5\u672c \U0001f600\n", "caf\u00e9\t\u65e5\u672c \U0001f600\n"),
    ],
)
def test_control_characters_are_escaped_and_text_is_not(text, shown):
    assert escape_controls(text) == shown


def test_a_cell_counts_as_wide_as_it_is_shown():
    lines = fit_columns(["id", "n"], [["\x1b[2J", "1"], ["plain", "2"]]).lines()
    assert lines == ["id       n", r"\x1b[2J  1", "plain    2"]


@pytest.mark.parametrize(
    ("allowed", "text"),
    [((), r"\r\x1b[A\x1b"), (("\r",), "\r\\x1b[A\\x1b"), (("\r", "\x1b[A"), "\r\x1b[A\\x1b")],
)
def test_allowed_control_characters_are_kept(allowed, text):
    assert escape_controls("\r\x1b[A\x1b", allowed) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 s"), (12.4, "12 s"), (89.4, "89 s"), (90, "2 min"), (2400, "40 min")),
        *((5369, "89 min"), (5371, "1 h 30 min"), (12000, "3 h 20 min"), (43200, "12 h 0 min")),
    ],
)
def test_a_duration(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((59, "<1 min"), (60, "~1 min"), (119, "~2 min"), (480, "~8 min"), (636, "~10 min")),
        *((2040, "~35 min"), (5399, "~90 min"), (5400, "~2 h"), (10800, "~3 h")),
    ],
)
def test_a_rounded_duration(seconds, text):
    assert format_approximate_duration(seconds) == text
