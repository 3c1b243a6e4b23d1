"""Reads the sets of cells, and scores the texts of the tests that detection has not scored yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Any

import numpy as np
import pandas as pd

from contamination.analysis.cells import CLEAN, CONTAMINATED
from contamination.audits.base import AuditStage
from contamination.audits.cells import AuditedCell
from contamination.audits.set_tests.dyepack import most_frequent_answer
from contamination.audits.set_tests.sets import (
    Backdoors,
    ScoredExamples,
    ScoredOrders,
    ScoredSet,
    SetName,
)
from contamination.audits.set_tests.version_rank import ScoredVersions
from contamination.core.artifacts import open_artifact
from contamination.core.errors import ArtifactError
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import Scores
from contamination.data.examples import make_text
from contamination.data.texts import Text, Texts
from contamination.detection.api import make_method_nodes
from contamination.detection.config import OUTPUT, ScoredModelConfig
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models import open_model
from contamination.detection.models.hf_model import CODE_SUFFIX
from contamination.detection.scores import KIND as SCORES
from contamination.detection.scores import open_scores
from contamination.detection.tasks.context_drop import context_drops
from contamination.injection.backdoors import backdoors_config, read_backdoors
from contamination.injection.corpus import PackedCorpus
from contamination.injection.ordering import ORDER_FILE, read_order
from contamination.injection.versions import read_versions, versions_config

ORDERS = 20
"""Random orders of each shard, beside the published one."""
ALL = "backdoors"
"""The benchmark of the set that consists of a corpus's backdoors."""
ScoreOf = Mapping[str, float]
"""A text's score by its id."""


@dataclass(frozen=True)
class Ingredients:
    """What a corpus was given for the tests; a table without rows: nothing.

    Attributes:
        versions: see `injection.versions.read_versions`.
        orders: see `injection.ordering.read_order`.
        backdoors: see `injection.backdoors.read_backdoors`, and occurrences, the copies of the
            examples that have the backdoor.
        separator: what stands between the examples of a shard.
    """

    versions: pd.DataFrame
    orders: pd.DataFrame
    backdoors: pd.DataFrame
    separator: str


def read_ingredients(corpus: PackedCorpus) -> Ingredients:
    """Returns what the corpus was given for the tests."""
    has_versions = versions_config(corpus).enabled
    has_order = ORDER_FILE in corpus.artifact.files
    backdoors = pd.DataFrame()
    if backdoors_config(corpus).enabled:
        members = corpus.examples[corpus.examples["member"].astype(bool)]
        dose = round(float(members["occurrences"].mean()))
        backdoors = read_backdoors(corpus).assign(occurrences=dose)
    return Ingredients(
        read_versions(corpus) if has_versions else pd.DataFrame(),
        read_order(corpus) if has_order else pd.DataFrame(),
        backdoors,
        str(corpus.config["injection"]["separator"]),
    )


@dataclass(frozen=True)
class Checkpoint:
    """A model of a cell: before or after the contaminated training.

    Attributes:
        saw_it: whether it is the model after it.
        model: where it is.
        scores: its stored scores of the examples, with columns (method, variant).
    """

    saw_it: bool
    model: ScoredModelConfig
    scores: pd.DataFrame


def checkpoints(cell: AuditedCell, runs: str) -> tuple[Checkpoint, Checkpoint]:
    """Returns a cell's models, after and before the contaminated training.

    Raises:
        ArtifactError: the model of the stored clean scores is not where they say.
    """
    recorded = open_artifact(cell.paths.clean, SCORES)
    path = recorded.config()["model"].get("path")
    before = ScoredModelConfig(path=None if path is None else str(path))
    expected = recorded.inputs["target"].removesuffix(CODE_SUFFIX)
    if path is None or open_model("model", before, runs).digest != expected:
        raise ArtifactError(
            f"audit.cells: {cell.paths.clean} has scores of the model {path}, which is not there "
            "any more or has changed. Score that model again (the same sweep)."
        )
    defaults = [key for key in cell.cell.scores[CONTAMINATED] if key in cell.cell.defaults]
    common = [key for key in defaults if key in cell.cell.scores[CLEAN]]
    tables = [cell.cell.scores[name][common] for name in (CONTAMINATED, CLEAN)]
    after = ScoredModelConfig(path=cell.paths.model)
    return Checkpoint(True, after, tables[0]), Checkpoint(False, before, tables[1])


