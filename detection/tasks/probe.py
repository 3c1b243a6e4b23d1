"""What a model behind a server can do: `python -m detection probe model.url=…`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.artifacts import is_complete
from contamination.core.errors import ConfigError
from contamination.core.terminal import fit
from contamination.detection.collect import Collector, parts, serving
from contamination.detection.config import DetectionStage, ScoredModelConfig
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.methods.registry import build_methods
from contamination.detection.models import open_node
from contamination.detection.models.base import LanguageModel, Prompt, Tell, tell_nobody
from contamination.detection.models.served.capabilities import prompt_tops, ways
from contamination.detection.models.served.completions import Completions
from contamination.detection.models.served.logprob_strategies import WAYS
from contamination.detection.models.served.logprob_tracking import Way
from contamination.detection.models.served.served_model import ServedLM, ServedModel
from contamination.detection.passes import Pass, TokenStats
from contamination.detection.requirements import lacking
from contamination.detection.run import opened, passes_of
from contamination.detection.views import view_of

PROBE_HEADER = ("", "served", "error in nats", "requests", "")


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
        *fit(PROBE_HEADER, rows).lines(),
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


HEADER = ("pass", "requests, {0}", "tokens, {0}")


class Counting(LanguageModel):
    """Counts what a server would be asked, and answers with zeros."""

    takes_all = True

    def __init__(self, model: ServedLM) -> None:
        self.model, self.requests, self.tokens = model, 0.0, 0.0
        self.seen: set[str] = set()

    def stats(
        self, sequences: Sequence[Sequence[int]], tell: Tell = tell_nobody
    ) -> list[TokenStats]:
        """Zeros for each sequence's tokens after the first."""
        for key, (ids, end) in self.model.new(sequences).items():
            if key not in self.seen:
                self.seen.add(key)
                queries = self.model.way.queries_for(ids[end - 1])
                self.requests += queries
                self.tokens += queries * end
        gives = self.model.way.numbers
        return [TokenStats(**{n: np.zeros(len(ids) - 1) for n in gives}) for ids in sequences]

    def write(
        self, prompts: Sequence[Prompt], temperature: float, tell: Tell = tell_nobody
    ) -> list[list[int]]:
        """As many tokens as are wanted, all of them the first of the vocabulary."""
        for key, prompt in self.model.unwritten(prompts, temperature).items():
            if key not in self.seen:
                self.seen.add(key)
                self.requests += 1
                self.tokens += len(prompt)
        return [[0] * prompt.tokens for prompt in prompts]


def plan_requests(stage: DetectionStage) -> str:
    """A row a pass: the requests and the tokens that they send and get; those kept cost nothing.

    Raises:
        UserError: what a run would raise before it asks.
    """
    methods, examples, models, resources = opened(stage, None)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    passes = {*serving(passes_of(methods)).values()}
    passes |= {Pass(p.model) for p in passes if view_of(p).rewords}
    counting: dict[str, Counting] = {}
    rows = []
    for each in sorted(passes, key=lambda p: (view_of(p).rewords, p.key)):
        source = models[each.model]
        if is_complete(collector.folder(each)):
            rows.append([each.key, "0: stored", ""])
        elif not isinstance(source, ServedModel):
            rows.append([each.key, "0: run here", ""])
        else:
            loaded = LoadedModel(source, stage.detection, collector.resources)
            model = counting.setdefault(each.model, Counting(source.load(stage.detection)))
            before = model.requests, model.tokens
            _count(each, collector, loaded, model)
            asked = (model.requests - before[0], model.tokens - before[1])
            rows.append([each.key, *(f"{number:,.0f}" for number in asked)])
    totals = (sum(getattr(m, what) for m in counting.values()) for what in ("requests", "tokens"))
    rows.append(["all", *(f"{number:,.0f}" for number in totals)])
    exact = not any(model.model.way.estimated for model in counting.values())
    header = [title.format("at most" if exact else "some") for title in HEADER]
    return "\n".join(fit(header, rows).lines(1))


def _count(wanted: Pass, collector: Collector, loaded: LoadedModel, model: Counting) -> None:
    """Read the pass's texts with the model that only counts."""
    vars(loaded)["model"] = model
    for texts in parts(collector.texts, wanted):
        known = None
        if view_of(wanted).rewords:
            own = loaded.run(Pass(wanted.model), texts)
            known = {row.text_sha256: (row.stats,) for row in own}
        loaded.run(wanted, texts, known)
