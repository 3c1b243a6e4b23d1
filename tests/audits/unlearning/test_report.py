"""The report: all of its text and charts, from tables of made-up figures."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contamination.audits.unlearning.forget_ratio import SAME
from contamination.audits.unlearning.report import UnlearningFigures, build_report, iter_charts
from contamination.core.report.charts import MEMBER, NONMEMBER, SERIES
from contamination.core.report.document import markdown_document
from tests.audits.checks import legend_labels, ticks, with_ends, words_of
from tests.audits.unlearning.simulated import named_models, quantity_of

NAN = float("nan")


def quantity(name, scores, membership=(True, True, False, None)):
    ids = [f"t{place}" for place in range(len(membership))]
    table = pd.DataFrame({"unit": ids, "text_id": ids})
    values = {model: np.array(numbers, float) for model, numbers in scores.items()}
    return quantity_of(name, values, table, membership, is_score=True)


SCORES = {
    "original": [-2, -1, -4, -3], "half": [-3, -2, -4, -3], "far": [-2, -1, -4, -3],
    "other": [-8, -7, -5, -6], "clean": [-5, -4, -4, -4],
}  # fmt: skip
CHUNKS = pd.DataFrame({
    "chunk": ["t0", "t1", "t2", "t3", "t4"], "text_id": ["t0", "t0", "t2", "t3", "t4"],
    "member": pd.array([True, True, False, None, False], "boolean"),
})  # fmt: skip
MEMBERSHIP = pd.DataFrame([
    {"method": method, "model": name, **with_ends("auroc", value, low, high), "members": -1.5,
     "non_members": -4.0, "distance": distance, "p": p, "p_holm": holm}
    for method, name, value, low, high, distance, p, holm in (
        ("min_k", "original", 0.9, 0.8, 1.0, 1.0, 0.001, 0.004),
        ("min_k", "half", 0.75, 0.6, 0.875, 0.5, 0.25, 0.5),
        ("min_k", "far", 0.125, 0.0, 0.25, 0.25, 0.75, 0.75),
        ("min_k", "other", 0.5, 0.5, 0.5, NAN, NAN, NAN),
        ("min_k", "clean", 0.55, 0.4, 0.625, NAN, NAN, NAN),
        ("loss", "original", 0.8, NAN, NAN, NAN, NAN, NAN),
    )
])  # fmt: skip
RATIOS = pd.DataFrame([
    {"unlearned": "half", "quantity": "min_k", "method": "min_k",
     "original": -1.5, "after": -2.5, "clean": -4.5, **with_ends("share", 1 / 3, 0.25, 0.5),
     "share_why": "", "non_members_original": -4.0, "non_members_after": -4.25,
     "non_members_clean": -4.125, **with_ends("beyond", 0.375, -0.5, 0.625), "beyond_why": ""},
    {"unlearned": "half", "quantity": "AUROC of min_k", "method": "min_k",
     "original": 0.9, "after": 0.75, "clean": 0.55, **with_ends("share", 2.25, -1, 4),
     "share_why": "", "non_members_original": NAN, "non_members_after": NAN,
     "non_members_clean": NAN, **with_ends("beyond", NAN, NAN, NAN), "beyond_why": NAN},
    {"unlearned": "far", "quantity": "min_k", "method": "min_k",
     "original": -1.5, "after": -1.5, "clean": -4.5, **with_ends("share", NAN, NAN, NAN),
     "share_why": SAME, "non_members_original": -4.0, "non_members_after": -4.0,
     "non_members_clean": -4.125, **with_ends("beyond", NAN, NAN, NAN), "beyond_why": SAME},
    {"unlearned": "far", "quantity": "loss", "method": "loss",
     "original": -1.0, "after": -1.0, "clean": -2.0, **with_ends("share", 0.0, 0.0, 0.0),
     "share_why": "", "non_members_original": -3.0, "non_members_after": -3.0,
     "non_members_clean": -3.0, **with_ends("beyond", 0.0, -0.125, 0.125), "beyond_why": ""},
    {"unlearned": "far", "quantity": "ROUGE-L", "method": "",
     "original": 0.5, "after": 0.4, "clean": 0.1, **with_ends("share", 0.25, 0.125, 0.5),
     "share_why": "", "non_members_original": 0.1, "non_members_after": 0.1,
     "non_members_clean": 0.1, **with_ends("beyond", 0.25, 0.125, 0.5), "beyond_why": ""},
])  # fmt: skip
SCREENS = pd.DataFrame([
    {"unlearned": "half", "chunks": 4, "suspicious": 3, **with_ends("share", 0.75, 0.5, 1.0),
     **with_ends("precision", 2 / 3, 0.25, 0.875), **with_ends("members", 0.5, 0.25, 0.75),
     **with_ends("recall", 1.0, 0.5, 1.0), **with_ends("false_alarms", 0.125, 0.0, 0.25),
     **with_ends("kept", 0.5, 0.125, 0.875), "known": 2,
     **with_ends("auroc_of_the_fall", 0.625, 0.5, 0.75)},
    {"unlearned": "far", "chunks": 4, "suspicious": 0, **with_ends("share", 0.0, 0.0, 0.25),
     **with_ends("precision", NAN, NAN, NAN), **with_ends("members", 0.5, 0.25, 0.75),
     **with_ends("recall", 0.0, 0.0, 0.5), **with_ends("false_alarms", 0.0, 0.0, 0.5),
     **with_ends("kept", NAN, NAN, NAN), "known": 0,
     **with_ends("auroc_of_the_fall", 0.5, 0.25, 0.75)},
    {"unlearned": "other", "chunks": 4, "suspicious": 1, **with_ends("share", 0.25, 0.0, 0.5),
     **with_ends("precision", 0.0, 0.0, 0.875), **with_ends("members", 0.5, 0.25, 0.75),
     **with_ends("recall", 0.0, 0.0, 0.5), **with_ends("false_alarms", 1.0, 0.5, 1.0),
     **with_ends("kept", NAN, NAN, NAN), "known": 0,
     **with_ends("auroc_of_the_fall", 0.0, 0.0, 0.25)},
]).astype({"known": "Int64"})  # fmt: skip
METRICS = pd.DataFrame([
    {"model": name, **with_ends("extraction strength", strength, 0.0, 0.75),
     **with_ends("exact memorization", memorization, 0.0, high),
     **with_ends("privleak", leak, low, 90.0), "truth_ratio": 0.5, "forget_quality": quality,
     "model_utility": 0.625}
    for name, strength, memorization, high, leak, low, quality in (
        ("original", 0.5, 0.75, 1.0, -50.0, -75.0, 0.001), ("half", 0.25, 0.5, 0.75, 0.0, -25.0, 1),
        ("far", 0.0, 0.25, 0.375, 50.0, 25.0, 0.25), ("other", 0.0, 0.25, 0.5, 0.5, 0.0, 0.5),
        ("clean", 0.25, 0.5, 0.625, 0.0, 0.0, NAN),
    )
])  # fmt: skip
GROUPS = pd.DataFrame([
    {"quantity": "ROUGE-L", "model": name, "group": group, "units": units,
     **with_ends("mean", mean, low, 0.75)}
    for name, group, units, mean, low in (
        ("original", "members", 2, 0.5, 0.25), ("half", "members, suspicious", 1, 0.375, NAN),
        ("half", "members, not", 0, NAN, NAN),
    )
])  # fmt: skip
UTILITY = pd.DataFrame([
    {"model": name, **with_ends("loss", loss, loss - 0.5, loss + 0.5),
     **with_ends("change", change, low, 0.5)}
    for name, loss, change, low in (
        ("original", 2.0, 0.0, 0.0), ("half", 2.125, 0.125, 0.0625), ("far", 2.25, 0.25, 0.125),
        ("other", 2.125, 0.125, 0.05), ("clean", 2.375, 0.375, 0.25),
    )
])  # fmt: skip
FIGURES = UnlearningFigures(
    models=named_models("half", "far", "other"), screened=quantity("min_k", SCORES),
    screens=SCREENS, ratios=RATIOS, metrics=METRICS, membership=MEMBERSHIP, completions=GROUPS,
    answers=GROUPS.assign(quantity="accuracy"), utility=UTILITY, chunks=CHUNKS, texts="book.jsonl",
    of_validation=True, method="min_k", ratio=1.15, completions_per_chunk=20,
    similarities=["judged alike"],
)  # fmt: skip


FULL = """\
# What is left after unlearning: half, far, other

