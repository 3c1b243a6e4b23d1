"""`python -m detection train-lt-mia`: trains LT-MIA on cells, and tests it on others.

A cell is a folder of scores of a contaminated model, with a reference, over a corpus whose members
are known. Only the paths in it are read: the passes are read from the runs folder, or run. The
split is by cell and by benchmark: no text of a held-out benchmark and no text of a held-out cell
is trained on, and the results are those of the three groups that this leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import OmegaConf

from contamination.core.artifacts import is_complete, open_artifact
from contamination.core.config import convert_config
from contamination.core.errors import ConfigError, DataError, near_names
from contamination.core.integrity import errors_naming_folders
from contamination.core.output_paths import check_output_file
from contamination.core.statistics.estimates import student_quantile
from contamination.core.statistics.metrics import AUROC, Metric, tpr_at_fpr
from contamination.core.stored_files import escape_interpolations
from contamination.core.tensors import tensors_digest
from contamination.core.user_files import atomic_output_file
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest, lines_digest
from contamination.data.texts import Texts
from contamination.detection.attack_file import (
    CellRecord,
    DataSheet,
    Network,
    Result,
    TrainedAttack,
    pack_prefixes,
    text_prefix,
)
from contamination.detection.attack_sheet import format_data_sheet
from contamination.detection.attack_training import Features, fit_network
from contamination.detection.config import DetectionConfig, ReferenceConfig, ScoredModelConfig
from contamination.detection.examples import open_examples
from contamination.detection.methods.base import Method
from contamination.detection.methods.ez_mia import EzMia
from contamination.detection.methods.loss import Loss
from contamination.detection.methods.lt_mia import LtMia, membership_logit, token_features
from contamination.detection.methods.min_k_plus_plus import MinKPlusPlus
from contamination.detection.methods.reference import Reference
from contamination.detection.methods.wbc import Wbc
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_collector import Collector
from contamination.detection.pass_store import StatsByText
from contamination.detection.passes import ORIGINAL, Pass
from contamination.detection.requirements import have_same_tokenizer
from contamination.detection.scores import example_seen_by, open_scores
from contamination.detection.tasks.config import TrainLtMiaStage
from contamination.training.trained_model import open_checkpoint

log = logging.getLogger(__name__)

CORPUS = "corpus"
LT_MIA, BASELINE = "lt_mia", "min_k_plus_plus"
OTHER_METHODS: Mapping[str, Method] = {
    BASELINE: MinKPlusPlus(),
    "loss": Loss(),
    "reference": Reference(),
    "wbc": Wbc(),
    "ez_mia": EzMia(),
}
METRICS: Sequence[Metric] = (AUROC, tpr_at_fpr(0.05))
CONFIDENCE = 0.95
TRAINED_ON, HELD_OUT = "trained on", "held out"


@dataclass(frozen=True)
class LabelledText:
    """A text of a cell: what the network reads of it, and other methods' scores."""

    sha256: str
    prefix: bytes
    benchmark: str
    member: bool
    features: Features
    scores: Mapping[str, float]


@dataclass(frozen=True)
class TrainingCell:
    """A cell and its labelled texts."""

    record: CellRecord
    texts: Sequence[LabelledText]

    @cached_property
    def membership(self) -> str:
        """A hash of who is a member: equal for cells of one corpus, which are not independent."""
        return lines_digest(sorted(f"{t.sha256} {t.member}" for t in self.texts))

    @property
    def benchmarks(self) -> set[str]:
        """The names of the benchmarks."""
        return {text.benchmark for text in self.texts}


def run(stage: TrainLtMiaStage) -> TrainedAttack:
    """Trains and tests the attack, and writes its file and its data sheet.

    Raises:
        ConfigError: an unknown benchmark, a folder that is given twice, or a cell without a
            reference of the same tokenizer.
        DataError: there are no labels, or no texts are left to train on or to test with.
        ArtifactError: a folder is unfinished or damaged.
    """
    check_output_file("out", stage.out)
    cells = [read_cell(path) for path in stage.scores]
    tests = [read_cell(path) for path in stage.held_out]
    _check_split(stage, cells, tests)
    chosen = [
        text for c in cells for text in c.texts if text.benchmark not in stage.held_out_benchmarks
    ]
    member = np.array([text.member for text in chosen])
    log.info("training on %s texts of %s cells", f"{len(chosen):,}", len(cells))
    network = fit_network([text.features for text in chosen], member, stage.fit, stage.seed)
    benchmarks = sorted({text.benchmark for text in chosen})
    hashes = {name: {t.sha256 for t in chosen if t.benchmark == name} for name in benchmarks}
    sheet = DataSheet(
        date=datetime.now(UTC).date().isoformat(),
        licence=stage.licence,
        seed=stage.seed,
        settings=asdict(stage.fit),
        cells=[cell.record for cell in cells],
        held_out_cells=[cell.record for cell in tests],
        benchmarks={name: lines_digest(sorted(texts)) for name, texts in hashes.items()},
        held_out_benchmarks=sorted(stage.held_out_benchmarks),
        text_prefixes=pack_prefixes(text.prefix for text in chosen),
        results=[*held_out_results(network, cells, tests, benchmarks)],
        limits=stage.limits,
    )
    attack = TrainedAttack(network, sheet)
    out = Path(stage.out).expanduser()
    attack.write(out)
    with atomic_output_file(out.with_suffix(".md")) as temporary:
        temporary.write_text(f"{format_data_sheet(attack)}\n", encoding="utf-8")
    return attack


