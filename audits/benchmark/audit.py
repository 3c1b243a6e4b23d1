"""Did these questions leak into this model? A verdict over the set, with its error rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.comparison import blind_of, by_benchmark, compare, holm_by_model
from contamination.audits.benchmark.report import BenchmarkFindings, report
from contamination.core.config import Range, ranged_field, runtime_field
from contamination.core.errors import ConfigError, require
from contamination.core.table_files import write_parquet
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest, lines_digest
from contamination.data.texts import Texts
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.scores import open_scores

SCORES = "scores.parquet"
NO_SCORES = pd.DataFrame(
    columns=["example_id", "method", "variant", "score", "ranked", "default"]
).astype({"ranked": bool})
LEVEL = Range(lambda value: 0 < value <= 0.5, "give a level such as 0.05.")
ScoreTable = Callable[[Texts, str], pd.DataFrame]
"""Scores texts by the model of a name; see `detection.scores.Scores.table`."""


def audit_texts(
    texts: Texts,
    models: Sequence[str],
    score: ScoreTable,
    control: str,
    seed: int,
    alpha: float,
) -> BenchmarkFindings:
    """Audits labelled texts: questions have label 1, what they are compared with has label 0.

    Args:
        texts: the texts.
        models: the names of the models.
        score: scores texts by one of them.
        control: the kind of comparison; see `inputs`.
        seed: of the tests' relabellings.
        alpha: the level of the tests.
    """
    groups = by_benchmark(texts)
    blind_by_benchmark = {
        name: blind_of(group, seed) if control != inputs.ORDER and _both_sides(group) else None
        for name, group in groups.items()
    }
    comparable = any(map(_both_sides, groups.values()))
    comparisons = []
    for model in models:
        table = score(texts, model) if comparable else NO_SCORES
        for name, group in groups.items():
            ids = {*group.column("example_id").to_pylist()}
            rows = table[table["example_id"].isin(ids)]
            unusable = "" if _both_sides(group) else _nothing_to_compare(name, control)
            comparisons.append(
                compare(name, model, group, rows, seed, alpha, blind_by_benchmark[name], unusable)
            )
    return BenchmarkFindings(comparisons, holm_by_model(comparisons), control, alpha)


def _both_sides(texts: Texts) -> bool:
    return {*texts.column("label").to_pylist()} == {True, False}


def _nothing_to_compare(benchmark: str, control: str) -> str:
    of_benchmark = f" of {benchmark}" if benchmark else ""
    return f"there are no {control}{of_benchmark} to compare the questions with"


@dataclass(frozen=True)
class Benchmark(Audit):
    """Whether questions leaked into a model; see conf/audit/benchmark.yaml."""

    kind: ClassVar[str] = "benchmark"
    needed: ClassVar[Sequence[str]] = ("questions",)

    questions: Any = runtime_field(None)
    """The questions: a file of rows, or a folder or hub id of them."""
    fresh: Any = runtime_field(None)
    """Questions of the same making that the model cannot have seen."""
    versions: Any = runtime_field(None)
    """Other versions of the questions, made in the same way; `cluster` is the question's id."""
    order: bool = False
    """Whether the rows are in the published order, and that order is a random one."""
    template: str | None = runtime_field(None)
    """As `examples.template`: how a row becomes a text."""
    columns: dict[str, str] = field(default_factory=dict, metadata={"identity": False})
    """As `examples.columns`: the columns of text, id, benchmark, cluster or another field."""
    separator: str = runtime_field(" ")
    """As `examples.separator`: what stands between a prompt and an output."""
    models: dict[str, Any] | None = runtime_field(None)
    """Several models by name: paths, or mappings of `model`'s fields; null: `model` alone."""
    alpha: float = ranged_field(0.05, LEVEL)
    """The level of the tests: the most false alarms, as a share."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the questions and what they are compared with.

        Raises:
            UserError: a text or a model cannot be used, or there are two comparisons.
        """
        nodes = self._model_nodes(stage)
        handles = {name: open_model(f, node, stage.runs) for name, (f, node) in nodes.items()}
        first = next(iter(handles.values()))
        texts, control = self._texts(stage, first.tokenizer(), first.context)
        stage = _with_reference(stage, control)
        digests = {f"model {name}": handle.digest for name, handle in handles.items()}
        labels = (f"{t.example_id} {t.label} {t.benchmark} {t.cluster}" for t in texts)
        digests |= {"texts": examples_digest(texts), "labels": lines_digest(sorted(labels))}
        if _both_sides(texts):
            for name, (_, node) in nodes.items():
                folder = stage.scores_folder(texts, control, node)
                digests[f"scores of {name}"] = folder.name.rpartition("-")[2]

        def score(texts: Texts, name: str) -> pd.DataFrame:
            return open_scores(stage.score_texts(texts, control, nodes[name][1]).path).table

        def conduct(folder: Path) -> AuditResult:
            tables = {}

            def score_and_keep(texts: Texts, name: str) -> pd.DataFrame:
                tables[name] = score(texts, name)
                return tables[name]

            findings = audit_texts(texts, [*nodes], score_and_keep, control, stage.seed, self.alpha)
            if tables:
                rows = pd.concat([t.assign(model=name) for name, t in tables.items()])
                write_parquet(folder / SCORES, pa.Table.from_pandas(rows, preserve_index=False))
            facts = {name: handle.path for name, handle in handles.items()}
            facts |= {"questions": str(self.questions), control: str(self._control_path())}
            counts = {"questions": sum(c.questions for c in findings.comparisons)}
            return AuditResult(report(findings, facts), counts, [SCORES] if tables else [])

        return PreparedAudit(
            slug=first.slug,
            inputs=digests,
            conduct=conduct,
            settings={"method": stage.method, "detection": stage.detection.pass_settings,
                      "control": control},
        )  # fmt: skip

    def _control_path(self) -> Any:
        return self.fresh or self.versions or ("order" if self.order else "none")

    def _model_nodes(self, stage: AuditStage) -> dict[str, tuple[str, ScoredModelConfig]]:
        """Returns each model's config field and node, by its name in tables."""
        if self.models is None:
            remedy = "give the model: a folder, a GGUF file or a hub id (model.path=…)."
            require(stage.model.given is not None, "model.path", None, remedy)
            return {"model": ("model", stage.model)}
        remedy = "give the models by name: audit.models={base: DIR, chat: DIR}."
        require(bool(self.models), "audit.models", self.models, remedy)
        nodes = {}
        for name, given in self.models.items():
            fields = given if isinstance(given, Mapping) else {"path": str(given)}
            try:
                nodes[str(name)] = (f"audit.models.{name}", ScoredModelConfig(**fields))
            except TypeError as error:
                raise ConfigError(f"audit.models.{name} is {given!r}: {error}.") from error
        return nodes

    def _texts(self, stage: AuditStage, tokenizer: Any, context: int | None) -> tuple[Texts, str]:
        """Returns the labelled texts and the kind of comparison."""
        chosen = [
            name for name, value in
            (("fresh", self.fresh), ("versions", self.versions), ("order", self.order or None))
            if value is not None
        ]  # fmt: skip
        remedy = "choose one comparison: fresh, versions or order."
        require(len(chosen) <= 1, "audit", " and ".join(chosen), remedy)
        examples = ExamplesConfig(
            template=self.template, columns=self.columns, separator=self.separator
        )
        questions = inputs.read_texts("audit.questions", self.questions, examples)
        if self.versions is not None:
            versions = inputs.read_texts("audit.versions", self.versions, examples)
            return inputs.questions_and_versions(questions, versions), inputs.VERSIONS
        if self.order:
            shards = inputs.published_and_random_orders(questions, tokenizer, context, stage.seed)
            return shards, inputs.ORDER
        if self.fresh is not None:
            fresh = inputs.read_texts("audit.fresh", self.fresh, examples)
            return inputs.questions_and_fresh(questions, fresh), inputs.FRESH
        return inputs.questions_alone(questions), inputs.FRESH


def _with_reference(stage: AuditStage, control: str) -> AuditStage:
    """Returns the stage with the methods of the comparison.

    A reference model that is given is used, and the order test reads the loss alone, because a
    shuffled text has the same tokens.
    """
    from contamination.detection.api import make_method_nodes

    if control == inputs.ORDER:
        return replace(stage, method=make_method_nodes(["loss"]))
    if stage.reference.given is not None and "reference" not in stage.method:
        return replace(stage, method={**stage.method, **make_method_nodes(["reference"])})
    return stage
