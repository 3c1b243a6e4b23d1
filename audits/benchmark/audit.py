"""Did these questions leak into this model? A verdict over the set, with its error rates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa

from contamination.audits.base import Audit, AuditResult, AuditStage, PreparedAudit
from contamination.audits.benchmark import inputs
from contamination.audits.benchmark.blind import cached_blind_tests
from contamination.audits.benchmark.comparison import (
    Comparison,
    by_benchmark,
    compare,
    counted,
    holm,
    too_few,
)
from contamination.audits.benchmark.config import FEWEST
from contamination.audits.benchmark.exchangeability import LEAST_P, RELABELLINGS
from contamination.audits.benchmark.origin import (
    check_near_copies,
    design_of,
    is_drawn,
    shared_clusters,
    shared_clusters_note,
    with_merged_clusters,
)
from contamination.audits.benchmark.report import BenchmarkFindings, report
from contamination.core.config import Range, at_least, ranged_field, runtime_field
from contamination.core.errors import ConfigError, require
from contamination.core.table_files import write_parquet
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest, lines_digest
from contamination.data.texts import Text, Texts
from contamination.detection.config import ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.scores import open_scores

log = logging.getLogger(__name__)
SCORES = "scores.parquet"
REVISION = 4
"""Of what stored results mean: 2 compares clusters as units; 3 has three tests of the texts; 4 has
effects of clusters, and needs a seed drawn at random to call a draw one."""
LEVEL = Range(lambda value: 0 < value <= 0.5, "give a level such as 0.05.")
REFERENCE = "(reference)"
"""The name by which `audit_texts` asks for the reference's scores."""
ScoreTable = Callable[[Texts, str], pd.DataFrame]
"""Scores texts by the model of a name; see `detection.scores.Scores.table`."""


def audit_texts(
    texts: Texts,
    models: Sequence[str],
    score: ScoreTable,
    control: str,
    seed: int,
    alpha: float,
    reference: bool = False,
    drawn: bool = False,
    similar: int | None = None,
    notes: Sequence[str] = (),
) -> BenchmarkFindings:
    """Audits labelled texts: questions have label 1, what they are compared with has label 0.

    Args:
        texts: the texts.
        models: the names of the models.
        score: scores texts by one of them, or by `REFERENCE`.
        control: the kind of comparison; see `inputs`.
        seed: of the tests' relabellings.
        alpha: the level of the tests.
        reference: whether there is a model that has not seen the questions.
        drawn: whether it was drawn at random which texts are questions; see `origin.is_drawn`.
        similar: the number of near-copies, if `near_copies` has counted them; None: counts them.
        notes: warnings about the texts, for the report.

    Raises:
        ConfigError: the level is too small, or two models are one, of which one may be the
            reference.
        DataError: texts are near-copies of questions, or a score is missing.
    """
    if similar is None:
        similar = near_copies(texts, control, drawn)
    if control == inputs.FRESH and (shared := shared_clusters(texts)):
        notes = [*notes, shared_clusters_note(shared)]
    for note in notes:
        log.warning(note)
    groups = {
        name: with_merged_clusters(group)
        for name, group in by_benchmark(texts).items()
        if any(group.column("label").to_pylist())
    }
    both = [name for name, group in groups.items() if _both_sides(group)]
    obstacles = {name: too_few(design_of(groups[name])) for name in both}
    usable = [name for name in both if not obstacles[name]]
    level = _level_of_each(alpha, len(models) * len(usable))
    blind = None if control == inputs.ORDER else cached_blind_tests(seed)
    known = score(texts, REFERENCE) if reference and usable else None
    tables = {model: score(texts, model) for model in models} if usable else {}
    _check_distinct(tables | ({} if known is None else {REFERENCE: known}))
    comparisons = [
        compare(
            name, model, group, _rows_of(group, tables[model]), seed, level, blind,
            None if known is None else _rows_of(group, known),
        )
        if name in usable
        else Comparison(
            name, model, *design_of(group).sizes,
            obstacles.get(name) or _nothing_to_compare(name, texts, control),
        )
        for model in models
        for name, group in groups.items()
    ]  # fmt: skip
    if control == inputs.ORDER:
        comparisons = [*map(_with_number_of_shards, comparisons)]
    unused = sum(t.benchmark not in groups for t in texts)
    return BenchmarkFindings(
        comparisons, holm(comparisons), control, alpha, drawn, unused, similar, notes
    )