def read_cell(path: str) -> TrainingCell:
    """Returns a cell; passes that are not stored are run.

    Raises:
        ConfigError: its model or its reference does not exist, or they are of two tokenizers.
        DataError: its texts or models have changed since they were scored, or have no labels.
        ArtifactError: the folder is unfinished or damaged.
    """
    artifact = open_scores(path).artifact
    with errors_naming_folders(artifact.path):
        stored = escape_interpolations(artifact.config())
        runs = str(stored["runs"])
        target = _stored_node(stored["model"], ScoredModelConfig)
        reference = _stored_node(stored["reference"], ReferenceConfig)
        settings = _stored_node(stored["detection"], DetectionConfig)
        source = _stored_node(stored["examples"], ExamplesConfig)
        seed = int(stored["seed"])
    if reference.given is None:
        raise ConfigError(
            f"scores: {path} has no reference. Score the cell with reference.path=DIR or, in a "
            "pipeline, reference.path=base and method=[reference]."
        )
    models: dict[str, ModelHandle] = {
        "target": open_model("model", target, runs),
        "reference": open_model("reference", reference, runs),
    }
    _check_members(path, source, target)
    examples = open_examples(source)
    _check_unchanged(path, artifact.inputs, models, examples_digest(examples))
    passes = Collector(Path(runs), models, examples, settings).collect(LtMia.passes)
    texts = [*_iter_labelled_texts(examples, passes, settings.min_scored_tokens)]
    if {text.member for text in texts} != {True, False}:
        raise DataError(f"scores: {path}: its texts are not members and non-members.")
    tensors = models["target"].tensors()
    record = CellRecord(
        models["target"].slug,
        seed,
        models["target"].digest,
        models["reference"].digest,
        artifact.inputs["examples"],
        tensors_digest(tensors) if tensors else "",
        sum(tensor.size for tensor in tensors),
    )
    return TrainingCell(record, texts)


def _stored_node(node: Any, schema: type[Any]) -> Any:
    """Returns a node of a stored configuration; nothing that comes with a model is executed."""
    config = convert_config(OmegaConf.create(node), schema)
    return (
        replace(config, trust_remote_code=False) if hasattr(config, "trust_remote_code") else config
    )


def _check_unchanged(
    path: str, inputs: Mapping[str, str], models: Mapping[str, ModelHandle], examples: str
) -> None:
    current = {**{role: model.digest for role, model in models.items()}, "examples": examples}
    for name, digest in current.items():
        if inputs.get(name) != digest:
            raise DataError(
                f"scores: {path}: its {name} changed since it was scored. Score the cell again."
            )
    if models["target"].digest == models["reference"].digest:
        raise ConfigError(
            f"scores: {path} is of the model that is its own reference. Give the scores of the "
            "contaminated model."
        )
    if not have_same_tokenizer(models["target"], models["reference"]):
        raise ConfigError(
            f"scores: {path}: its reference has another tokenizer, so tokens can't be compared. "
            "Score the cell with another reference."
        )


def _check_members(path: str, source: ExamplesConfig, target: ScoredModelConfig) -> None:
    """Raises a DataError if the texts are a corpus's, but not of one that was surely trained on.

    Corpora of other seeds have the same texts and other members, and share their scores.
    """
    corpus, model = Path(source.path).expanduser(), Path(str(target.path)).expanduser()
    if not is_complete(corpus):
        return
    if not is_complete(model):
        raise DataError(
            f"scores: {path}: its model {str(model)!r} is no model folder of a run, so it is "
            "unknown whether it was trained on the corpus. Score the run's folder, the one with "
            "manifest.json, instead of the folder `hf` in it."
        )
    if open_checkpoint(model).artifact.inputs.get("corpus") != open_artifact(corpus, CORPUS).digest:
        raise DataError(
            f"scores: {path}: the model was not trained on the corpus {source.path}, so its "
            "members are others. Give scores over the model's own corpus."
        )


def _iter_labelled_texts(
    examples: Texts, passes: Mapping[Pass, StatsByText], least_tokens: int
) -> Iterator[LabelledText]:
    """Yields the texts that have a label and are long enough to be ranked, by their hash.

    This is the order in which passes are stored, so that each part of them is read once.
    """
    for text in examples.take(examples.sorting_indices("sha256", "example_id")):
        example = example_seen_by(LtMia(), text, passes)
        if text.label is None or len(example.stats(ORIGINAL)) < least_tokens:
            continue
        scores = {name: method.score(example) for name, method in OTHER_METHODS.items()}
        features = token_features(example)
        prefix = text_prefix(text.text)
        yield LabelledText(text.sha256, prefix, text.benchmark, text.label, features, scores)


