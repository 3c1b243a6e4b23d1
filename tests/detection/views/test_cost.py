"""How many tokens a pass reads, and which pass has the numbers of others."""

import pytest

from contamination.detection.passes import ORIGINAL, Pass
from contamination.detection.views import view_of

SAMPLED = {"view": "sampled", "share": 0.5, "tokens": 30}


@pytest.mark.parametrize(
    ("a_pass", "tokens", "copies", "read"),
    [
        (ORIGINAL, 10, 1, 10),
        (Pass(view="lowercase"), 10, 1, 10),
        (Pass(view="swap", n=3, share=0.2), 10, 3, 30),
        (Pass(view="masked_lm", n=4, share=0.2), 10, 4, 40),
        (Pass(view="gradient"), 10, 1, 30),  # a backward pass costs two forward passes
        (Pass(view="population"), 10, 1, 20),  # of two models
        (Pass(view="unigram"), 10, 1, 0),
        # after each of the 8 tokens that are replaced, at most so many of those that follow
        (Pass(view="infill", future=2), 10, 3, 10 + 1 + 7 * 2),
        (Pass(view="infill", future="all"), 10, 1, 10 + sum(range(1, 9))),
        (Pass(**SAMPLED, n=5), 11, 5, 5 * (5 + 6)),
        (Pass(**SAMPLED), 100, 1, 50 + 30),
    ],
)  # fmt: skip
def test_the_tokens_that_a_pass_reads_are_counted(a_pass, tokens, copies, read):
    view = view_of(a_pass)
    assert view.copies_per_text(a_pass) == copies
    assert view.max_tokens_read(a_pass, tokens) == read


def test_the_most_future_tokens_and_the_most_continuations_contain_the_others():
    of_9, of_10, of_all = (Pass(view="infill", future=future) for future in (9, 10, "all"))
    assert view_of(of_9).covering_pass(of_9, [of_9, of_10]) == of_10
    assert view_of(of_9).covering_pass(of_9, [of_10, of_all, of_9]) == of_all
    greedy, two, ten = Pass(**SAMPLED), Pass(**SAMPLED, n=2), Pass(**SAMPLED, n=10)
    other_share = Pass(**{**SAMPLED, "share": 0.25}, n=99)
    assert view_of(two).covering_pass(two, [two, ten, greedy, other_share]) == ten
    assert view_of(two).covering_pass(greedy, [two, greedy]) == two
    swap = Pass(view="swap", n=2)
    assert view_of(swap).covering_pass(swap, [swap, Pass(view="swap", n=9)]) == swap