def _with_number_of_shards(comparison: Comparison) -> Comparison:
    """Returns the comparison of orders, which names shards if they are too few."""
    if comparison.test is not None or comparison.questions >= FEWEST:
        return comparison
    return replace(
        comparison,
        obstacle=f"{counted(comparison.questions, 'shard')} of questions are too few: the order "
        f"test needs {FEWEST}, so {2 * FEWEST} questions of which neighbours fit into the model's "
        "context together",
    )


def near_copies(texts: Texts, control: str, drawn: bool) -> int:
    """Returns how many fresh questions are near-copies of questions that were not drawn by lot.

    Raises:
        DataError: too many are; see `origin.check_near_copies`.
    """
    return check_near_copies(texts) if control == inputs.FRESH and not drawn else 0


def _both_sides(texts: Texts) -> bool:
    return {*texts.column("label").to_pylist()} == {True, False}


def _rows_of(texts: Texts, scores: pd.DataFrame) -> pd.DataFrame:
    return scores[scores["example_id"].isin(texts.column("example_id").to_pylist())]


def _level_of_each(alpha: float, tests: int) -> float:
    """Returns the level that the correction leaves to the smallest of several p-values."""
    least = max(1, tests) * LEAST_P
    remedy = f"{tests} tests of {RELABELLINGS:,} relabellings can reach {least:g} at least."
    require(alpha >= least, "audit.alpha", alpha, f"give {least:g} or more: {remedy}")
    return alpha / max(1, tests)


def _check_distinct(tables: Mapping[str, pd.DataFrame]) -> None:
    """Checks that no two models give all texts the same scores, as one model by two names does."""
    names: dict[bytes, str] = {}
    common = [set(table["method"]) for table in tables.values()]
    for name, table in tables.items():
        rows = table[table["method"].isin(set.intersection(*common))]
        rows = rows.sort_values(["method", "variant", "example_id"])
        if rows["score"].nunique() < 2:
            continue
        first = names.setdefault(rows["score"].to_numpy().tobytes(), name)
        remedy = "it must be a model that has not seen the questions. Give another, or none."
        alike = f"a model that scores like {first}"
        require(first == name or name != REFERENCE, "reference.path", alike, remedy)
        remedy = "one model by two names would count twice. Leave one of them out."
        require(first == name, "audit.models", f"{first} and {name}, which score alike", remedy)


def _nothing_to_compare(benchmark: str, texts: Texts, control: str) -> str:
    """Returns why a benchmark has questions alone."""
    of_others = {t.benchmark for t in texts if not t.label}
    if not of_others:
        return f"there are no {control} to compare the questions with"
    if of_others == {""}:
        return f"the {control} name no benchmark (give them the column `benchmark`)"
    name = repr(benchmark) if benchmark else "the questions that name no benchmark"
    if benchmark.casefold() in (other.casefold() for other in of_others):
        return f"the {control} write the benchmark {name} in another case; write both alike"
    return f"there are no {control} of {name}, only of {', '.join(sorted(map(repr, of_others)))}"


def order_texts(
    questions: Texts, tokenizer: Any, context: int | None, seed: int
) -> tuple[Texts, list[str]]:
    """Returns the published and random orders of the questions of each benchmark by itself.

    Also returns notes: how many questions are not used, and why.

    Raises:
        DataError: fewer than two questions of a benchmark fit into the model's context.
    """
    rows: list[Text] = []
    notes: list[str] = []
    for name, group in by_benchmark(questions).items():
        shards, note = inputs.published_and_random_orders(group, tokenizer, context, seed)
        notes += [f"{name}: {note}" if name else note] if note else []
        of_name = f" of {name}" if name else ""
        rows += [
            replace(
                shard, benchmark=name, example_id=f"{shard.example_id}{of_name}",
                cluster=f"{shard.cluster}{of_name}",
            )
            for shard in shards
        ]  # fmt: skip
    return Texts.of(rows), notes


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
        if _both_sides(texts):
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