def read_sets(
    stage: AuditStage,
    cell: AuditedCell,
    version_method: str,
    context: bool,
    ingredients: Ingredients | None = None,
    known_drops: dict[Any, Scores] | None = None,
) -> list[ScoredSet]:
    """Returns a cell's sets under both of its models, with all scores that the tests need.

    Args:
        stage: of the audit, which scores texts.
        cell: the cell.
        version_method: the method that scores versions.
        context: whether the models are run for CoDeC.
        ingredients: what the corpus was given for the tests; None: as it recorded.
        known_drops: CoDeC's drops under models that cells share, which are added to it.

    Raises:
        UserError: a model can't be run, or a text can't be scored.
    """
    ingredients = ingredients or read_ingredients(cell.corpus)
    known_drops = {} if known_drops is None else known_drops
    reader = _CellReader(stage, cell, version_method, context, ingredients, known_drops)
    return [
        scored for model in checkpoints(cell, stage.runs) for scored in reader.sets_under(model)
    ]


class _CellReader:
    def __init__(
        self,
        stage: AuditStage,
        cell: AuditedCell,
        version_method: str,
        context: bool,
        ingredients: Ingredients,
        known_drops: dict[Any, Scores],
    ) -> None:
        self.stage, self.cell, self.context = stage, cell, context
        self.known_drops = known_drops
        self.version_method = version_method
        self.versions, self.backdoors = ingredients.versions, ingredients.backdoors
        self.orders = _with_random_orders(ingredients, stage.seed)
        self.examples = cell.cell.examples

    def sets_under(self, model: Checkpoint) -> Iterator[ScoredSet]:
        """Yields the sets of the cell under one of its models."""
        by_version = self._score(model, self.versions, self.version_method, "versions")
        by_order = self._score(model, self.orders, "loss", "orders of shards")
        drops = self._drops(model)
        doses = self.examples.loc[self.examples["member"].astype(bool), "occurrences"]
        for benchmark in self.examples["benchmark"].unique():
            of_benchmark = self.examples["benchmark"] == benchmark
            for dose in sorted(doses[of_benchmark & (doses > 0)].unique()):
                is_member = self.examples["occurrences"] == dose
                rows = of_benchmark & (is_member | ~self.examples["member"].astype(bool))
                places = np.flatnonzero(rows)
                yield ScoredSet(
                    self._name(model, str(benchmark), int(dose)),
                    ScoredExamples(
                        model.scores.to_numpy(np.float64)[places].T,
                        is_member.to_numpy(bool)[places],
                        drops[places] if len(drops) else drops,
                        tuple(self.examples["text"].iloc[places]),
                    ),
                    self._versions(benchmark, dose, by_version, members=True),
                    self._versions(benchmark, 0, by_version, members=False),
                    self._orders(benchmark, dose, by_order, members=True),
                    self._orders(benchmark, 0, by_order, members=False),
                )
        if len(self.backdoors):
            yield from self._backdoor_sets(model)

    def _name(self, model: Checkpoint, benchmark: str, dose: int) -> SetName:
        cell = self.cell.cell
        return SetName(cell.name, cell.condition, benchmark, dose, cell.learning_rate, model.saw_it)

    def _score(self, model: Checkpoint, table: pd.DataFrame, method: str, what: str) -> ScoreOf:
        """Returns the scores of a table's column `text`, by the rows' numbers."""
        if table.empty:
            return {}
        rows = Texts.of(make_text(str(i), text, None, "") for i, text in table["text"].items())
        return self._score_texts(model, rows, method, what)

    def _score_texts(
        self, model: Checkpoint, texts: Texts, method: str, what: str, scope: str = "whole"
    ) -> ScoreOf:
        detection = replace(self.stage.detection, scope=scope)
        stage = replace(self.stage, method=make_method_nodes([method]), detection=detection)
        folder = stage.score_texts(texts, f"{what} of {self.cell.name}", model.model)
        table = open_scores(folder.path).table
        return dict(zip(table["example_id"], table["score"], strict=True))

    def _versions(
        self, benchmark: Any, dose: Any, scores: ScoreOf, *, members: bool
    ) -> ScoredVersions | None:
        table = self.versions
        if table.empty:
            return None
        chosen = (table["benchmark"] == benchmark) & (table["member"].astype(bool) == members)
        chosen &= (table["occurrences"] == dose) | (not members)
        rows = table[chosen]
        if rows.empty:
            return None
        item = np.unique(rows["example_id"], return_inverse=True)[1]
        values = np.array([scores[str(index)] for index in rows.index])
        return ScoredVersions(values, item, rows["injected"].to_numpy(bool))

    def _orders(
        self, benchmark: Any, dose: Any, scores: ScoreOf, *, members: bool
    ) -> ScoredOrders | None:
        table = self.orders
        if table.empty:
            return None
        chosen = (table["benchmark"] == benchmark) & (table["member"].astype(bool) == members)
        rows = table[chosen & ((table["occurrences"] == dose) | (not members))]
        if rows.empty:
            return None
        values = pd.Series({index: scores[str(index)] for index in rows.index})
        wide = rows.assign(value=values).pivot(index="shard", columns="order", values="value")
        per_shard = float(rows.groupby("shard")["examples"].first().mean())
        orders = wide.to_numpy(np.float64)
        return ScoredOrders(orders[:, 0], orders[:, 1:], per_shard)

    def _backdoor_sets(self, model: Checkpoint) -> Iterator[ScoredSet]:
        scores = self._score_texts(
            model, Texts.of(_option_texts(self.backdoors)), "loss", "answers to probes", OUTPUT
        )
        for dose, backdoors in self.backdoors.groupby("occurrences"):
            name = self._name(model, ALL, int(str(dose)))
            yield ScoredSet(name, backdoors=_answers(backdoors, scores))

    def _drops(self, model: Checkpoint) -> Scores:
        """Returns CoDeC's drop of each example after others of its benchmark and side."""
        if not self.context:
            return np.empty(0)
        rows = self.examples[["example_id", "text", "member", "benchmark"]]
        texts = Texts.of(
            make_text(name, text, None, f"{benchmark}, {'members' if member else 'held out'}")
            for name, text, member, benchmark in rows.itertuples(index=False)
        )
        handle = open_model("model", model.model, self.stage.runs)
        key = handle.digest, tuple((text.benchmark, text.sha256) for text in texts)
        if key not in self.known_drops:
            loaded = LoadedModel(handle, self.stage.detection)
            table = context_drops(texts, loaded, seed=self.stage.seed).texts
            drops = table["drop"].where(table["context"] > 0).to_numpy(np.float64)
            self.known_drops[key] = drops
        return self.known_drops[key]


