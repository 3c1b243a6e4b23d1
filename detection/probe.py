"""What a model behind a server can do: `python -m detection probe model.url=…`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from core.errors import ConfigError
from core.terminal import fit
from detection.build import build_methods
from detection.config import ScoredModelConfig
from detection.model import open_node
from detection.model.served.completions import Completions
from detection.model.served.probe import prompt_tops, ways
from detection.model.served.served_model import ServedModel
from detection.model.served.way import Way
from detection.model.served.ways import WAYS
from detection.needs import lacking

HEADER = ("", "served", "error in nats", "requests", "")


@dataclass(frozen=True)
class ProbeStage:
    """Everything that a probe needs."""

    runs: str = "runs"
    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    method: dict[str, Any] = field(default_factory=dict)


def run(stage: ProbeStage) -> str:
    """Ask the server what it can do; a table, the methods, and what others lack.

    Raises:
        ConfigError: no server is named, or it is named wrongly.
        ServerError: it does not answer as it should.
    """
    model = open_node("model", stage.model, stage.runs)
    if not isinstance(model, ServedModel):
        raise ConfigError(f"model.path is {model.path!r}: a probe asks a server. Give model.url.")
    asked = model.asked()
    rows = [["top-n of the prompt", str(prompt_tops(asked) or "no"), "", "", ""], *_ways(asked)]
    context = f"{model.context} tokens" if model.context else "not said"
    return "\n".join([
        f"{model.path}: takes {model.probe.dialect}; context: {context}",
        *fit(HEADER, rows).lines(),
        str(model.said),
        *_methods(stage, model),
    ])  # fmt: skip


def _ways(asked: Completions) -> Iterator[list[str]]:
    """A row a way; one that does not work has no numbers."""
    tolerance = asked.client.server.tolerance
    working = {way.name: way for way in ways(asked, tolerance)}
    for name in WAYS:
        way = working.get(name)
        yield [name, "no", "", "", ""] if way is None else [name, "yes", *_facts(way)]


def _facts(way: Way) -> list[str]:
    error = f"{way.error:.2g}" if way.error else "its rounding"
    return [error if way.numbers else "", f"{way.queries:.3g} a {way.unit}", way.note]


def _methods(stage: ProbeStage, model: ServedModel) -> Iterator[str]:
    """The methods that can be served, and what each other one lacks."""
    models = {role: model for role in ("target", "reference")}
    built = {name: build_methods({name: node}) for name, node in stage.method.items()}  # each alone
    lack = {
        name: lacking(models, next(iter(variants.values()))) for name, variants in built.items()
    }
    served = [name for name, why in lack.items() if why is None]
    yield f"methods: {', '.join(served) or 'none'}, by {model.probe.way}"
    yield from (f"{name} needs {why[0]}" for name, why in lack.items() if why is not None)