**half**. Members against non-members by min_k: AUROC 0.900 before, 0.750 [0.600, 0.875] after
(clean twin 0.550). Its members can still be told from non-members. The forget ratio of the members'
min_k score is 0.333 [0.250, 0.500] (0: as the original, 1: as the clean twin); beyond the change of
non-members, 0.375 [-0.500, 0.625]. The ratio screen finds 3 of 4 chunks suspicious: a share of
0.667 [0.250, 0.875] of them are members (all chunks: 0.500), and 1.000 [0.500, 1.000] of the
members are found (of the non-members 0.125).

**far**. Members against non-members by min_k: AUROC 0.900 before, 0.125 [0.000, 0.250] after (clean
twin 0.550). **Forgotten too well**: its members score below non-members, which itself shows who was
a member. The forget ratio can't be told: the original and the clean twin score the members alike by
min_k, so there was nothing to forget. The ratio screen finds 0 of 4 chunks suspicious: none, so it
has no precision.

**other**. Members against non-members by min_k: AUROC 0.900 before, 0.500 [0.500, 0.500] after
(clean twin 0.550). This score does not tell its members from non-members. No member is left to
compare with the clean twin. The ratio screen finds 1 of 4 chunks suspicious: a share of 0.000
[0.000, 0.875] of them are members (all chunks: 0.500), and 0.000 [0.000, 0.500] of the members are
found (of the non-members 1.000).

