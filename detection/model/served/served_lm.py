"""A served model's passes: every answer is kept as it comes, and checked to be the model's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from core.errors import ServerError
from detection.model.language_model import LanguageModel, Prompt, Tell, tell_nobody
from detection.model.served.answers import Answers, asked
from detection.model.served.fingerprint import Fingerprint, answered, apart, taken
from detection.model.served.parallel import in_parallel
from detection.model.served.tracking import MOST
from detection.model.served.way import Columns, Way
from detection.passes import TokenStats

EVERY = 60.0
"""Seconds of asking between two checks that the server still runs the same model."""
AGAIN = 8
"""Answers about single tokens that are asked for again at each end of a tail; of texts one."""

log = logging.getLogger(__name__)


class ServedLM(LanguageModel):
    """Asks a server about texts, several at once, and keeps every answer as it comes."""

    takes_all = True

    def __init__(self, way: Way, answers: Answers, said: Fingerprint) -> None:
        """Args: how it is asked, what it has answered, and what it said when first asked."""
        self.way, self.answers, self.said = way, answers, said

    def stats(
        self, sequences: Sequence[Sequence[int]], tell: Tell = tell_nobody
    ) -> list[TokenStats]:
        """What the server shows of each sequence's tokens after the first.

        Raises:
            ServerError: it fails, or changes its answers meanwhile.
        """
        wanted = self._questions(sequences)
        self.new(sequences)
        self._ask({key: partial(self._answer, *one) for key, one in wanted.items()}, tell)
        return [_joined([self.answers[key] for key in self._keys(ids)]) for ids in sequences]

    def new(self, sequences: Sequence[Sequence[int]]) -> dict[str, tuple[Sequence[int], int]]:
        """The questions about these texts that have no answer yet.

        Raises:
            ServerError: it takes text alone, and some can't be sent as text.
        """
        wanted = self._questions(sequences).items()
        new = {key: question for key, question in wanted if key not in self.answers}
        self._check_sendable([(ids, self.way.sends(ids[:end])) for ids, end in new.values()])
        return new

    def write(
        self, prompts: Sequence[Prompt], temperature: float, tell: Tell = tell_nobody
    ) -> list[list[int]]:
        """What the server writes after each prompt; draws are its own, by the seed.

        Raises:
            ServerError: it fails, or changes its answers meanwhile.
        """
        self.unwritten(prompts, temperature)
        write = partial(self.way.model.continued, temperature=temperature)
        self._ask({_written(each, temperature): partial(write, each) for each in prompts}, tell)
        return [self.answers[_written(prompt, temperature)] for prompt in prompts]

    def unwritten(self, prompts: Sequence[Prompt], temperature: float) -> dict[str, Prompt]:
        """The prompts after which nothing is written yet.

        Raises:
            ServerError: it takes text alone, and some can't be sent as text.
        """
        named = {_written(prompt, temperature): prompt for prompt in prompts}
        new = {key: prompt for key, prompt in named.items() if key not in self.answers}
        self._check_sendable([(prompt.ids, prompt.ids) for prompt in new.values()])
        return new

    def _check_sendable(self, sent: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        """Raise a ServerError, before anything is asked, where what is sent can't be sent as text.

        Args:
            sent: each text, and what is sent of it.
        """
        model = self.way.model
        bad = [(ids, part) for ids, part in sent if not model.sendable(part)]
        if bad:
            texts, of = len({tuple(ids) for ids, _ in bad}), len({tuple(ids) for ids, _ in sent})
            raise ServerError(model.unsendable(*bad[0], texts, of, len(bad)))

    def _questions(
        self, sequences: Sequence[Sequence[int]]
    ) -> dict[str, tuple[Sequence[int], int]]:
        """What names each question about these texts → the text, and where it ends."""
        return {key: (ids, end) for ids in sequences for key, end in self._keys(ids).items()}

    def _answer(self, ids: Sequence[int], end: int) -> Columns:
        return self.way.answer(ids[:end])

    def _keys(self, ids: Sequence[int]) -> dict[str, int]:
        """What names each question about the text → where it ends."""
        return {asked(ids[:end]): end for end in self.way.ends(len(ids))}

    def _ask(self, questions: Mapping[str, Callable[[], Any]], tell: Tell) -> None:
        """Keep the answers to these, by what names them, as they come."""
        for tail in self.answers.tails(questions):
            self._settle(tail, questions)
        new = [key for key in questions if key not in self.answers]

        def ask(key: str) -> None:
            self.answers[key] = questions[key]()

        done, left = 0, iter(new)
        while done < len(new):  # no answer is under way when it is checked
            workers = min(self.way.model.client.server.requests, len(new) - done)
            for _ in in_parallel(ask, _for_a_while(left), workers):
                done += 1
                tell(done, len(new))
            self._check()

    def _check(self) -> None:
        """Raise a ServerError, and drop the answers since the last time, where it has changed.

        One that seems to have changed is asked as thoroughly as at first: it may be noisier now.
        """
        now = answered(self.way)
        if not self.said.is_of(now):
            now = taken(self.way)
        if self.said.is_of(now):
            self.answers.keep()
            return
        client, dropped = self.way.model.client, self.answers.forget()
        nats = apart(self.said.shown, now.shown)
        far = f"by {nats:.3g} nats" if now.shown and np.isfinite(nats) else "altogether"
        raise ServerError(
            f"{client.field}.url is {client.server.url!r}: it changes its answers: they differ "
            f"{far} from those of the model that it ran at first. The {dropped} answers since the "
            f"last check are dropped, {len(self.answers)} are kept in {self.answers.folder}. See "
            "that it runs one model, and run the same command again."
        )

    def _settle(self, tail: Sequence[str], questions: Mapping[str, Callable[[], Any]]) -> None:
        """Keep or drop answers that a stopped run did not check: the first and the last tell."""
        count = AGAIN if self.way.unit == "token" else 1
        ends = tail[:count], tail[-count:]
        now = {key: questions[key]() for key in dict.fromkeys([*ends[0], *ends[1]])}
        agree = all(self._agree((self.answers[key], now[key]) for key in keys) for keys in ends)
        count = self.answers.settle(tail, agree)
        if not agree:
            log.warning(
                "An earlier run was stopped before it checked %d of its answers, and the server "
                "now answers the first or the last of them otherwise: they are dropped, and asked "
                "for again.", count,
            )  # fmt: skip

    def _agree(self, pairs: Iterator[tuple[Any, Any]]) -> bool:
        """Whether one model may have given both answers of each pair."""
        squares: list[float] = []
        for one, two in pairs:
            if isinstance(one, list):  # what it writes
                squares.append(0.0 if one == two else np.inf)
            else:
                shown = (np.maximum(-MOST, each["logprob"]) for each in (one, two))
                squares += np.square(np.subtract(*shown)).tolist()
        return float(np.sqrt(np.mean(squares))) <= self.said.bound


def _for_a_while(jobs: Iterator[str]) -> Iterator[str]:
    """The next job, and more until it is time for a check."""
    end = monotonic() + EVERY
    for job in jobs:
        yield job
        if monotonic() >= end:
            return


def _written(prompt: Prompt, temperature: float) -> str:
    """What names a continuation."""
    return asked([*prompt.ids, -prompt.tokens], f"{temperature} {prompt.seed}")


def _joined(answers: Sequence[Columns]) -> TokenStats:
    """What the answers to a text's questions say, one after another."""
    kinds = {"top_id": np.int32}
    columns = {name: [v for answer in answers for v in answer[name]] for name in answers[0]}
    return TokenStats(**{n: np.array(v, kinds.get(n, np.float32)) for n, v in columns.items()})
