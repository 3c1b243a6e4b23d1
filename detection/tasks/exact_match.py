"""Exact match of a written answer with accepted answers.

As SQuAD's official evaluation (Rajpurkar et al. 2016, section 6.1): both are lower-cased, and lose
their punctuation, the articles a, an and the, and superfluous white space. Only the first line of
what the model wrote is compared, since a text that the model knows goes on after the answer.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise_answer(answer: str) -> str:
    """Returns the answer in lower case, without punctuation, articles and superfluous spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def is_exact_match(written: str, accepted: Sequence[str]) -> bool:
    """Returns whether the first line that was written equals an accepted answer.

    An answer that consists of punctuation and articles alone equals nothing.
    """
    lines = written.strip().splitlines()
    answer = normalise_answer(lines[0]) if lines else ""
    return bool(answer) and answer in map(normalise_answer, accepted)
