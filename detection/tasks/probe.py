"""`python -m detection probe model.url=…`: reports what a model behind a server can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contamination.core.artifacts import is_complete
from contamination.core.errors import ConfigError
from contamination.core.terminal import fit_columns
from contamination.detection.config import DetectionStage, ProbeStage
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.methods.registry import build_methods
from contamination.detection.models.base import RequestCounter
from contamination.detection.models.served.capabilities import count_prompt_tops, working_strategies
from contamination.detection.models.served.completions import CompletionsModel
from contamination.detection.models.served.logprob_strategies import STRATEGIES
from contamination.detection.models.served.logprob_tracking import LogprobStrategy
from contamination.detection.models.served.served_model import ServedModel
from contamination.detection.pass_collector import Collector, covering_pass_by_pass, divide_texts
from contamination.detection.passes import Pass
from contamination.detection.requirements import describe_missing_numbers
from contamination.detection.run import open_stage_inputs, required_passes
from contamination.detection.views import view_of

PROBE_HEADER = ("", "served", "error in nats", "requests", "")


def run(stage: ProbeStage) -> str:
    """Asks the server what it can do.

    Returns:
        A table of its abilities, the methods that it can serve, and what the others lack.

    Raises:
        ConfigError: the node names no server, or a wrong one.
        ServerError: the server gives unusable answers.
    """
    if not ServedModel.opens(stage.model):
        raise ConfigError(
            f"model.path is {stage.model.path!r}: a probe asks a server. Give model.url."
        )
    model = ServedModel.open("model", stage.model, stage.runs)
    completions = model.connect()
    prompt_row = ["top-n of the prompt", str(count_prompt_tops(completions) or "no"), "", "", ""]
    context = f"{model.context} tokens" if model.context else "not stated"
    return "\n".join([
        f"{model.path}: takes {model.probe.dialect}; context: {context}",
        *fit_columns(PROBE_HEADER, [prompt_row, *_strategy_rows(completions)]).lines(),
        str(model.fingerprint),
        *_method_lines(stage, model),
    ])  # fmt: skip


def _strategy_rows(completions: CompletionsModel) -> Iterator[list[str]]:
    """Yields one row per strategy; one that does not work has no numbers."""
    tolerance = completions.client.server.tolerance
    working = {strategy.name: strategy for strategy in working_strategies(completions, tolerance)}
    for name in STRATEGIES:
        if name in working:
            yield [name, "yes", *_cost_cells(working[name])]
        else:
            yield [name, "no", "", "", ""]


def _cost_cells(strategy: LogprobStrategy) -> list[str]:
    error = f"{strategy.max_error:.2g}" if strategy.max_error else "its rounding"
    requests = f"{strategy.requests_per_question:.3g} per {strategy.unit}"
    return [error if strategy.numbers else "", requests, strategy.note]


def _method_lines(stage: ProbeStage, model: ServedModel) -> Iterator[str]:
    models = dict.fromkeys(("target", "reference"), model)
    lack_by_method = {}
    for name, node in stage.method.items():
        variants = build_methods({name: node})
        lack_by_method[name] = describe_missing_numbers(models, next(iter(variants.values())))
    servable = [name for name, lack in lack_by_method.items() if lack is None]
    yield f"methods: {', '.join(servable) or 'none'}, by {model.probe.strategy}"
    for name, lack in lack_by_method.items():
        if lack is not None:
            yield f"{name} needs {lack[0]}"


PLAN_HEADER = ("pass", "requests, {0}", "tokens, {0}")


def format_request_plan(stage: DetectionStage) -> str:
    """Returns a table of the requests and tokens of each pass; stored answers cost nothing.

    Raises:
        UserError: what a run would raise before its first request.
    """
    methods, examples, models, resources = open_stage_inputs(stage, None)
    collector = Collector(Path(stage.runs), models, examples, stage.detection, resources)
    passes = {*covering_pass_by_pass(required_passes(methods)).values()}
    passes |= {Pass(p.model) for p in passes if view_of(p).rewords}
    counters: dict[str, RequestCounter | None] = {}  # by role
    rows = []
    for planned_pass in sorted(passes, key=lambda p: (view_of(p).rewords, p.key)):
        model_handle = models[planned_pass.model]
        if is_complete(collector.folder(planned_pass)):
            rows.append([planned_pass.key, "0: stored", ""])
            continue
        if planned_pass.model not in counters:
            counters[planned_pass.model] = model_handle.request_counter(stage.detection)
        if (counter := counters[planned_pass.model]) is None:
            rows.append([planned_pass.key, "0: run here", ""])
        else:
            loaded = LoadedModel(model_handle, stage.detection, collector.resources)
            requests, tokens = counter.requests, counter.tokens
            _count_requests(planned_pass, collector, loaded, counter)
            counts = counter.requests - requests, counter.tokens - tokens
            rows.append([planned_pass.key, *(f"{count:,.0f}" for count in counts)])
    served = [counter for counter in counters.values() if counter is not None]
    totals = sum(counter.requests for counter in served), sum(counter.tokens for counter in served)
    rows.append(["all", *(f"{total:,.0f}" for total in totals)])
    qualifier = "about" if any(counter.is_estimate for counter in served) else "at most"
    return "\n".join(fit_columns([title.format(qualifier) for title in PLAN_HEADER], rows).lines(1))


def _count_requests(
    planned_pass: Pass, collector: Collector, loaded: LoadedModel, counter: RequestCounter
) -> None:
    """Runs the pass on its texts with the model replaced by a counter."""
    vars(loaded)["model"] = counter
    for texts in divide_texts(collector.texts, planned_pass):
        original_stats = None
        if view_of(planned_pass).rewords:
            rows = loaded.run(Pass(planned_pass.model), texts)
            original_stats = {row.text_sha256: (row.stats,) for row in rows}
        loaded.run(planned_pass, texts, original_stats)