def _with_random_orders(ingredients: Ingredients, seed: int) -> pd.DataFrame:
    """Returns one row per order of a shard of two or more examples; order 0 is the published one.

    Columns: benchmark, shard, member, examples (their number), occurrences, order, text.
    """
    if ingredients.orders.empty:
        return pd.DataFrame()
    rows = []
    for (benchmark, shard), examples in ingredients.orders.groupby(
        ["benchmark", "shard"], sort=False
    ):
        texts = examples.sort_values("position")["text"].tolist()
        if len(texts) < 2:
            continue
        rng = np.random.default_rng(derive_seed(seed, "orders", benchmark, shard))
        orders = [texts, *([texts[i] for i in rng.permutation(len(texts))] for _ in range(ORDERS))]
        about = {"benchmark": benchmark, "shard": shard, "examples": len(texts)}
        about |= {name: examples[name].iloc[0] for name in ("occurrences", "member")}
        rows += [
            {**about, "order": number, "text": ingredients.separator.join(permuted)}
            for number, permuted in enumerate(orders)
        ]
    return pd.DataFrame(rows)


def _option_texts(backdoors: pd.DataFrame) -> Iterator[Text]:
    """Yields each probe with each option; its output begins where the options differ.

    Of an option that begins with its letter ("A. bank") the letter alone is the output: that is the
    backdoor's target, and the words after it are another matter.
    """
    for row in backdoors.itertuples():
        for probe, texts in enumerate(row.probe_texts):
            start = min(len(commonprefix(list(texts))), min(map(len, texts)) - 1)
            for number, (option, text) in enumerate(zip(row.options, texts, strict=True)):
                is_letter = text[start:].startswith(f"{option}. ")
                answer = text[: start + len(option)] if is_letter else text
                name = f"{row.backdoor}/{probe}/{number}"
                yield make_text(name, answer, None, "", output_start=start)


def _answers(backdoors: pd.DataFrame, scores: ScoreOf) -> Backdoors:
    answers = []
    for row in backdoors.itertuples():
        by_option = [
            [scores[f"{row.backdoor}/{probe}/{number}"] for number in range(len(row.options))]
            for probe in range(len(row.probe_texts))
        ]
        answers.append(most_frequent_answer(np.array(by_option)))
    targets = [list(row.options).index(row.target) for row in backdoors.itertuples()]
    options = [len(row.options) for row in backdoors.itertuples()]
    return Backdoors(*(np.array(values, np.intp) for values in (answers, targets, options)))


def all_digests(cells: Sequence[AuditedCell]) -> dict[str, str]:
    """Returns the digests of everything that the cells consist of, by name."""
    return {name: digest for cell in cells for name, digest in cell.digests.items()}
