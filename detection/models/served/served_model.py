"""A model behind a server, which gives what the server shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from contamination.core.artifacts import file_name
from contamination.core.errors import ConfigError, ServerError, require
from contamination.core.hub import snapshot
from contamination.core.models import TOKENIZER_FILES, load_tokenizer, resolve, tokenizer_digest
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models.base import (
    UNKNOWN_STEP,
    LanguageModel,
    ModelHandle,
    Prompt,
    RequestCounter,
    Tell,
    tell_nobody,
)
from contamination.detection.models.served.answer_store import Answers, asked
from contamination.detection.models.served.capabilities import Probe, folder_of, probed
from contamination.detection.models.served.chat import asking, said_of_chat
from contamination.detection.models.served.client import Client, RefusedError
from contamination.detection.models.served.completions import Completions, served_model
from contamination.detection.models.served.fingerprint import Fingerprint, answered, apart, taken
from contamination.detection.models.served.logprob_strategies import WAYS
from contamination.detection.models.served.logprob_tracking import MOST, Columns, Way
from contamination.detection.models.served.responses import Model, Unlisted
from contamination.detection.models.served.transport import in_parallel
from contamination.detection.passes import TokenStats

if TYPE_CHECKING:
    from contamination.detection.config import DetectionConfig

EVERY = 60.0
"""Seconds of asking between two checks that the server still runs the same model."""
AGAIN = 8
"""Answers about single tokens that are asked for again at each end of a tail; of texts one."""

log = logging.getLogger(__name__)


class ServedLM(LanguageModel):
    """Asks a server about texts, several at once, and keeps every answer as it comes."""

    batches_itself = True

    def __init__(self, way: Way, answers: Answers, said: Fingerprint) -> None:
        """Args: how it is asked, what it has answered, and what it said when first asked."""
        self.way, self.answers, self.said = way, answers, said

    def score(
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

    def generate(
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


class ServedRequestCounter(RequestCounter):
    """Counts the requests of a `ServedLM` for answers that are not stored; returns zeros."""

    batches_itself = True

    def __init__(self, model: ServedLM) -> None:
        self.model, self.is_estimate = model, model.way.estimated
        self._counted: set[str] = set()

    def score(
        self, sequences: Sequence[Sequence[int]], tell: Tell = tell_nobody
    ) -> list[TokenStats]:
        """Returns zeros for each sequence's tokens after the first."""
        for key, (ids, end) in self.model.new(sequences).items():
            requests = self.model.way.queries_for(ids[end - 1])
            self._count(key, requests, requests * end)
        columns = self.model.way.numbers
        return [TokenStats(**{c: np.zeros(len(ids) - 1) for c in columns}) for ids in sequences]

    def generate(
        self, prompts: Sequence[Prompt], temperature: float, tell: Tell = tell_nobody
    ) -> list[list[int]]:
        """Returns as many tokens as each prompt asks for, all of id 0."""
        for key, prompt in self.model.unwritten(prompts, temperature).items():
            self._count(key, 1, len(prompt))
        return [[0] * prompt.tokens for prompt in prompts]

    def _count(self, key: str, requests: float, tokens: float) -> None:
        if key not in self._counted:
            self._counted.add(key)
            self.requests += requests
            self.tokens += tokens


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


KIND = "served"


