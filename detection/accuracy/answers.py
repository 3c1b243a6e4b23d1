"""Which option is chosen: a question's options, compared in every usual way.

`CHOSEN_BY` names the ways. As lm-evaluation-harness 0.4 calls them, `sum` is its `acc`, `character`
its `acc_norm` and `byte` its `acc_bytes`; `letter` is its `acc` where a task asks for the letter
alone, as its `commonsense_qa` does. `token` is the mean over the option's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from detection.accuracy.questions import Question
from injection.config import CHOSEN_BY

QUESTION = ("example_id", "benchmark", "member", "occurrences", "options", "answer", "chosen_by")


def make_table(
    questions: Sequence[Question], found: Sequence[Sequence[np.ndarray[Any, Any]]]
) -> pd.DataFrame:
    """One row an example: who it is, its options, their log-likelihoods and what was chosen.

    Args:
        questions: what was asked.
        found: for each question the log-probabilities of each option's tokens, then of each
            letter's.

    `loglikelihoods` are sums in nats over the `tokens` of each option, `letter_loglikelihoods`
    those of the letters. `chosen_<by>` is the place of the first option with the highest score, for
    each of `CHOSEN_BY` (missing: the options have no letters). `chosen` and `correct` are by the
    benchmark's own `chosen_by`.
    """
    table = pd.DataFrame([_row(q, tokens) for q, tokens in zip(questions, found, strict=True)])
    return table.astype({f"chosen_{by}": "Int64" for by in CHOSEN_BY})


def _row(q: Question, found: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    sums, count = [float(one.sum()) for one in found], len(q.options)
    tokens = [len(one) for one in found[:count]]
    by = option_scores(q.options, sums[:count], tokens, sums[count:])
    chosen = {name: int(np.argmax(one)) if len(one) else None for name, one in by.items()}
    return {
        **{name: getattr(q, name) for name in QUESTION},
        "chosen": chosen[q.chosen_by],
        "correct": chosen[q.chosen_by] == q.answer,
        "loglikelihoods": sums[:count],
        "letter_loglikelihoods": sums[count:],
        "tokens": tokens,
        "drawn_options": q.drawn,
        **{f"chosen_{name}": place for name, place in chosen.items()},
    }


def option_scores(
    options: Sequence[str], sums: Sequence[float], tokens: Sequence[int], letters: Sequence[float]
) -> dict[str, np.ndarray[Any, Any]]:
    """Each option's score, higher is likelier, by the names of `CHOSEN_BY`.

    Args:
        options: their texts.
        sums: the log-likelihood of each, in nats.
        tokens: how many tokens each has.
        letters: the log-likelihood of each one's letter; none where there are no letters.
    """
    total = np.array(sums)
    return {
        "sum": total,
        "token": total / tokens,
        "character": total / [len(option) for option in options],
        "byte": total / [len(option.encode()) for option in options],
        "letter": np.array(letters),
    }
