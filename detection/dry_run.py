"""What a run would ask of servers, a row a pass, before anything is asked (`dry_run=true`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core.artifacts import is_complete
from core.terminal import fit
from detection.collect import Collector, parts, serving
from detection.config import DetectionStage
from detection.loaded import LoadedModel
from detection.model.language_model import LanguageModel, Prompt, Tell, tell_nobody
from detection.model.served.served_lm import ServedLM
from detection.model.served.served_model import ServedModel
from detection.passes import Pass, TokenStats
from detection.run import opened, passes_of
from detection.views import view_of

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


def run(stage: DetectionStage) -> str:
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
