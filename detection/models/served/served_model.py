"""A model behind a server: its handle, and the loaded model that sends requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from contamination.core.artifacts import path_part_of
from contamination.core.errors import ConfigError, ServerError, require
from contamination.core.hub import download_snapshot
from contamination.core.models import (
    TOKENIZER_FILES,
    load_tokenizer,
    resolve_model_path,
    tokenizer_digest,
)
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models.base import (
    UNKNOWN_STEP,
    LanguageModel,
    ModelHandle,
    ProgressCallback,
    Prompt,
    RequestCounter,
    ignore_progress,
)
from contamination.detection.models.served.answer_store import AnswerStore, question_key
from contamination.detection.models.served.capabilities import (
    Probe,
    find_answers_folder,
    probe_server,
)
from contamination.detection.models.served.chat import chat_warning, model_for_dialect
from contamination.detection.models.served.client import Client, RefusedError
from contamination.detection.models.served.completions import CompletionsModel, find_model
from contamination.detection.models.served.connections import run_in_parallel
from contamination.detection.models.served.fingerprint import (
    Fingerprint,
    rms_difference,
    take_fingerprint,
    take_noiseless_fingerprint,
)
from contamination.detection.models.served.logprob_strategies import STRATEGIES
from contamination.detection.models.served.logprob_tracking import (
    MAX_BIAS,
    Columns,
    LogprobStrategy,
)
from contamination.detection.models.served.responses import ServerModel, UnlistedModel
from contamination.detection.passes import TokenStats

if TYPE_CHECKING:
    from contamination.detection.config import DetectionConfig

CHECK_SECONDS = 60.0
"""Seconds of requests between two checks that the server still runs the same model."""
RECHECKED = 8
"""The number of answers about single tokens that are requested again at each end of a sequence of
unchecked answers. Of answers about texts, one is requested again."""

log = logging.getLogger(__name__)


class ServedLM(LanguageModel):
    """A model behind a server, with concurrent requests; every answer is stored as it arrives.

    Args:
        strategy: how log-probabilities are computed from the server's answers.
        answers: the store of the server's answers.
        fingerprint: the model's first fingerprint, which later ones must match.
    """

    batches_itself = True

    def __init__(
        self, strategy: LogprobStrategy, answers: AnswerStore, fingerprint: Fingerprint
    ) -> None:
        self.strategy, self.answers, self.fingerprint = strategy, answers, fingerprint

    def score(
        self, sequences: Sequence[Sequence[int]], on_progress: ProgressCallback = ignore_progress
    ) -> list[TokenStats]:
        """Returns the numbers of each sequence's tokens after the first.

        Raises:
            ServerError: the server fails, or its model changes meanwhile.
        """
        self.unanswered_questions(sequences)
        questions = self._questions_by_key(sequences)
        requests = {
            key: partial(self._answer_question, *question) for key, question in questions.items()
        }
        self._store_missing_answers(requests, on_progress)
        return [
            _join_answers([self.answers[key] for key in self._question_ends_by_key(ids)])
            for ids in sequences
        ]

    def unanswered_questions(
        self, sequences: Sequence[Sequence[int]]
    ) -> dict[str, tuple[Sequence[int], int]]:
        """Returns the questions about these texts that have no stored answer, by key.

        Raises:
            ServerError: the server accepts only text, and some questions can't be sent as text.
        """
        questions = self._questions_by_key(sequences).items()
        new = {key: question for key, question in questions if key not in self.answers}
        prefixes = [(ids, self.strategy.sent_ids(ids[:end])) for ids, end in new.values()]
        self._check_sendable(prefixes)
        return new

    def generate(
        self,
        prompts: Sequence[Prompt],
        temperature: float,
        on_progress: ProgressCallback = ignore_progress,
    ) -> list[list[int]]:
        """Returns the generated tokens after each prompt; the server samples by the seed.

        Raises:
            ServerError: the server fails, or its model changes meanwhile.
        """
        self.unanswered_prompts(prompts, temperature)
        keys = [_continuation_key(prompt, temperature) for prompt in prompts]
        generate = partial(self.strategy.model.generate, temperature=temperature)
        requests = {k: partial(generate, prompt) for k, prompt in zip(keys, prompts, strict=True)}
        self._store_missing_answers(requests, on_progress)
        return [self.answers[key] for key in keys]

    def unanswered_prompts(
        self, prompts: Sequence[Prompt], temperature: float
    ) -> dict[str, Prompt]:
        """Returns the prompts without a stored continuation, by key.

        Raises:
            ServerError: the server accepts only text, and some prompts can't be sent as text.
        """
        prompts_by_key = {_continuation_key(prompt, temperature): prompt for prompt in prompts}
        new = {key: prompt for key, prompt in prompts_by_key.items() if key not in self.answers}
        self._check_sendable([(prompt.ids, prompt.ids) for prompt in new.values()])
        return new

    def _check_sendable(self, prefixes: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        """Raises a ServerError, before any request, if a prefix can't be sent as text.

        Args:
            prefixes: pairs of a text and its prefix.
        """
        model = self.strategy.model
        unsendable = [(ids, prefix) for ids, prefix in prefixes if not model.can_send(prefix)]
        if unsendable:
            n_texts = len({tuple(ids) for ids, _ in unsendable})
            n_all_texts = len({tuple(ids) for ids, _ in prefixes})
            message = model.unsendable_message(
                *unsendable[0], n_texts, n_all_texts, len(unsendable)
            )
            raise ServerError(message)

    def _questions_by_key(
        self, sequences: Sequence[Sequence[int]]
    ) -> dict[str, tuple[Sequence[int], int]]:
        return {
            key: (ids, end)
            for ids in sequences
            for key, end in self._question_ends_by_key(ids).items()
        }

    def _answer_question(self, ids: Sequence[int], end: int) -> Columns:
        return self.strategy.answer_columns(ids[:end])

    def _question_ends_by_key(self, ids: Sequence[int]) -> dict[str, int]:
        return {question_key(ids[:end]): end for end in self.strategy.question_ends(len(ids))}

    def _store_missing_answers(
        self, requests: Mapping[str, Callable[[], Any]], on_progress: ProgressCallback
    ) -> None:
        """Stores the answers that are missing, each under its key as it arrives."""
        for unchecked_keys in self.answers.unchecked_keys_by_file(requests):
            self._recheck_unchecked(unchecked_keys, requests)
        new = [key for key in requests if key not in self.answers]

        def ask(key: str) -> None:
            self.answers[key] = requests[key]()

        done, remaining = 0, iter(new)
        while done < len(new):  # during a check no other request is under way
            workers = min(self.strategy.model.client.server.requests, len(new) - done)
            for _ in run_in_parallel(ask, _take_until_check(remaining), workers):
                done += 1
                on_progress(done, len(new))
            self._check_same_model()

    def _check_same_model(self) -> None:
        """Raises a ServerError, and drops the answers since the last check, if the model changed.

        If it seems to have changed, the fingerprint is taken with concurrent requests as well,
        since the server may have become noisier.
        """
        current = take_noiseless_fingerprint(self.strategy)
        if not self.fingerprint.matches(current):
            current = take_fingerprint(self.strategy)
        if self.fingerprint.matches(current):
            self.answers.mark_checked()
            return
        client, dropped = self.strategy.model.client, self.answers.drop_unchecked()
        nats = rms_difference(self.fingerprint.logprobs, current.logprobs)
        comparable = current.logprobs and np.isfinite(nats)
        difference = f"by {nats:.3g} nats" if comparable else "completely"
        raise ServerError(
            f"{client.field}.url is {client.server.url!r}: it changes its answers: they differ "
            f"{difference} from those of the model that it ran at first. The {dropped} answers "
            f"since the last check are dropped, {len(self.answers)} remain in "
            f"{self.answers.folder}. Check that it runs one model, and run the same command again."
        )

    def _recheck_unchecked(
        self, keys: Sequence[str], requests: Mapping[str, Callable[[], Any]]
    ) -> None:
        """Confirms or drops the unchecked answers of a stopped run, by asking both ends again."""
        count = RECHECKED if self.strategy.unit == "token" else 1
        ends = keys[:count], keys[-count:]
        current = {key: requests[key]() for key in dict.fromkeys([*ends[0], *ends[1]])}
        agree = all(
            self._answers_agree((self.answers[key], current[key]) for key in end) for end in ends
        )
        resolved = self.answers.resolve_unchecked(keys, agree)
        if not agree:
            log.warning(
                "An earlier run was stopped before it checked %d of its answers, and the server "
                "now answers the first or the last of them differently: they are dropped, and "
                "requested again.", resolved,
            )  # fmt: skip

    def _answers_agree(self, pairs: Iterator[tuple[Any, Any]]) -> bool:
        """Returns whether one model may have given both answers of each pair."""
        squares: list[float] = []
        for stored, current in pairs:
            if isinstance(stored, list):  # generated tokens
                squares.append(0.0 if stored == current else np.inf)
            else:
                logprobs = (np.maximum(-MAX_BIAS, a["logprob"]) for a in (stored, current))
                squares += np.square(np.subtract(*logprobs)).tolist()
        return float(np.sqrt(np.mean(squares))) <= self.fingerprint.tolerance


class ServedRequestCounter(RequestCounter):
    """Counts the requests of a `ServedLM` for answers that are not stored; returns zeros."""

    batches_itself = True

    def __init__(self, model: ServedLM) -> None:
        self.model, self.is_estimate = model, model.strategy.is_estimate
        self._counted: set[str] = set()

    def score(
        self, sequences: Sequence[Sequence[int]], on_progress: ProgressCallback = ignore_progress
    ) -> list[TokenStats]:
        """Returns zeros for each sequence's tokens after the first."""
        for key, (ids, end) in self.model.unanswered_questions(sequences).items():
            requests = self.model.strategy.request_count(ids[end - 1])
            self._count_new_question(key, requests, requests * end)
        columns = self.model.strategy.numbers
        return [TokenStats(**{c: np.zeros(len(ids) - 1) for c in columns}) for ids in sequences]

    def generate(
        self,
        prompts: Sequence[Prompt],
        temperature: float,
        on_progress: ProgressCallback = ignore_progress,
    ) -> list[list[int]]:
        """Returns as many tokens as each prompt asks for, all of id 0."""
        for key, prompt in self.model.unanswered_prompts(prompts, temperature).items():
            self._count_new_question(key, 1, len(prompt))
        return [[0] * prompt.tokens for prompt in prompts]

    def _count_new_question(self, key: str, requests: float, tokens: float) -> None:
        if key not in self._counted:
            self._counted.add(key)
            self.requests += requests
            self.tokens += tokens