def _check_split(
    stage: TrainLtMiaStage, cells: Sequence[TrainingCell], tests: Sequence[TrainingCell]
) -> None:
    digests = [cell.record.model for cell in (*cells, *tests)]
    for cell in (*cells, *tests):
        if digests.count(cell.record.model) > 1:
            raise ConfigError(
                f"scores and held_out: the model {cell.record.name} is given twice. Give each cell "
                "once, to train on or to test with."
            )
    trained = set[str]().union(*(cell.benchmarks for cell in cells))
    tested = set[str]().union(*(cell.benchmarks for cell in tests))
    for name in stage.held_out_benchmarks:
        stage.require(
            name in trained | tested, "held_out_benchmarks", near_names(name, trained | tested)
        )
    if trained <= set(stage.held_out_benchmarks):
        raise ConfigError("held_out_benchmarks: no benchmark is left to train on. Give fewer.")
    if len({cell.membership for cell in tests}) < 2:
        raise DataError("held_out: all cells have the same members. Give cells of several seeds.")


def held_out_results(
    network: Network,
    cells: Sequence[TrainingCell],
    tests: Sequence[TrainingCell],
    benchmarks: Collection[str],
) -> Iterator[Result]:
    """Yields each method's results on what was held out: cells, benchmarks, or both.

    A value is the mean over draws of members of the mean over benchmarks; its interval is
    Student's over the draws. Cells with the same members are one draw.

    Args:
        network: the trained network.
        cells: the cells that it was trained on.
        tests: the cells that it was not trained on.
        benchmarks: the benchmarks that it was trained on.
    """
    table = pd.DataFrame([
        {
            "cells": cell_group,
            "benchmarks": TRAINED_ON if text.benchmark in benchmarks else HELD_OUT,
            "cell": cell.record.model,
            "draw": cell.membership,
            "benchmark": text.benchmark,
            "member": text.member,
            LT_MIA: network_score(network, text.features),
            **text.scores,
        }
        for cell_group, group in ((TRAINED_ON, cells), (HELD_OUT, tests))
        for cell in group
        for text in cell.texts
    ])  # fmt: skip
    for (cell_group, benchmark_group), rows in table.groupby(["cells", "benchmarks"]):
        if TRAINED_ON == cell_group == benchmark_group or rows["draw"].nunique() < 2:
            continue
        sizes = {
            "n_cells": int(rows["cell"].nunique()),
            "n_benchmarks": int(rows["benchmark"].nunique()),
            "members": int(rows["member"].sum()),
            "nonmembers": int((~rows["member"]).sum()),
        }
        for metric in METRICS:
            left_out = benchmarks_without(rows, metric)
            measured = rows[~rows["benchmark"].isin(left_out)]
            if measured["draw"].nunique() < 2:
                continue
            values = {
                name: values_by_draw(measured, name, metric) for name in (LT_MIA, *OTHER_METHODS)
            }
            for name, method_values in values.items():
                ends = student_interval(method_values)
                paired = student_interval(values[LT_MIA] - method_values)
                yield Result(
                    str(cell_group), str(benchmark_group), **sizes, method=name,
                    metric=metric.name, value=ends[0], low=ends[1], high=ends[2],
                    difference=paired[0], difference_low=paired[1], difference_high=paired[2],
                    left_out=left_out,
                )  # fmt: skip


def network_score(network: Network, features: Features) -> float:
    """Returns the network's log-odds of membership of one text."""
    return float(membership_logit(network.arrays, features, np.ones(len(features)), np))


def benchmarks_without(rows: pd.DataFrame, metric: Metric) -> list[str]:
    """Returns the benchmarks with too few members or non-members in a cell for the metric."""
    counts = rows.groupby(["benchmark", "cell"])["member"].agg(["sum", "size"])
    lacks = [
        bool(metric.needs(int(members), int(size - members)))
        for members, size in counts.itertuples(index=False)
    ]
    return sorted({str(name) for name, _ in counts.index[lacks]})


def values_by_draw(rows: pd.DataFrame, method: str, metric: Metric) -> NDArray[np.float64]:
    """Returns the metric of each draw of members: the mean over its cells and benchmarks."""
    values: dict[str, list[float]] = {}
    for (draw, _, _), group in rows.groupby(["draw", "cell", "benchmark"]):
        scores, member = group[method].to_numpy(), group["member"].to_numpy()
        values.setdefault(str(draw), []).append(metric.value(scores[member], scores[~member]))
    return np.array([np.mean(draw_values) for draw_values in values.values()])


def student_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Returns the mean of independent values, and the ends of Student's interval of it."""
    mean = float(values.mean())
    error = float(values.std()) / len(values) ** 0.5
    half_width = student_quantile(CONFIDENCE, len(values)) * error
    return mean, mean - half_width, mean + half_width
