"""A text longer than the model's context, read in overlapping windows.

Windows advance by half of the context, and each begins with the leading special tokens (BOS) that
the tokenizer adds. A token is scored once, in the first window that holds it, so that at least half
a context stands before it (in the first window: all that there is). With context C and step
C // 2, token q of window w is the text's token q + w·step; of every window but the first, the
entries count from its token C - step on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detection.passes import Copies, TokenStats


def leading_special(tokenizer: Any) -> int:
    """How many special tokens the tokenizer puts before a text."""
    first = tokenizer("a", add_special_tokens=False)["input_ids"][0]
    with_special: list[int] = tokenizer("a")["input_ids"]
    return with_special.index(first)


def overlap(context: int) -> int:
    """The tokens of a window, special ones included, that are not scored in it; but the first's."""
    return context - context // 2


def split(ids: Sequence[int], context: int, special: int) -> list[list[int]]:
    """The windows of a text of more than `context` tokens, the first `special` of them leading."""
    step = context // 2
    starts = range(0, len(ids) - overlap(context), step)
    return [[*ids[:special], *ids[s + special : s + context]] for s in starts]


def merge(windows: Sequence[TokenStats], context: int, ahead: int = 0) -> TokenStats:
    """The text's statistics from its windows'; `ahead`: of the tokens so far after a replaced one.

    The result has an entry for each token after the text's first, or after its first 1 + `ahead`.
    """
    starts = [0] + [overlap(context) - 1 - ahead] * (len(windows) - 1)
    return TokenStats.joined([w[s:] for w, s in zip(windows, starts, strict=True)])


def merge_copies(windows: Sequence[Copies], context: int) -> Copies:
    """A text's copies of the infilling pass from its windows': copy j is j tokens ahead."""
    copies = zip(*windows, strict=True)
    return tuple(merge(each, context, j) for j, each in enumerate(copies))