def _take_until_check(jobs: Iterator[str]) -> Iterator[str]:
    """Yields one job, and more until it is time for a check."""
    end = monotonic() + CHECK_SECONDS
    for job in jobs:
        yield job
        if monotonic() >= end:
            return


def _continuation_key(prompt: Prompt, temperature: float) -> str:
    return question_key([*prompt.ids, -prompt.tokens], f"{temperature} {prompt.seed}")


def _join_answers(answers: Sequence[Columns]) -> TokenStats:
    """Returns the statistics of a text from the answers to its questions, in order."""
    dtypes = {"top_id": np.int32}
    columns = {name: [v for answer in answers for v in answer[name]] for name in answers[0]}
    return TokenStats(**{n: np.array(v, dtypes.get(n, np.float32)) for n, v in columns.items()})


KIND = "served"


@dataclass(frozen=True)
class ServedModel(ModelHandle):
    """A model that a server runs.

    Attributes:
        server: the server's address and the settings of requests.
        name: the model's name at the server.
        probe: the server's abilities.
        fingerprint: the model's first fingerprint, which identifies it.
        answers: the folder of the stored answers.
        hf_tokenizer: the configured tokenizer.
        tokenizer_hash: a hash of the tokenizer's files.
        limit: the maximum number of tokens; None if the server does not state it.
    """

    field: str
    server: ScoredModelConfig
    name: str
    probe: Probe
    fingerprint: Fingerprint
    answers: Path
    digest: str
    hf_tokenizer: Any
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
        remedy = f"{name}.url is given as well: give only one of them."
        require(config.path is None, f"{name}.path", config.path, remedy)
        client = Client(name, config)
        remedy = "give the model's tokenizer, a Hugging Face folder or a hub id."
        require(config.tokenizer is not None, f"{name}.tokenizer", config.tokenizer, remedy)
        model = find_model(client, config.name)
        tokenizer_field, tokenizer_path = f"{name}.tokenizer", str(config.tokenizer)
        tokenizer_hash = _tokenizer_digest(tokenizer_field, tokenizer_path)
        tokenizer = load_tokenizer(tokenizer_field, tokenizer_path)
        probe = _probe_named_model(client, model, tokenizer)
        log.info("%s at %s: %s, %s.", model.id, config.url, probe.strategy, probe.fingerprint)
        folder, digest, fingerprint = find_answers_folder(
            Path(runs) / KIND, model.id, tokenizer_hash, probe
        )
        return cls(
            field=f"{name}.url",
            server=config,
            name=model.id,
            probe=probe,
            fingerprint=fingerprint,
            answers=folder,
            digest=digest,
            hf_tokenizer=tokenizer,
            tokenizer_hash=tokenizer_hash,
            limit=model.context,
            slug=path_part_of(model.id),
            provides=probe.provides | {"continuations"},
        )

    @property
    def path(self) -> str:
        """The model's name and the server's address."""
        return f"{self.name} at {self.server.url}"

    @property
    def tokenizer_digest(self) -> str:
        """A hash of the tokenizer's files."""
        return self.tokenizer_hash

    @property
    def context(self) -> int | None:
        """The maximum number of tokens; None if the server does not state it."""
        return self.limit

    @property
    def vocabulary(self) -> int | None:
        """None, since no server states it."""
        return None

    def tokenizer(self) -> Any:
        """Returns the configured tokenizer."""
        return self.hf_tokenizer

    def connect(self) -> CompletionsModel:
        """Returns the model at the server, ready for requests."""
        client = Client(self.field.partition(".")[0], self.server)
        return model_for_dialect(client, self.name, self.hf_tokenizer, self.probe.dialect)

    def load(self, settings: DetectionConfig) -> ServedLM:
        """Returns the model for requests; `detection.dtype` and `detection.device` are not used."""
        strategy = STRATEGIES[self.probe.strategy](
            self.connect(), self.probe.top, self.server.tolerance
        )
        strategy.numbers = self.probe.provides
        return ServedLM(strategy, AnswerStore(self.answers), self.fingerprint)

    def request_counter(self, settings: DetectionConfig) -> ServedRequestCounter:
        """Returns a stand-in that counts the requests for answers that are not stored yet."""
        return ServedRequestCounter(self.load(settings))


def _probe_named_model(client: Client, model: ServerModel, tokenizer: Any) -> Probe:
    """Returns the server's abilities; blames the name if an unlisted model is refused."""
    try:
        probe = probe_server(client, model.id, tokenizer)
    except RefusedError as error:
        if not isinstance(model, UnlistedModel):
            raise
        raise ConfigError(
            f"{client.field}.name is {model.id!r}: the server does not list it, and refuses "
            f"requests for it. {model.list_note} {error}"
        ) from None
    if probe.dialect.chat:
        log.warning("%s", chat_warning(client, probe.dialect))
    return probe


def _tokenizer_digest(field: str, path: str) -> str:
    """Returns a hash of the tokenizer's files, in a folder or on the hub."""
    resolved = resolve_model_path(field, path)
    folder = Path(resolved)
    if not folder.is_dir():
        folder = download_snapshot(field, resolved, TOKENIZER_FILES)
    return tokenizer_digest(folder)
