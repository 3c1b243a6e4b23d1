"""The report of the audit of books: its sentences, tables and charts."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from contamination.audits.books import report as report_module
from contamination.audits.books.contamination_rates import NORMAL, RANKS, CorrectedRate, Rates
from contamination.audits.books.report import LIMITATIONS, AuditedBooks, build_report
from contamination.audits.books.results import BookScores, BooksResult, Suspect
from contamination.audits.books.selection import CandidateAccuracy, SnippetRule
from contamination.audits.books.snippets import BookSnippets, SnippetPlan, list_word_spans
from contamination.core.report import charts
from contamination.data.examples import make_text
from tests.audits.checks import legend_labels, ticks

EMMA = Suspect("Emma", 6, 0.8, CorrectedRate(0.7, 0.4, 0.9), 0.0123, 0.0246)
LONG_TITLED = Suspect("Long " * 9, 5, 0.25, CorrectedRate(0.12, 0.0, 0.34), 0.4, 0.4)
ACCURACIES = [
    CandidateAccuracy(("loss", ""), -2.0, 0.6, 0.5, 0.7, 0.55, 0.6, 0.5),
    CandidateAccuracy(("min_k", "k=0.2"), 1.23456, 0.9, 0.8, 0.95, 0.85, 0.9, 0.2),
]
RESULT = BooksResult(
    [a.candidate for a in ACCURACIES], SnippetRule(1, 1.23456), ACCURACIES,
    Rates(np.array([0.9, 0.7]), np.full(2, 4.0)), Rates(np.array([0.1, 0.0, 0.2]), np.full(3, 4.0)),
    True, [EMMA, LONG_TITLED], np.array([0.01, 0.01]),
)  # fmt: skip


def scores_of(role, *levels):
    return [
        BookScores(f"{role} {i}", np.array([[9.0] * 4, [level, level, level + 1, level]]), 4)
        for i, level in enumerate(levels)
    ]


def snippets_of(number, effective):
    return BookSnippets([make_text(str(i), "x", None, "") for i in range(number)], effective)


BOOKS = AuditedBooks(
    "pythia", SnippetPlan(6, 12, "words", list_word_spans, 3), RANKS,
    {"positives": scores_of("p", 2.0, 3.0), "negatives": scores_of("n", -1.0, 0.0, -2.0),
     "suspects": scores_of("s", 2.0, 0.0)},
    {"suspects/Emma": snippets_of(6, 6), "suspects/A/B": snippets_of(5, 3)}, (0.55, 0.45, 0.65),
)  # fmt: skip


@pytest.fixture
def without_charts(monkeypatch):
    monkeypatch.setattr(report_module, "_charts", lambda result, scores: [])


def content_of(result=RESULT, books=BOOKS):
    return build_report(result, books).content


RULE = (
    "A snippet counts as trained on where min_k k=0.2 is at least 1.235. Method and threshold were "
    "chosen on 2 positives and 3 negatives; on books held out from the choice 80% of the snippets "
    "of positives and 10% of those of negatives count so (balanced accuracy 0.85)."
)
NOT_SHOWN = (
    "This does not show that {} were not trained on: a share up to the upper end of the interval "
    "may have been."
)
CORRECTED = (
    "The corrected rate is the share of a book's words that was trained on, if the book is like "
    "the validation books; its interval accounts for how much these differ."
)
HAVE_MORE = (
    "**{} suspects** have more snippets above the threshold than books that were not trained on "
    "(false discovery rate 5%): "
)


@pytest.mark.usefixtures("without_charts")
def test_the_suspects_that_stand_out_are_named_first_with_their_shares():
    emma = "'Emma' (70% [40%, 90%] trained on)"
    assert [*content_of().conclusions] == [
        f"{HAVE_MORE.format('1 of 2')}{emma}.", RULE, NOT_SHOWN.format("the others"), CORRECTED,
    ]  # fmt: skip
    all_found = replace(RESULT, suspects=[EMMA])
    assert [*content_of(all_found).conclusions] == [
        f"{HAVE_MORE.format('1 of 1')}{emma}.", RULE, CORRECTED
    ]  # fmt: skip
    uncorrected = [replace(EMMA, title=f"T{i}", corrected=None) for i in range(7)]
    titles = "; ".join(f"'T{i}' (80% of its snippets)" for i in range(5))
    several = replace(RESULT, suspects=uncorrected, separated=False)
    assert [*content_of(several).conclusions] == [
        f"{HAVE_MORE.format('7 of 7')}{titles}; and 2 more.", RULE
    ]  # fmt: skip
    five = replace(several, suspects=uncorrected[:5])
    assert content_of(five).conclusions[0].endswith(f"{titles}.")


@pytest.mark.parametrize(
    ("q", "number_found"), [(0.05, 1), (np.nextafter(0.05, 1), 1), (0.0501, 0)]
)
@pytest.mark.usefixtures("without_charts")
def test_a_suspect_stands_out_up_to_a_false_discovery_rate_of_five_percent(q, number_found):
    result = replace(RESULT, suspects=[replace(EMMA, q=q), LONG_TITLED])
    assert build_report(result, BOOKS).counts == {
        "positives": 2, "negatives": 3, "suspects": 2, "snippets": 11, "found": number_found,
    }  # fmt: skip


NOTHING = "is found, which therefore says nothing."
NORMALLY = "(audit.null_model=normal needs fewer, but assumes that books are normally distributed)"


@pytest.mark.parametrize(
    ("lowest", "null_model", "conclusion"),
    [
        (
            [0.02, 0.02], RANKS,
            "**None of 2 suspects** is shown to have more snippets above the threshold than books "
            "that were not trained on (false discovery rate 5%).",
        ),
        (
            [0.25, 0.25], RANKS,
            "**With 3 negatives no suspect can be found** at a false discovery rate of 5%, "
            "whatever its rate: at least 19 negatives are needed, and 39 to find one of 2 "
            f"{NORMALLY}. **None of 2 suspects** {NOTHING}",
        ),
        (
            [0.05, 0.05], RANKS,
            "**With 3 negatives no suspect can be found alone**, but only 2 or more of the 2 "
            "together, at a false discovery rate of 5%, whatever its rate: at least 39 negatives "
            f"are needed to find one suspect of 2 {NORMALLY}. **None of 2 suspects** {NOTHING}",
        ),
        (
            [0.25], RANKS,
            "**With 3 negatives no suspect can be found** at a false discovery rate of 5%, "
            "whatever its rate: at least 19 negatives are needed to find one suspect of 1 "
            f"{NORMALLY}. **None of 1 suspects** {NOTHING}",
        ),
        (
            [0.25, 0.25], NORMAL,
            "**With 3 negatives no suspect can be found** at a false discovery rate of 5%: more "
            "negatives are needed, or some that are more alike. **None of 2 suspects** "
            f"{NOTHING}",
        ),
    ],
    ids=["each could", "none could", "together", "a single one", "normal"],
)  # fmt: skip
@pytest.mark.usefixtures("without_charts")
def test_where_none_stands_out_it_is_said_whether_one_could(lowest, null_model, conclusion):
    suspects = [LONG_TITLED] * len(lowest)
    result = replace(RESULT, suspects=suspects, lowest_p=np.array(lowest))
    conclusions = content_of(result, replace(BOOKS, null_model=null_model)).conclusions
    assert [*conclusions] == [conclusion, RULE, NOT_SHOWN.format("they"), CORRECTED]


OVERLAP = (
    "1 books, such as 'A/B', are too short for 6 snippets without overlap: their snippets overlap, "
    "and count as fewer in all intervals."
)


@pytest.mark.usefixtures("without_charts")
def test_warnings_of_a_report_on_books():
    assert [*content_of().warnings] == [OVERLAP]
    whole = {"suspects/Emma": snippets_of(6, 6)}
    assert [*content_of(books=replace(BOOKS, snippets=whole)).warnings] == []
    books = replace(BOOKS, blind=(0.75, 0.65, 0.85), boilerplate=["up to 9 words", "others"])
    result = replace(RESULT, separated=False)
    blind, no_share, shared, overlap = content_of(result, books).warnings
    assert "(blind AUROC 0.75 [0.65, 0.85])" in blind
    assert no_share == (
        "On held-out books the rates of positives are not significantly above those of negatives, "
        "so the share of a book that was trained on can't be told. Give more validation books, or "
        "longer or more snippets, or other methods."
    )
    assert shared == (
        "Text that several books share was set aside, and no snippet contains it: up to 9 words; "
        "and others. If that is the books' own text, they are one book."
    )
    assert overlap == OVERLAP


@pytest.mark.usefixtures("without_charts")
def test_the_report_says_what_it_is_about_and_based_on():
    content = content_of()
    assert content.title == "Which books was pythia trained on?"
    assert [*content.limits] == [*LIMITATIONS]
    facts = {
        "model": "pythia", "positives": "2 books", "negatives": "3 books", "suspects": "2 books",
        "snippets": "6 of 12 words per book, without overlap where the book is long enough, drawn "
        "with seed 3",
        "p-values": "ranks among the negatives, by thresholds chosen without them",
    }  # fmt: skip
    assert content.facts == facts
    normal = content_of(books=replace(BOOKS, null_model=NORMAL)).facts
    assert normal == {**facts, "p-values": "angles of the rates as normal, Student's t"}


@pytest.mark.usefixtures("without_charts")
def test_the_tables_of_a_report_on_books():
    suspects, candidates, validation = content_of().tables
    assert (suspects.name, suspects.title) == ("suspects", "Suspects")
    assert suspects.header == [
        "rank", "contamination %", "book title", "corrected %", "95% interval", "p", "q"
    ]  # fmt: skip
    assert suspects.lines == [
        ["1", "80", "Emma", "70", "40 to 90", "0.012", "0.025"],
        ["2", "25", LONG_TITLED.title, "12", "0 to 34", "0.4", "0.4"],
    ]
    assert suspects.data.to_dict("records") == [
        {"rank": 1, "contamination_rate": 0.8, "title": "Emma", "snippets": 6, "corrected": 0.7,
         "low": 0.4, "high": 0.9, "p": 0.0123, "q": 0.0246},
        {"rank": 2, "contamination_rate": 0.25, "title": LONG_TITLED.title, "snippets": 5,
         "corrected": 0.12, "low": 0.0, "high": 0.34, "p": 0.4, "q": 0.4},
    ]  # fmt: skip
    assert suspects.note == (
        "Contamination: the share of the snippets above the threshold (Shi et al. 2024, table 2). "
        "Corrected: the share that was trained on (Rogan and Gladen 1978). p: the probability that "
        "a book that was not trained on has so many. q: p with Benjamini and Hochberg's correction."
    )
    assert (candidates.name, candidates.title) == ("candidates", "Methods on the validation books")
    assert candidates.header == ["method", "AUROC", "accuracy", "TPR", "FPR", "threshold"]
    assert candidates.lines == [
        ["loss", "0.60 [0.50, 0.70]", "0.55", "0.60", "0.50", "-2"],
        ["min_k k=0.2 (chosen)", "0.90 [0.80, 0.95]", "0.85", "0.90", "0.20", "1.235"],
        ["blind (no model)", "0.55 [0.45, 0.65]", "–", "–", "–", "–"],
    ]
    accuracies = candidates.data.astype(object).where(candidates.data.notna(), None)
    assert accuracies.to_dict("records") == [
        {"method": "loss", "variant": "", "chosen": False, "auroc": 0.6, "low": 0.5, "high": 0.7,
         "accuracy": 0.55, "tpr": 0.6, "fpr": 0.5, "threshold": -2.0},
        {"method": "min_k", "variant": "k=0.2", "chosen": True, "auroc": 0.9, "low": 0.8,
         "high": 0.95, "accuracy": 0.85, "tpr": 0.9, "fpr": 0.2, "threshold": 1.23456},
        {"method": "blind", "variant": "", "chosen": False, "auroc": 0.55, "low": 0.45,
         "high": 0.65, "accuracy": None, "tpr": None, "fpr": None, "threshold": None},
    ]  # fmt: skip
    assert candidates.note == (
        "AUROC is over snippets, with an interval that resamples books and is corrected for the "
        "choice among these methods. Accuracy (balanced), TPR and FPR are those on books held out "
        "from the threshold's choice. Blind is a classifier that sees the texts alone: where it "
        "separates positives from negatives, any method may do so too, whatever the model was "
        "trained on."
    )
    assert (validation.name, validation.title) == ("validation", "Validation books")
    assert validation.header == ["role", "book title", "contamination %"]
    assert validation.lines == [
        ["positives", "p 0", "90"], ["positives", "p 1", "70"], ["negatives", "n 0", "10"],
        ["negatives", "n 1", "0"], ["negatives", "n 2", "20"],
    ]  # fmt: skip
    assert validation.data.to_dict("list") == {
        "role": ["positives"] * 2 + ["negatives"] * 3,
        "title": ["p 0", "p 1", "n 0", "n 1", "n 2"], "snippets": [4] * 5,
        "rate": [0.9, 0.7, 0.1, 0.0, 0.2],
    }  # fmt: skip
    assert validation.note == "Each by a method and a threshold that were chosen without it."


@pytest.mark.usefixtures("without_charts")
def test_a_share_that_cannot_be_told_is_said_to_be_so():
    untold = replace(RESULT, suspects=[replace(LONG_TITLED, corrected=None)], separated=False)
    table = content_of(untold).tables[0]
    assert table.lines == [["1", "25", LONG_TITLED.title, "can't be told", "–", "0.4", "0.4"]]
    ends = table.data[["corrected", "low", "high"]]
    assert ends.isna().all(axis=None)
    assert {*ends.dtypes} == {np.dtype(float)}


def test_the_chart_of_shares_has_each_suspects_share_interval_and_rate():
    chart = report_module._share_chart(RESULT)
    assert (chart.name, chart.title) == (
        "shares", "Estimated share of each suspect that was trained on"
    )  # fmt: skip
    assert chart.label == "Corrected shares of the suspects with their intervals"
    assert chart.caption == (
        "The contamination rate counts false alarms and misses; the corrected rate does not."
    )
    (axes,) = chart.figure.axes
    points = [
        ([*map(float, line.get_xdata())], [*map(float, line.get_ydata())], line.get_marker(),
         to_hex(line.get_color()))
        for line in axes.lines
    ]  # fmt: skip
    accent, ink = charts.ACCENT, charts.INK
    assert points == [
        (pytest.approx([40, 90]), [1, 1], "None", accent), (pytest.approx([70]), [1], "o", accent),
        (pytest.approx([80]), [1], "|", ink), (pytest.approx([0, 34]), [0, 0], "None", accent),
        (pytest.approx([12]), [0], "o", accent), (pytest.approx([25]), [0], "|", ink),
        ([], [], "o", accent), ([], [], "|", ink),
    ]  # fmt: skip
    assert axes.lines[6].get_linestyle() == "-"
    assert legend_labels(chart) == ["corrected, with 95% interval", "contamination rate"]
    assert axes.get_xlabel() == "share of the book (%)"
    assert axes.get_xlim() == (-2, 102)
    assert axes.get_ylim() == pytest.approx((-0.7, 1.7))
    assert ticks(axes.yaxis) == {"Emma": 1, f"{LONG_TITLED.title[:39]}…": 0}
    assert not any(line.get_visible() for line in axes.get_ygridlines())


def test_the_forty_suspects_with_the_highest_rates_are_drawn_and_long_titles_are_cut():
    many = replace(RESULT, suspects=[replace(EMMA, title="x" * 40)] + [LONG_TITLED] * 40)
    chart = report_module._share_chart(many)
    labels = [label.get_text() for label in chart.figure.axes[0].get_yticklabels()]
    assert (len(labels), labels[0]) == (40, "x" * 40)
    assert [*chart.figure.get_size_inches()] == pytest.approx([8, 1.2 + 0.24 * 40])


def test_the_chart_of_scores_has_the_chosen_methods_scores_and_the_threshold():
    chart = report_module._score_chart(RESULT, BOOKS.scores)
    assert (chart.name, chart.title) == ("scores", "Scores of the validation books' snippets")
    assert chart.label == "Histograms of positives' and negatives' scores with the threshold"
    assert chart.caption == (
        "As in Raoof et al. (2025), figure 1. Scores right of the threshold count as trained on."
    )
    (axes,) = chart.figure.axes
    assert axes.get_xlabel() == "score of a snippet by min_k k=0.2"
    assert axes.get_ylabel() == "snippets (%)"
    (line,) = axes.lines
    assert [*line.get_xdata()] == [1.23456] * 2
    assert (to_hex(line.get_color()), line.get_linestyle()) == (charts.INK, "--")
    assert legend_labels(chart) == ["positives", "negatives", "threshold"]
    positives, negatives = axes.containers
    for bars, colour in ((positives, charts.MEMBER), (negatives, charts.NONMEMBER)):
        assert len(bars) == 40
        assert {to_hex(bar.get_facecolor()) for bar in bars} == {colour}
        assert sum(bar.get_height() for bar in bars) == pytest.approx(100)
    heights = [bar.get_height() for bar in positives if bar.get_height()]
    assert heights == pytest.approx([37.5, 50.0, 12.5])  # scores of 2, 3 and 4
    assert positives[0].get_x() == -2
    assert positives[-1].get_x() + positives[-1].get_width() == pytest.approx(4)


def test_the_chart_of_rates_counts_the_books_of_each_role():
    chart = report_module._rate_chart(RESULT)
    assert (chart.name, chart.title) == ("rates", "Contamination rates of all books")
    assert chart.label == "Histograms of the contamination rates of all books by role"
    assert chart.caption == "Validation books by thresholds that were chosen without them."
    (axes,) = chart.figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("contamination rate (%)", "books")
    assert axes.get_xlim() == (0, 100)
    assert legend_labels(chart) == ["negatives", "positives", "suspects"]
    colours = (charts.NONMEMBER, charts.MEMBER, charts.ACCENT)
    for bars, colour, books in zip(axes.containers, colours, (3, 2, 2), strict=True):
        assert {to_hex(bar.get_facecolor()) for bar in bars} == {colour}
        assert sum(bar.get_height() for bar in bars) == books
    assert all(tick == int(tick) for tick in axes.get_yticks())


def test_shares_are_drawn_only_where_they_are_told(monkeypatch):
    for name in ("_share_chart", "_score_chart", "_rate_chart"):
        monkeypatch.setattr(report_module, name, lambda *_, name=name: name)
    assert [*content_of().charts] == ["_share_chart", "_score_chart", "_rate_chart"]
    untold = replace(RESULT, suspects=[replace(EMMA, corrected=None)], separated=False)
    assert [*content_of(untold).charts] == ["_score_chart", "_rate_chart"]
