"""A model behind a server, which gives what the server shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from core.artifacts import file_name
from core.errors import ConfigError, ServerError, require
from core.hub import snapshot
from core.models import TOKENIZER_FILES, load_tokenizer, resolve, tokenizer_digest
from detection.config import ScoredModelConfig
from detection.model.language_model import LanguageModel, Prompt, Tell, tell_nobody
from detection.model.scored_model import UNKNOWN_STEP, ScoredModel
from detection.model.served.answers import Answers, asked
from detection.model.served.client import Client, in_parallel
from detection.model.served.completions import Completions, served_model
from detection.model.served.probe import Probe, apart, check_same, folder_of, probed, said
from detection.model.served.ways import WAYS, Columns, Way
from detection.passes import TokenStats

if TYPE_CHECKING:
    from detection.config import DetectionConfig

log = logging.getLogger(__name__)

KIND = "served"


@dataclass(frozen=True)
class ServedModel(ScoredModel):
    """A model that a server runs.

    Attributes:
        server: where it is, and how it is asked.
        name: what the server calls it.
        probe: what the server can do, and what it says of the probe's text.
        answers: the folder of its answers.
        tokenizer_hash: of the tokenizer's files.
        limit: the most tokens that the server takes; None where it does not say.
    """

    field: str
    server: ScoredModelConfig
    name: str
    probe: Probe
    answers: Path
    digest: str
    tokenizer_hash: str
    limit: int | None
    slug: str
    gives: frozenset[str]
    step: int = UNKNOWN_STEP

    @classmethod
    def opens(cls, path: str) -> bool:
        """No path: a server has an address."""
        return False

    @classmethod
    def open(cls, field: str, path: str, *, trust_remote_code: bool = False) -> Self:
        """See `at`."""
        raise ConfigError(f"{field} is {path!r}: a server has an address. Give it as a url.")

    @classmethod
    def at(cls, node: str, server: ScoredModelConfig, runs: Path) -> ServedModel:
        """The model at the address that the config node names, once it is asked what it can do.

        Raises:
            ConfigError: a wrong address, key, name or tokenizer.
            ServerError: it does not answer as it should, or not the same twice.
        """
        alone = f"{node}.url is given as well: choose one of them."
        require(server.path is None, f"{node}.path", server.path, alone)
        client = Client(node, server)
        remedy = "give the model's tokenizer, a Hugging Face folder or a hub id."
        require(server.tokenizer is not None, f"{node}.tokenizer", server.tokenizer, remedy)
        found = served_model(client, server.name)
        name, own = str(found["id"]), str(server.tokenizer)
        its_digest = _digest(f"{node}.tokenizer", own)
        probe = probed(client, name, load_tokenizer(f"{node}.tokenizer", own))
        log.info("%s at %s: %s.", name, server.url, probe.way)
        folder, digest = folder_of(runs / KIND, name, its_digest, probe)
        limit, url, slug = found.get("max_model_len"), f"{node}.url", file_name(name)
        gives = probe.gives | {"continuations"}
        return cls(url, server, name, probe, folder, digest, its_digest, limit, slug, gives)

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
        node = self.field.partition(".")[0]
        return load_tokenizer(f"{node}.tokenizer", str(self.server.tokenizer))

    def asked(self) -> Completions:
        """What asks the server."""
        client = Client(self.field.partition(".")[0], self.server)
        return Completions(client, self.name, self.tokenizer(), self.probe.dialect)

    def load(self, settings: DetectionConfig) -> ServedLM:
        """The server, ready to be asked: `detection.dtype` and `detection.device` are its own."""
        way = WAYS[self.probe.way](self.asked(), self.probe.top, self.server.tolerance)
        way.numbers = self.probe.gives
        return ServedLM(way, Answers(self.answers), self.probe.said)


class ServedLM(LanguageModel):
    """Asks a server about texts, several at once, and keeps every answer as it comes."""

    takes_all = True

    def __init__(self, way: Way, answers: Answers, said: Sequence[float]) -> None:
        """Args: how it is asked, what it has answered, and what it said of the probe's text."""
        self.way, self.answers, self.said = way, answers, said

    def stats(
        self, sequences: Sequence[Sequence[int]], tell: Tell = tell_nobody
    ) -> list[TokenStats]:
        """What the server shows of each sequence's tokens after the first.

        Raises:
            ServerError: it fails, or changes its answers meanwhile.
        """
        new = self.new(sequences)
        self._ask({key: partial(self._answer, *question) for key, question in new.items()}, tell)
        return [_joined([self.answers[key] for key in self._keys(ids)]) for ids in sequences]

    def new(self, sequences: Sequence[Sequence[int]]) -> dict[str, tuple[Sequence[int], int]]:
        """The questions about these texts that have no answer yet."""
        return {
            key: (ids, end)
            for ids in sequences
            for key, end in self._keys(ids).items()
            if key not in self.answers
        }

    def write(
        self, prompts: Sequence[Prompt], temperature: float, tell: Tell = tell_nobody
    ) -> list[list[int]]:
        """What the server writes after each prompt; draws are its own, by the seed.

        Raises:
            ServerError: it fails, or changes its answers meanwhile.
        """
        new = self.unwritten(prompts, temperature)
        write = partial(self.way.model.continued, temperature=temperature)
        self._ask({key: partial(write, prompt) for key, prompt in new.items()}, tell)
        return [self.answers[_written(prompt, temperature)] for prompt in prompts]

    def unwritten(self, prompts: Sequence[Prompt], temperature: float) -> dict[str, Prompt]:
        """The prompts after which nothing is written yet."""
        named = {_written(prompt, temperature): prompt for prompt in prompts}
        return {key: prompt for key, prompt in named.items() if key not in self.answers}

    def _answer(self, ids: Sequence[int], end: int) -> Columns:
        return self.way.answer(ids[:end])

    def _keys(self, ids: Sequence[int]) -> dict[str, int]:
        """What names each question about the text → where it ends."""
        return {asked(ids[:end]): end for end in self.way.ends(len(ids))}

    def _ask(self, questions: Mapping[str, Callable[[], Any]], tell: Tell) -> None:
        """Keep the answers to these, by what names them, as they come."""

        def ask(key: str) -> None:
            self.answers[key] = questions[key]()

        asking = in_parallel(ask, [*questions], self.way.model.client.server.requests)
        for done, _ in enumerate(asking, 1):
            tell(done, len(questions))
        if questions:
            self._check()

    def _check(self) -> None:
        """Raise a ServerError, and keep no answer since the last time, where it has changed."""
        try:
            check_same(self.way.model.client, apart(self.said, said(self.way)))
        except ServerError:
            self.answers.forget()
            raise
        self.answers.keep()


def _written(prompt: Prompt, temperature: float) -> str:
    """What names a continuation."""
    return asked([*prompt.ids, -prompt.tokens], f"{temperature} {prompt.seed}")


def _joined(answers: Sequence[Columns]) -> TokenStats:
    """What the answers to a text's questions say, one after another."""
    kinds = {"top_id": np.int32}
    columns = {name: [v for answer in answers for v in answer[name]] for name in answers[0]}
    return TokenStats(**{n: np.array(v, kinds.get(n, np.float32)) for n, v in columns.items()})


def _digest(field: str, path: str) -> str:
    """A hash of the tokenizer's files, in a folder or of the hub."""
    given = resolve(field, path)
    folder = Path(given) if Path(given).is_dir() else snapshot(field, given, TOKENIZER_FILES)
    return tokenizer_digest(folder)
