"""Did these questions leak into this model? A verdict over the set, with its error rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.core.config import Range, at_least, ranged_field, runtime_field
from contamination.core.errors import ConfigError, require
from contamination.data.config import ExamplesConfig
from contamination.detection.config import ScoredModelConfig

if TYPE_CHECKING:
    import pandas as pd

    from contamination.data.texts import Texts

SCORES = "scores.parquet"
REVISION = 4
"""Of what stored results mean: 2 compares clusters as units; 3 has three tests of the texts; 4 has
effects of clusters, and needs a seed drawn at random to call a draw one."""
LEVEL = Range(lambda value: 0 < value <= 0.5, "give a level such as 0.05.")


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
    limit: int | None = runtime_field(None, at_least(1))
    """Only the first rows of each side, so many; null: all."""
    models: dict[str, Any] | None = runtime_field(None)
    """Several models by name: paths, or mappings of `model`'s fields; null: `model` alone."""
    alpha: float = ranged_field(0.05, LEVEL)
    """The level of the tests: the most false alarms, as a share."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads the questions and what they are compared with.

        Raises:
            UserError: a text or a model cannot be used, or there are two comparisons.
        """
        import pandas as pd
        import pyarrow as pa

        from contamination.audits.benchmark import inputs
        from contamination.audits.benchmark.origin import is_drawn
        from contamination.audits.benchmark.report import report
        from contamination.audits.benchmark.verdict import (
            REFERENCE,
            audit_texts,
            has_both_sides,
            near_copies,
            order_texts,
        )
        from contamination.core.table_files import write_parquet
        from contamination.data.examples import examples_digest, lines_digest
        from contamination.detection.models import open_model
        from contamination.detection.scores import open_scores

        nodes = self._model_nodes(stage)
        texts, control = self._texts()  # before the models, which take longer to open
        texts, notes = inputs.without_empty_texts(texts, control)
        drawn = is_drawn(self.questions, self.fresh or self.versions)
        similar = near_copies(texts, control, drawn)
        handles = {name: open_model(f, node, stage.runs) for name, (f, node) in nodes.items()}
        first = next(iter(handles.values()))
        if control == inputs.ORDER:
            texts, unused = order_texts(texts, first.tokenizer(), first.context, stage.seed)
            notes += unused
        stage = _with_reference(stage, control)
        stages = {name: replace(stage, model=node) for name, (_, node) in nodes.items()}
        if has_reference := stage.reference.given is not None:
            stages[REFERENCE] = _stage_of_reference(stage)
        digests = {f"model {name}": handle.digest for name, handle in handles.items()}
        digests |= {"notes": lines_digest(notes)} if notes else {}
        labels = (f"{t.example_id} {t.label} {t.benchmark} {t.cluster}" for t in texts)
        digests |= {"texts": examples_digest(texts), "labels": lines_digest(sorted(labels))}
        if has_both_sides(texts):
            for name, scoring in stages.items():
                folder = scoring.scores_folder(texts, control)
                digests[f"scores of {name}"] = folder.name.rpartition("-")[2]

        def score(texts: Texts, name: str) -> pd.DataFrame:
            return open_scores(stages[name].score_texts(texts, control).path).table

        def conduct(folder: Path) -> AuditResult:
            tables = {}

            def score_and_keep(texts: Texts, name: str) -> pd.DataFrame:
                tables[name] = score(texts, name)
                return tables[name]

            findings = audit_texts(
                texts, [*nodes], score_and_keep, control, stage.seed, self.alpha,
                reference=has_reference, drawn=drawn, similar=similar, notes=notes,
            )  # fmt: skip
            if tables:
                rows = pd.concat([t.assign(model=name) for name, t in tables.items()])
                write_parquet(folder / SCORES, pa.Table.from_pandas(rows, preserve_index=False))
            facts = {name: handle.path for name, handle in handles.items()}
            facts |= {"questions": str(self.questions), control: str(self._control_path())}
            unit = "shards" if control == inputs.ORDER else "questions"
            counts = {unit: sum(bool(text.label) for text in texts)}
            return AuditResult(report(findings, facts), counts, [SCORES] if tables else [])

        return PreparedAudit(
            slug=first.slug,
            inputs=digests,
            conduct=conduct,
            settings={"method": stage.method, "detection": stage.detection.pass_settings,
                      "control": control, "drawn": drawn, "revision": REVISION},
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

    def _texts(self) -> tuple[Texts, str]:
        """Returns the texts, labelled except those to shuffle, and the kind of comparison."""
        from contamination.audits.benchmark import inputs

        chosen = [
            comparison for comparison, value in
            (("fresh", self.fresh), ("versions", self.versions), ("order", self.order or None))
            if value is not None
        ]  # fmt: skip
        remedy = "choose one comparison: fresh, versions or order."
        require(len(chosen) <= 1, "audit", " and ".join(chosen), remedy)
        examples = ExamplesConfig(
            template=self.template,
            columns=self.columns,
            separator=self.separator,
            limit=self.limit,
        )
        questions = inputs.read_texts("audit.questions", self.questions, examples)
        if self.versions is not None:
            versions = inputs.read_texts("audit.versions", self.versions, examples)
            return inputs.questions_and_versions(questions, versions), inputs.VERSIONS
        if self.order:
            return questions, inputs.ORDER
        if self.fresh is not None:
            fresh = inputs.read_texts("audit.fresh", self.fresh, examples)
            return inputs.questions_and_fresh(questions, fresh), inputs.FRESH
        return inputs.questions_alone(questions), inputs.FRESH


def _with_reference(stage: AuditStage, control: str) -> AuditStage:
    """Returns the stage with the methods of the comparison.

    A reference model that is given is used, and the order test reads the loss alone, because a
    shuffled text has the same tokens.
    """
    from contamination.audits.benchmark import inputs
    from contamination.detection.api import make_method_nodes

    if control == inputs.ORDER:
        return replace(stage, method=make_method_nodes(["loss"]))
    if stage.reference.given is not None and "reference" not in stage.method:
        return replace(stage, method={**stage.method, **make_method_nodes(["reference"])})
    return stage


def _stage_of_reference(stage: AuditStage) -> AuditStage:
    """Returns the stage that scores by the reference, with the methods that need no other model."""
    from contamination.detection.api import make_method_nodes

    nodes = {
        field.name: getattr(stage.reference, field.name) for field in fields(ScoredModelConfig)
    }
    methods = {name: node for name, node in stage.method.items() if name != "reference"}
    methods = methods or make_method_nodes(["loss"])
    return replace(stage, model=ScoredModelConfig(**nodes), method=methods)
