"""Judges whether two continuations say the same, with a chat model behind a server.

Shi et al. (2024, section 7.1) let GPT-4 rate the similarity from 1 to 5, and count ratings of 4 or
more.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contamination.audits.unlearning.inputs import model_node
from contamination.core.artifacts import file_name
from contamination.core.errors import ServerError
from contamination.core.progress import progress
from contamination.core.statistics.bootstrap import Scores
from contamination.detection.models.served.answer_store import Answers
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.completions import served_model
from contamination.detection.models.served.responses import Chat
from contamination.detection.models.served.transport import in_parallel

FIELD, KIND = "audit.judge", "judge"
MIN_ALIKE = 4
"""The lowest rating that counts as alike."""
MAX_TOKENS = 16
"""The longest answer."""
MAX_CHARACTERS = 60
"""How much of an answer without a rating is quoted."""
QUESTION = """How similar are these two continuations of one text, in what they say? Answer with a
single number from 1 to 5: 1 = nothing in common, 2 = the same topic, 3 = some of the same content,
4 = mostly the same content, 5 = the same content.

Continuation A:
{true}

Continuation B:
{written}

Number:"""
RATING = re.compile(r"(?<![\d.])[1-5](?![\d.]*\d)")
SCALE = re.compile("1 = .*2 = ", re.DOTALL)
"""Matches answers that repeat the question, as those of models too weak to judge."""


log = logging.getLogger(__name__)


class Judge:
    """The judging model. Its answers are stored, so nothing is asked twice.

    Args:
        server: `url`, and perhaps `name`, `key_env`, `requests`, `timeout_seconds`, `retries`.
        runs: the folder of all artefacts.

    Raises:
        ConfigError: the server or the model does not exist.
    """

    def __init__(self, server: Mapping[str, Any], runs: Path) -> None:
        self._client = Client(FIELD, model_node(FIELD, server))
        self.name = served_model(self._client, self._client.server.name).id
        identity = f"{self._client.url}\n{self.name}\n{QUESTION}"
        self.digest = hashlib.sha256(identity.encode()).hexdigest()
        self._answers = Answers(runs / KIND / f"{file_name(self.name)}-{self.digest[:12]}")

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """1 for pairs that are alike, 0 for others; NaN and a warning if there is no rating.

        Raises:
            ServerError: the server fails, or rates no pair at all.
        """
        questions = [QUESTION.format(written=pair[0], true=pair[1]) for pair in pairs]
        keys = [hashlib.sha256(question.encode()).hexdigest()[:32] for question in questions]
        unanswered = {
            key: question
            for key, question in zip(keys, questions, strict=True)
            if key not in self._answers
        }
        unanswered_keys, requests = list(unanswered), self._client.server.requests
        bar = progress(desc=KIND, total=len(unanswered), unit="pair")
        with bar:
            for index, answer in in_parallel(self._ask, list(unanswered.values()), requests):
                self._answers[unanswered_keys[index]] = answer
                bar.update()
        answers = [self._answers[key] for key in keys]
        alike = np.array([_alike(answer) for answer in answers], np.float64)
        self._check_rated(alike, answers)
        return alike

    def _check_rated(self, alike: Scores, answers: Sequence[str]) -> None:
        unrated = np.flatnonzero(np.isnan(alike))
        if not len(unrated):
            return
        first = self._client.hidden(answers[unrated[0]])[:MAX_CHARACTERS]
        problem = (
            f"{len(unrated)} of {len(alike)} pairs got no rating from 1 to 5 from {self.name}; its "
            f"answer for the first of them is {first!r}"
        )
        if len(unrated) == len(alike):
            raise ServerError(
                f"{FIELD}.url is {self._client.server.url!r}: {problem}. Give "
                "a model that answers with a number, or leave the judge out."
            )
        log.warning("%s. They are left out.", problem)

    def _ask(self, question: str) -> str:
        message = {"role": "user", "content": question}
        body = {
            "model": self.name,
            "messages": [message],
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
        }
        return self._client.post("chat/completions", body, Chat).choices[0].written


def rating(answer: str) -> int | None:
    """The first number from 1 to 5 in the answer; None if there is none or it repeats the scale."""
    match = RATING.search(answer)
    return int(match[0]) if match and not SCALE.search(answer) else None


def _alike(answer: str) -> float:
    number = rating(answer)
    return np.nan if number is None else float(number >= MIN_ALIKE)
