"""Whether two continuations say the same, by a model behind an OpenAI-compatible server.

Shi et al. (2024, section 7.1) let GPT-4 rate how alike they are from 1 to 5, and count 4 and
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

from contamination.audits.unlearning.inputs import as_node
from contamination.core.artifacts import file_name
from contamination.core.errors import ServerError
from contamination.core.progress import progress
from contamination.core.statistics.bootstrap import Scores
from contamination.detection.models.served.answer_store import AnswerStore
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.completions import find_model
from contamination.detection.models.served.responses import ChatCompletion
from contamination.detection.models.served.transport import in_parallel

FIELD, KIND = "audit.judge", "judge"
ALIKE = 4
"""The least rating that counts as alike."""
TOKENS = 16
"""Of an answer, at most."""
SHOWN = 60
"""Characters of an answer that is no rating."""
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
"""How an answer goes that repeats the question: of a model too weak to judge."""


log = logging.getLogger(__name__)


class Judge:
    """The judging model; what it has answered is kept, so nothing is asked twice.

    Args:
        given: `url`, and perhaps `name`, `key_env`, `requests`, `timeout_seconds`, `retries`.
        runs: the folder of all artefacts.

    Raises:
        ConfigError: there is no such server or model.
    """

    def __init__(self, given: Mapping[str, Any], runs: Path) -> None:
        self._client = Client(FIELD, as_node(FIELD, given))
        self.name = find_model(self._client, self._client.server.name).id
        named = f"{self._client.url}\n{self.name}\n{QUESTION}"
        self.digest = hashlib.sha256(named.encode()).hexdigest()
        self._answers = AnswerStore(runs / KIND / f"{file_name(self.name)}-{self.digest[:12]}")

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """1 where a pair is alike, else 0; NaN where the judge gave no rating, which is said.

        Raises:
            ServerError: it fails, or rates no pair at all.
        """
        questions = [QUESTION.format(written=pair[0], true=pair[1]) for pair in pairs]
        keys = [hashlib.sha256(words.encode()).hexdigest()[:32] for words in questions]
        new = {k: q for k, q in zip(keys, questions, strict=True) if k not in self._answers}
        asked, most = list(new), self._client.server.requests
        bar = progress(desc=KIND, total=len(new), unit="pair")
        with bar:
            for place, said in in_parallel(self._asked, list(new.values()), most):
                self._answers[asked[place]] = said
                bar.update()
        found = np.array([_alike(self._answers[key]) for key in keys], np.float64)
        self._check_rates(found, [self._answers[key] for key in keys])
        return found

    def _check_rates(self, found: Scores, answers: Sequence[str]) -> None:
        silent = np.flatnonzero(np.isnan(found))
        if not len(silent):
            return
        first = self._client.hidden(answers[silent[0]])[:SHOWN]
        said = (
            f"{len(silent)} of {len(found)} pairs got no rating from 1 to 5 from {self.name}: of "
            f"the first of them it says {first!r}"
        )
        if len(silent) == len(found):
            raise ServerError(
                f"{FIELD}.url is {self._client.server.url!r}: {said}. Give "
                "a model that answers with a number, or leave the judge out."
            )
        log.warning("%s. They are left out.", said)

    def _asked(self, question: str) -> str:
        message = {"role": "user", "content": question}
        body = {"model": self.name, "messages": [message], "max_tokens": TOKENS, "temperature": 0}
        return self._client.post("chat/completions", body, ChatCompletion).choices[0].written


def rating(answer: str) -> int | None:
    """The first number from 1 to 5 in the answer; none in one that repeats the scale."""
    found = RATING.search(answer)
    return int(found[0]) if found and not SCALE.search(answer) else None


def _alike(answer: str) -> float:
    rated = rating(answer)
    return np.nan if rated is None else float(rated >= ALIKE)