**far scores every chunk as the original does: they may be one model.**

**far went past the clean twin (exact memorization 0.250, the twin's 0.500; PrivLeak +50.0).
Over-unlearning is not forgetting: low memorization is then damage, and members below other texts
are revealed by it.**

**1 of 5 chunks are too short or blank: not ranked.**

**Harmed by unlearning: the loss on other text is above the original's: half by 0.125, far by 0.250
nats per token. What such a model no longer knows may be the result of damage, and not of
forgetting.**

**The clean twin is worse than the original on other text too, by 0.375 nats per token: it lacks
more than the members, such as their format. See the forget ratio beyond non-members.**

## How far each model went to the clean twin

| unlearned | quantity | members: before | after | clean twin | forget ratio | non-members: before |
after | clean twin | beyond non-members |
| - | - | - | - | - | - |
------------------- | ------ | ---------- | --------------------- |
| half | min_k | -1.500 | -2.500 | -4.500 | 0.333 [0.250, 0.500] | -4.000 | -4.250 | -4.125 | 0.375
[-0.500, 0.625] |
| half | AUROC of min_k | 0.900 | 0.750 | 0.550 | 2.250 [-1.000, 4.000] | – | – | – | – |
| far | min_k | -1.500 | -1.500 | -4.500 | can't be told | -4.000 | -4.000 | -4.125 | can't be told
|
| far | loss | -1.000 | -1.000 | -2.000 | 0.000 [0.000, 0.000] | -3.000 | -3.000 | -3.000 | 0.000
[-0.125, 0.125] |
| far | ROUGE-L | 0.500 | 0.400 | 0.100 | 0.250 [0.125, 0.500] | 0.100 | 0.100 | 0.100 | 0.250
[0.125, 0.500] |

Means of the members, then of the non-members, a control. Before: the original's; after: the
unlearned model's. Forget ratio: (before − after) / (before − clean twin), with Fieller's 95%
interval over texts; 0: nothing was forgotten, 1: as if never trained on, above 1: further than the
twin. Beyond non-members: the forget ratio of the differences between members and non-members, so
that changes to all texts do not count. Can't be told: the original and the twin do not differ.

## The metrics of TOFU and MUSE

| model | extraction strength ↓ | exact memorization ↓ | PrivLeak → 0 | truth ratio ↑ | forget
quality ↑ | model utility ↑ |
| - | - | - | - |
------------- | ---------------- | --------------- |
| original | 0.500 [0.000, 0.750] | 0.750 [0.000, 1.000] | -50.000 [-75.000, 90.000] | 0.500 | 0.001
| 0.625 |
| half | 0.250 [0.000, 0.750] | 0.500 [0.000, 0.750] | 0.000 [-25.000, 90.000] | 0.500 | 1.000 |
0.625 |
| far | 0.000 [0.000, 0.750] | 0.250 [0.000, 0.375] | 50.000 [25.000, 90.000] | 0.500 | 0.250 |
0.625 |
| other | 0.000 [0.000, 0.750] | 0.250 [0.000, 0.500] | 0.500 [0.000, 90.000] | 0.500 | 0.500 |
0.625 |
| clean | 0.250 [0.000, 0.750] | 0.500 [0.000, 0.625] | 0.000 [0.000, 90.000] | 0.500 | – | 0.625 |

Extraction strength: the share of a text that greedy decoding writes after the rest of it. Exact
memorization: the share of tokens that are the most probable ones. Both are means of the members,
and good at the clean twin's value, not at 0: a model that lost language has less of both. PrivLeak:
0 is best; below it the members are still known, above it they were pushed below texts that the
model never saw. Truth ratio: the mean of min(R, 1/R) over questions to be forgotten, where R
divides the probability of wrong answers by the right one's; uniform guesses have 1. Forget quality:
the p-value of the test that R is distributed as in the clean twin; with few questions it is high
for any model, so compare with the original's. Model utility: the harmonic mean of probability,
ROUGE-L recall and max(0, 1 − R) on other questions. No single column shows that a text is
forgotten: read them beside the forget ratio, which is 1 at the clean twin, and the loss on other
text.

## Members against non-members

| method | model | AUROC | mean score of members | of non-members | distance to the twin | p | p
(Holm) |
| - | - | - | - | - |
-------------------- | ----- | -------- |
| loss | original | 0.800 | -1.500 | -4.000 | – | – | – |
| min_k | original | 0.900 [0.800, 1.000] | -1.500 | -4.000 | 1.000 | 0.001 | 0.004 |
| min_k | half | 0.750 [0.600, 0.875] | -1.500 | -4.000 | 0.500 | 0.250 | 0.500 |
| min_k | far | 0.125 [0.000, 0.250] | -1.500 | -4.000 | 0.250 | 0.750 | 0.750 |
| min_k | other | 0.500 [0.500, 0.500] | -1.500 | -4.000 | – | – | – |
| min_k | clean | 0.550 [0.400, 0.625] | -1.500 | -4.000 | – | – | – |

AUROC of members against non-members, the mean over benchmarks, with 95% intervals over texts. 0.5:
not separated. Below it: members were pushed below texts that the model never saw, which reveals
them as well. Distance: the Kolmogorov–Smirnov statistic of the members' scores by the model and by
the clean twin. p: from random swaps of both models' scores, text by text; Holm: corrected over the
table.

## The ratio screen

| unlearned | chunks | suspicious | precision | of all chunks | recall | false alarms | AUROC of the
fall | recall of what is known |
| - | - | - | - | - | - |
-------------------- | -------------------- | ------------------------ |
| half | 4 | 3 | 0.667 [0.250, 0.875] | 0.500 | 1.000 [0.500, 1.000] | 0.125 [0.000, 0.250] | 0.625
[0.500, 0.750] | 0.500 [0.125, 0.875] (2) |
| far | 4 | 0 | – | 0.500 | 0.000 [0.000, 0.500] | 0.000 [0.000, 0.500] | 0.500 [0.250, 0.750] | –
(0) |
| other | 4 | 1 | 0.000 [0.000, 0.875] | 0.500 | 0.000 [0.000, 0.500] | 1.000 [0.500, 1.000] | 0.000
[0.000, 0.250] | – (0) |

A chunk is suspicious where the ratio of the models' min_k scores lies in (0.870, 1.15): it looks as
it did before. Precision: the share of members among suspicious chunks, next to their share among
all chunks. Recall: the share of members that are suspicious. False alarms: the share of non-members
that are suspicious. AUROC of the fall: how well the fall of a score from the original to the
unlearned model distinguishes members from non-members. What is known: members (their number) whose
score is nearer to the original's than to the clean twin's.

## Completions: 20 drawn per chunk, compared with what really follows

| quantity | model | group | number | mean |
| - | - | - | - | - |
| ROUGE-L | original | members | 2 | 0.500 [0.250, 0.750] |
| ROUGE-L | half | members, suspicious | 1 | 0.375 |
| ROUGE-L | half | members, not | 0 | – |

ROUGE-L: F1. With another chunk: the same completions, compared with what follows in another chunk.
This is the value that is expected by chance. Suspicious, not: by the ratio screen of this model.
95% intervals over texts.

## Questions: accuracy, and how much of the answer is written

| quantity | model | group | number | mean |
| - | - | - | - | - |
| accuracy | original | members | 2 | 0.500 [0.250, 0.750] |
| accuracy | half | members, suspicious | 1 | 0.375 |
| accuracy | half | members, not | 0 | – |

Accuracy by each benchmark's own convention. ROUGE-L recall: the share of the answer's words that
greedy decoding writes after the question, in as many tokens. Suspicious, not: by the ratio screen
of this model. 95% intervals over texts.

## The loss on validation text

| model | loss | change |
| - | - | - |
| original | 2.000 [1.500, 2.500] | 0.000 [0.000, 0.500] |
| half | 2.125 [1.625, 2.625] | 0.125 [0.062, 0.500] |
| far | 2.250 [1.750, 2.750] | 0.250 [0.125, 0.500] |
| other | 2.125 [1.625, 2.625] | 0.125 [0.050, 0.500] |
| clean | 2.375 [1.875, 2.875] | 0.375 [0.250, 0.500] |

Nats per token, the mean over texts; the change from the original is paired.

## Scores of the members

![Scores of the members by min_k, a line per model](charts/scores.svg)

The share of scores up to the value on the horizontal axis. A model that forgot lies on the clean
twin's line. One that lies there need not have forgotten: the scores of non-members may have moved
as far.

## How far each model went

![How far each model went: forget ratios with intervals](charts/way.svg)

0, orange: as the original; 1, violet: as the clean twin. 95% intervals over texts; one that ends at
the edge continues beyond it.

## What this can't prove

- That a text is forgotten. The audit finds what is still there; another method, prompt or threshold
may find more.
- That the screen is right. A chunk that was never known has similar scores before and after, like
one that is still known: the ratio can't tell them apart.
- That all twins are alike. The clean twin is one training of one seed; the intervals resample
texts, not trainings.

## What it is based on

- original: folder/original
- half: folder/half
- far: folder/far
- other: folder/other
- clean: folder/clean
- texts: book.jsonl
- chunks: 5, of 4 texts
- members: 2 chunks
- non-members: 2 chunks
- screen: min_k, ratio 1.15
- completions: 20 per chunk, compared by ROUGE-L, judged alike
"""


def test_the_report_has_all_figures_in_sentences_and_tables():
    result = build_report(FIGURES, ["chunks.parquet"])
    assert words_of(markdown_document(result.content, has_charts=True)) == words_of(FULL)
    assert result.counts == {"chunks": 5, "unlearned": 3}
    assert result.files == ["chunks.parquet"]
    names = ["way", "metrics", "membership", "screen", "completions", "answers", "utility"]
    assert [table.name for table in result.content.tables] == names
    for table, data in zip(
        result.content.tables,
        (RATIOS, METRICS, MEMBERSHIP, SCREENS, GROUPS, FIGURES.answers, UTILITY),
        strict=True,
    ):
        rows, expected = (
            each.sort_values([*data.columns[:2]]).reset_index(drop=True)
            for each in (table.data, data)
        )
        pd.testing.assert_frame_equal(rows, expected)
        assert table.data.index.tolist() == [*range(len(data))]


BARE = """\
# What is left after unlearning: half, far

**half**. The ratio screen finds 3 of 4 chunks suspicious.

**far**. The ratio screen finds 0 of 4 chunks suspicious.

**The texts have no labels of both kinds (1: to be forgotten, 0: never trained on): the tables show
how chunks changed, and not whether members did.**

## The metrics of TOFU and MUSE

| model | truth ratio ↑ |
| - | - |
| original | 0.500 |
| half | 0.500 |
| far | 0.500 |

Truth ratio: the mean of min(R, 1/R) over questions to be forgotten, where R divides the probability
of wrong answers by the right one's; uniform guesses have 1. No single column shows that a text is
forgotten: read them beside the forget ratio, which is 1 at the clean twin, and the loss on other
text.

## The ratio screen

| unlearned | chunks | suspicious |
| - | - | - |
| half | 4 | 3 |
| far | 4 | 0 |

A chunk is suspicious where the ratio of the models' loss scores lies in (0.800, 1.25): it looks as
it did before.

## Scores of the chunks

![Scores of the chunks by min_k, a line per model](charts/scores.svg)

The share of scores up to the value on the horizontal axis.

## What this can't prove

- That a text is forgotten. The audit finds what is still there; another method, prompt or threshold
may find more.
- That the screen is right. A chunk that was never known has similar scores before and after, like
one that is still known: the ratio can't tell them apart.
- That all twins are alike. The clean twin is one training of one seed; the intervals resample
texts, not trainings.
- How far the unlearned model is from one that was never trained on the texts: there is no clean
twin (audit.clean).
- Which texts were members: there are no labels of both kinds, so no rate of the screen is known,
and there is no control.

## What it is based on

- original: folder/original
- half: folder/half
- far: folder/far
- texts: book.jsonl
- chunks: 4, of 3 texts
- members: 0 chunks
- non-members: 0 chunks
- screen: loss, ratio 1.25
- completions: 0 per chunk, compared by ROUGE-L
"""


def test_the_report_without_labels_and_twin_says_what_is_missing():
    names = ["original", "half", "far"]
    unlabelled = pd.array([None] * 4, "boolean")
    figures = replace(
        FIGURES, models=named_models("half", "far", clean=None), ratios=None, membership=None,
        metrics=METRICS.loc[METRICS["model"].isin(names), ["model", "truth_ratio"]],
        screens=SCREENS[["unlearned", "chunks", "suspicious"]].assign(precision=NAN, known=None),
        completions=GROUPS[:0], answers=GROUPS[:0], utility=None, of_validation=False,
        screened=quantity("min_k", SCORES | {"far": [-2, -1, -4, -3.5]}, [None] * 4),
        chunks=CHUNKS[:4].assign(member=unlabelled), method="loss", ratio=1.25,
        completions_per_chunk=0, similarities=[],
    )  # fmt: skip
    figures = replace(figures, screens=figures.screens[:2])
    content = build_report(figures, []).content
    assert words_of(markdown_document(content, has_charts=True)) == words_of(BARE)


def test_a_loss_at_the_limit_is_no_harm_and_that_of_non_members_is_named():
    low = {"half": 0.05, "far": -0.5, "other": 0.0, "clean": 0.05}
    utility = UTILITY.assign(change_low=UTILITY["model"].map(low))
    figures = replace(FIGURES, utility=utility, of_validation=False)
    content = build_report(figures, []).content
    assert len(content.warnings) == 3
    assert not any("loss on other text" in warning for warning in content.warnings)
    assert not any("worse than the original" in warning for warning in content.warnings)
    assert content.tables[-1].title == "The loss on the non-members"


def drawn_lines(chart):
    """The lines of a chart: label, dashes, colour, and the ends of both axes."""
    return [
        (str(line.get_label()), line.get_linestyle(), line.get_color(),
         [*map(float, line.get_xdata())], [*map(float, line.get_ydata())])
        for line in chart.figure.axes[0].lines
    ]  # fmt: skip


def test_the_chart_of_scores_has_the_members_share_up_to_each_score():
    chart, _ = iter_charts(FIGURES.models, FIGURES.screened, RATIOS)
    shares = [0.5, 1.0]
    assert drawn_lines(chart) == [
        ("original", "-", MEMBER, [-2, -1], shares), ("half", "-", SERIES[0], [-3, -2], shares),
        ("far", "--", SERIES[1], [-2, -1], shares), ("other", ":", SERIES[2], [-8, -7], shares),
        ("clean", "-", NONMEMBER, [-5, -4], shares),
    ]  # fmt: skip
    (axes,) = chart.figure.axes
    assert axes.lines[0].get_drawstyle() == "steps-post"
    assert axes.get_xlabel() == "score by min_k; higher: more like a member"
    assert axes.get_ylabel() == "share of the members"
    assert chart.figure.get_size_inches().tolist() == [9.0, 3.6]
    assert legend_labels(chart) == ["original", "half", "far", "other", "clean"]


def test_the_chart_of_unlabelled_scores_is_of_all_chunks():
    score = quantity("loss", SCORES, [None] * 4)
    (chart,) = iter_charts(named_models("half", clean=None), score, None)
    assert drawn_lines(chart)[1][3:] == ([-4, -3, -3, -2], [0.25, 0.5, 0.75, 1.0])
    assert chart.figure.axes[0].get_ylabel() == "share of the chunks"


def test_lines_of_more_models_than_colours_differ_in_their_dashes():
    names = [f"m{number}" for number in range(9)]
    score = quantity("loss", dict.fromkeys(["original", *names], [-1, -2, -3, -4]))
    (chart,) = iter_charts(named_models(*names, clean=None), score, RATIOS[:0])
    styles = [(colour, dash) for _, dash, colour, *_ in drawn_lines(chart)[1:]]
    assert [colour for colour, _ in styles] == [*SERIES, *SERIES, SERIES[0]]
    assert [dash for _, dash in styles] == ["-", "--", ":", "-.", "--", ":", "-.", "-", ":"]


def test_the_chart_of_forget_ratios_has_a_row_for_each_that_was_estimated():
    _, chart = iter_charts(FIGURES.models, FIGURES.screened, RATIOS)
    (axes,) = chart.figure.axes
    rows = {"far: ROUGE-L": 0, "half: AUROC of min_k": 1, "half: min_k": 2}
    assert ticks(axes.yaxis) == rows
    assert axes.get_xlim() == (-0.5, 2.75)
    assert axes.get_ylim() == pytest.approx((-0.7, 2.7))
    half, far = SERIES[:2]
    third = RATIOS["share"][0]
    assert [line[2:] for line in drawn_lines(chart)] == [
        (far, [0.125, 0.5], [0, 0]), (far, [0.25], [0]),
        (half, [-0.5, 2.75], [1, 1]), (half, [2.25], [1]),
        (half, [0.25, 0.5], [2, 2]), (half, [third], [2]),
        (MEMBER, [0, 0], [0, 1]), (NONMEMBER, [1, 1], [0, 1]),
    ]  # fmt: skip
    assert axes.get_xlabel() == "forget ratio, from the original (0) to the clean twin (1)"
    assert chart.figure.get_size_inches() == pytest.approx([9.0, 1.2 + 3 * 0.28])
    low = RATIOS.assign(share=RATIOS["share"].clip(upper=0.5).where(RATIOS.index > 0, -1.5))
    _, chart = iter_charts(FIGURES.models, FIGURES.screened, low)
    assert chart.figure.axes[0].get_xlim() == (-2.0, 1.5)
