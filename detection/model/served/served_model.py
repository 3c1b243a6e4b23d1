"""A model behind a server, which gives what the server shows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from core.artifacts import file_name
from core.errors import ConfigError, require
from core.hub import snapshot
from core.models import TOKENIZER_FILES, load_tokenizer, resolve, tokenizer_digest
from detection.config import ScoredModelConfig
from detection.model.scored_model import UNKNOWN_STEP, ScoredModel
from detection.model.served.answers import Answers
from detection.model.served.chats import asking, said_of_chat
from detection.model.served.client import Client, RefusedError
from detection.model.served.completions import Completions, served_model
from detection.model.served.fingerprint import Fingerprint
from detection.model.served.probe import Probe, folder_of, probed
from detection.model.served.replies import Model, Unlisted
from detection.model.served.served_lm import ServedLM
from detection.model.served.ways import WAYS

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
        name, own = found.id, str(server.tokenizer)
        its_digest = _digest(f"{node}.tokenizer", own)
        tokenizer = load_tokenizer(f"{node}.tokenizer", own)
        probe = _probed(client, found, tokenizer)
        log.info("%s at %s: %s, %s.", name, server.url, probe.way, probe.said)
        folder, digest, said = folder_of(runs / KIND, name, its_digest, probe)
        limit, url, slug = found.context, f"{node}.url", file_name(name)
        gives = probe.gives | {"continuations"}
        facts = (folder, digest, tokenizer, its_digest, limit, slug, gives)
        return cls(url, server, name, probe, said, *facts)

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
        way.numbers = self.probe.gives
        return ServedLM(way, Answers(self.answers), self.said)


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


def _digest(field: str, path: str) -> str:
    """A hash of the tokenizer's files, in a folder or of the hub."""
    given = resolve(field, path)
    folder = Path(given) if Path(given).is_dir() else snapshot(field, given, TOKENIZER_FILES)
    return tokenizer_digest(folder)