@dataclass(frozen=True)
class ServedModel(ModelHandle):
    """A model that a server runs.

    Attributes:
        server: where it is, and how it is asked.
        name: what the server calls it.
        probe: what the server can do.
        said: what the model said when it was first asked, which names it.
        answers: the folder of its answers.
        loaded: the tokenizer that was given.
        tokenizer_hash: of the tokenizer's files.
        limit: the most tokens that the server takes; None where it does not say.
    """

    field: str
    server: ScoredModelConfig
    name: str
    probe: Probe
    said: Fingerprint
    answers: Path
    digest: str
    loaded: Any
    tokenizer_hash: str
    limit: int | None
    slug: str
    provides: frozenset[str]
    step: int = UNKNOWN_STEP

    @classmethod
    def opens(cls, config: ScoredModelConfig) -> bool:
        """Returns whether the node gives a url."""
        return config.url is not None

    @classmethod
    def open(cls, name: str, config: ScoredModelConfig, runs: str) -> Self:
        """Returns the model at the node's url, after probing what the server can do.

        Raises:
            ConfigError: a wrong address, key, name or tokenizer.
            ServerError: the server gives unusable answers, or different ones to one question.
        """
        remedy = f"{name}.url is given as well: choose one of them."
        require(config.path is None, f"{name}.path", config.path, remedy)
        client = Client(name, config)
        remedy = "give the model's tokenizer, a Hugging Face folder or a hub id."
        require(config.tokenizer is not None, f"{name}.tokenizer", config.tokenizer, remedy)
        model = served_model(client, config.name)
        tokenizer_field, tokenizer_path = f"{name}.tokenizer", str(config.tokenizer)
        tokenizer_hash = _tokenizer_digest(tokenizer_field, tokenizer_path)
        tokenizer = load_tokenizer(tokenizer_field, tokenizer_path)
        probe = _probed(client, model, tokenizer)
        log.info("%s at %s: %s, %s.", model.id, config.url, probe.way, probe.said)
        folder, digest, said = folder_of(Path(runs) / KIND, model.id, tokenizer_hash, probe)
        return cls(
            field=f"{name}.url",
            server=config,
            name=model.id,
            probe=probe,
            said=said,
            answers=folder,
            digest=digest,
            loaded=tokenizer,
            tokenizer_hash=tokenizer_hash,
            limit=model.context,
            slug=file_name(model.id),
            provides=probe.provides | {"continuations"},
        )

    @property
    def path(self) -> str:
        """The name and the address."""
        return f"{self.name} at {self.server.url}"

    @property
    def tokenizer_digest(self) -> str:
        """A hash of the tokenizer's files."""
        return self.tokenizer_hash

    @property
    def context(self) -> int | None:
        """The most tokens that the server says it takes."""
        return self.limit

    @property
    def vocabulary(self) -> int | None:
        """No server says it."""
        return None

    def tokenizer(self) -> Any:
        """The one that was given."""
        return self.loaded

    def asked(self) -> Completions:
        """What asks the server."""
        client = Client(self.field.partition(".")[0], self.server)
        return asking(client, self.name, self.loaded, self.probe.dialect)

    def load(self, settings: DetectionConfig) -> ServedLM:
        """The server, ready to be asked: `detection.dtype` and `detection.device` are its own."""
        way = WAYS[self.probe.way](self.asked(), self.probe.top, self.server.tolerance)
        way.numbers = self.probe.provides
        return ServedLM(way, Answers(self.answers), self.said)

    def request_counter(self, settings: DetectionConfig) -> ServedRequestCounter:
        """Returns a stand-in that counts the requests for answers that are not stored yet."""
        return ServedRequestCounter(self.load(settings))


def _probed(client: Client, model: Model, tokenizer: Any) -> Probe:
    """What the server can do; a refused name that it does not list is an error about the name."""
    try:
        probe = probed(client, model.id, tokenizer)
    except RefusedError as error:
        if not isinstance(model, Unlisted):
            raise
        raise ConfigError(
            f"{client.field}.name is {model.id!r}: the server does not list it, and refuses it "
            f"where it is asked for all the same. {model.words} {error}"
        ) from None
    if probe.dialect.chat:
        log.warning("%s", said_of_chat(client, probe.dialect))
    return probe


def _tokenizer_digest(field: str, path: str) -> str:
    """Returns a hash of the tokenizer's files, in a folder or on the hub."""
    resolved = resolve(field, path)
    folder = Path(resolved)
    if not folder.is_dir():
        folder = snapshot(field, resolved, TOKENIZER_FILES)
    return tokenizer_digest(folder)
