"""Experiment cells: their facts, their examples and the examples' scores, read and checked."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from contamination.analysis.conditions import (
    SWAPPED,
    TwoStageTraining,
    chosen_fields,
    distinguishing_suffixes,
    recipe_digest,
)
from contamination.analysis.config import CellPaths
from contamination.analysis.factors import FACTORS
from contamination.core.distinct_names import distinctly_named
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.core.integrity import errors_naming_folders
from contamination.detection.config import WHOLE
from contamination.detection.flags import count_flags
from contamination.detection.scores import Scores, open_scores, scores_origin
from contamination.injection.contamination_table import CONTAMINATION_COLUMN, merge_flags
from contamination.injection.corpus import PackedCorpus, open_corpus
from contamination.training.trained_model import Checkpoint, open_trained

CLEAN = "clean"
CONTAMINATED = "contaminated"


class SharedSettings(NamedTuple):
    """What the conditions of a series share."""

    recipe: str
    """`conditions.recipe_digest` without the factor."""
    swapped: bool


Series = Mapping[tuple[str, str], SharedSettings]
"""(condition, factor's column) → what its series shares."""


@dataclass(frozen=True)
class Cell:
    """One cell, read and checked.

    `scores[checkpoint]` has one row per example, in the order of `examples`, and one column per
    (method, variant).
    """

    name: str
    condition: str
    """The name without the seed: cells of one condition differ only in their seeds."""
    model: str
    learning_rate: float
    budget_tokens: int
    example_max_tokens: int | None
    """Longest example in tokens; None: whatever fits in a sequence."""
    last_tokens: int | None
    """The copies are within this many last tokens of the corpus; None: no such limit."""
    parameters: int | None
    """Number of weights of the model; None: its folder does not record it."""
    swapped: bool
    """Whether members and non-members have changed places."""
    mean_occurrences: float | None
    """Copies in the corpus of a member, on average: over the members of the condition's cells once
    these are known (`name_apart`). None: there are no members."""
    stage: str | None
    """Of a cell of two stages, where the members were inserted (`conditions.STAGES`)."""
    scope: str
    """Which part of the examples was scored."""
    epochs: int
    """How often the last training went through its corpus."""
    seed: int
    recipe: str
    """`conditions.recipe_digest`: all that was chosen, except seeds and `swapped`."""
    chosen: Mapping[str, Any]
    """`conditions.chosen_fields`: the same as fields."""
    series: Mapping[str, str]
    """For the column of each of `factors.FACTORS` the recipe without it."""
    digests: Mapping[str, str]
    examples: pd.DataFrame
    """The examples that are ranked; `flags` counts the others. The column `contamination` names the
    corpora that share text with an example apart from its copies (`contamination_table`)."""
    scores: Mapping[str, pd.DataFrame]
    defaults: Collection[tuple[str, str]]
    """The (method, variant) that have the method's own hyperparameters."""
    flags: Mapping[str, pd.DataFrame]
    """Checkpoint → `detection.flags.count_flags` of its scores."""

    @property
    def inputs(self) -> dict[str, str]:
        """The artefacts' digests by name, after which a report's folder is named."""
        return {f"{self.name}/{artefact}": digest for artefact, digest in self.digests.items()}

    @cached_property
    def membership_digest(self) -> str:
        """A hash of the examples and of who is a member: equal where cells share them."""
        columns = [self.examples[name].tolist() for name in ("example_id", "text", "member")]
        return hashlib.sha256(json.dumps(list(zip(*columns, strict=True))).encode()).hexdigest()


def open_cell(paths: CellPaths) -> Cell:
    """Reads a cell through its artefacts' owners."""
    with errors_naming_folders(*paths.artifact_folders):
        second = None
        if paths.first is not None and paths.finetuning is not None:
            first = open_trained("cells.first", paths.first)
            second = TwoStageTraining(first, open_corpus(paths.finetuning))
        scores = open_scores(paths.clean), open_scores(paths.contaminated)
        scope = _common_scope(*scores)
        model = open_trained("cells.model", paths.model)
        return make_cell(open_corpus(paths.corpus), model, *scores, second=second, scope=scope)


def make_cell(
    corpus: PackedCorpus,
    model: Checkpoint,
    clean: Scores,
    contaminated: Scores,
    *,
    second: TwoStageTraining | None = None,
    scope: str = WHOLE,
) -> Cell:
    """Joins the four artefacts; every example needs every score.

    Args:
        corpus: the contaminated corpus.
        model: the model that was trained last.
        clean: the scores of the model before any contamination.
        contaminated: the model's scores.
        second: what came before its last training, where that was a second stage.
        scope: which part of the examples was scored.

    Raises:
        ArtifactError: scores of another model than the one they should be of.
        DataError: an example without a finite score.
    """
    _check_scored_models(model, clean, contaminated)
    if second is not None:
        second.check_provenance(model, corpus.examples)
    injection, seed = corpus.config["injection"], int(corpus.config["seed"])
    model_name = str(model.config["model"]["name"])
    learning_rate = float(model.config["training"]["learning_rate"])
    swapped = bool(injection.get(SWAPPED.rpartition(".")[2], False))
    last_tokens = injection.get("last_tokens")
    condition = f"{model_name}-lr{learning_rate:g}-tokens{injection['budget_tokens']}"
    condition += f"-last{last_tokens}" * (last_tokens is not None) + "-swapped" * swapped
    stage = None if second is None else second.inserted_stage(model, corpus.examples)
    epochs = int(model.config["training"].get("epochs", 1))
    condition += f"-{stage}-epochs{epochs}" * (stage is not None)
    condition += f"-{scope}" * (stage is not None or scope != WHOLE)
    first = second.first if second else model
    start = {**model.config["model"], "start": first.artifact.inputs.get("model")}
    more_nodes: dict[str, Any] = {**second.chosen_nodes, "stage": stage} if second else {}
    more_nodes |= {} if scope == WHOLE else {"scope": scope}
    configs = corpus.config, {**model.config, "model": start}, more_nodes
    tables = {CLEAN: clean, CONTAMINATED: contaminated}
    artifacts_by_name: dict[str, Any] = {"corpus": corpus, "model": model, **tables}
    artifacts_by_name |= {"first": second.first, "finetuning": second.texts} if second else {}
    drawn_examples = _with_contamination_flags(corpus.examples, second)
    if second is not None and stage is not None:
        drawn_examples = second.with_occurrences(drawn_examples, stage)
    examples = _ranked_examples(drawn_examples, [clean, contaminated])
    return Cell(
        name=f"{condition}-seed{seed}",
        condition=condition,
        model=model_name,
        learning_rate=learning_rate,
        budget_tokens=injection["budget_tokens"],
        example_max_tokens=injection.get("example_max_tokens"),
        last_tokens=last_tokens,
        parameters=model.artifact.counts.get("parameters"),
        swapped=swapped,
        mean_occurrences=_mean_occurrences(drawn_examples),
        stage=stage,
        scope=scope,
        epochs=epochs,
        seed=seed,
        recipe=recipe_digest(*configs),
        chosen=chosen_fields(*configs),
        series={f.column: recipe_digest(*configs, without_factor=f.column) for f in FACTORS},
        digests={name: artefact.artifact.digest for name, artefact in artifacts_by_name.items()},
        examples=examples,
        scores={name: _scores_by_method(table, examples) for name, table in tables.items()},
        defaults=_default_method_variants(contaminated.table),
        flags={name: count_flags(_last_step_rows(table.table)) for name, table in tables.items()},
    )


def name_apart(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the cells in order; cells with the same name get a part of their scores' digest.

    A condition's name gets its mean occurrences where it differs from others of that name in them
    alone, and where they differ in something else the fields that do
    (`conditions.distinguishing_suffixes`).

    Raises:
        ConfigError: a cell is there twice.
    """
    cells = _with_distinct_conditions(_with_mean_occurrences_of_recipe(cells))
    cells = sorted(cells, key=cell_sort_key)
    try:
        names = distinctly_named([c.name for c in cells], [_digest_suffix(c) for c in cells])
    except ValueError as error:
        commonest, times = Counter(c.name + _digest_suffix(c) for c in cells).most_common(1)[0]
        raise ConfigError(
            f"cells contains {commonest} {times} times: give each cell once."
        ) from error
    named = [replace(cell, name=name) for cell, name in zip(cells, names, strict=True)]
    return sorted(named, key=cell_sort_key)


def cell_sort_key(cell: Cell) -> tuple[Any, ...]:
    """Sort key of cells: by what varies, as numbers; the seed last."""
    longest_example_tokens = cell.example_max_tokens or 0
    numeric_settings = (
        cell.learning_rate,
        cell.last_tokens or 0,
        cell.budget_tokens,
        longest_example_tokens,
    )
    swap_and_occurrences = cell.swapped, cell.mean_occurrences or 0
    stage_settings = cell.stage or "", cell.scope, cell.epochs
    return (
        cell.model,
        *numeric_settings,
        *swap_and_occurrences,
        *stage_settings,
        cell.condition,
        cell.seed,
        cell.name,
    )


def series_settings(cells: Sequence[Cell]) -> Series:
    """Returns which conditions form a series along each factor: they agree in all else."""
    return {
        (cell.condition, column): SharedSettings(recipe, cell.swapped)
        for cell in cells
        for column, recipe in cell.series.items()
    }


def _with_distinct_conditions(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the cells in conditions that have one recipe and each seed once, for pooling."""
    by_name: dict[str, list[Cell]] = {}
    for cell in cells:
        by_name.setdefault(cell.condition, []).append(cell)
    suffixes = {name: _suffix_by_recipe(cells_of_name) for name, cells_of_name in by_name.items()}
    named = [_with_condition_name(c, c.condition + suffixes[c.condition][c.recipe]) for c in cells]
    seeds = Counter((cell.condition, cell.seed) for cell in named)
    twice = {condition for (condition, _), times in seeds.items() if times > 1}
    return [
        replace(c, condition=c.condition + _digest_suffix(c) * (c.condition in twice))
        for c in named
    ]


def _with_condition_name(cell: Cell, condition: str) -> Cell:
    """Returns the cell under another condition's name."""
    return replace(cell, condition=condition, name=f"{condition}-seed{cell.seed}")


def _suffix_by_recipe(cells: Sequence[Cell]) -> dict[str, str]:
    """Returns recipe → a suffix that distinguishes it from the others with the same name."""
    recipes = {cell.recipe: cell for cell in cells}
    if len(recipes) == 1:
        return dict.fromkeys(recipes, "")
    means = {recipe: cell.mean_occurrences or 0 for recipe, cell in recipes.items()}
    numbers = {recipe: f"-occurrences{mean:.3g}" for recipe, mean in means.items()}
    in_them_alone = len({cell.series["mean_occurrences"] for cell in cells}) == 1
    if in_them_alone and len(set(numbers.values())) == len(recipes):
        return numbers
    return distinguishing_suffixes({recipe: cell.chosen for recipe, cell in recipes.items()})


def _with_mean_occurrences_of_recipe(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the cells with the mean occurrences over cells that differ only in their seeds."""
    occurrences: dict[tuple[str, bool], list[float]] = {}
    for cell in cells:
        if cell.mean_occurrences is not None:
            occurrences.setdefault((cell.recipe, cell.swapped), []).append(cell.mean_occurrences)
    means = {recipe_and_swapped: fmean(means) for recipe_and_swapped, means in occurrences.items()}
    return [replace(c, mean_occurrences=means.get((c.recipe, c.swapped))) for c in cells]


def _mean_occurrences(examples: pd.DataFrame) -> float | None:
    members = examples[examples["member"].astype(bool)]
    return float(members["occurrences"].mean()) if len(members) else None


def _digest_suffix(cell: Cell) -> str:
    """Returns a suffix that distinguishes cells with the same facts."""
    return f"-{cell.digests[CONTAMINATED][:6]}"


def _check_scored_models(model: Checkpoint, clean: Scores, contaminated: Scores) -> None:
    """Raises an ArtifactError for scores of another model; a server's model is taken as given."""
    from contamination.detection.models.base import SERVED_SUFFIX

    scored_digest = _scored_model_digest(contaminated)
    if scored_digest != model.artifact.digest and not scored_digest.endswith(SERVED_SUFFIX):
        raise ArtifactError(
            f"cells.contaminated is {contaminated.artifact.path}: these are not scores of the "
            f"model {model.artifact.path}; give the scores of the model in that folder."
        )
    if _scored_model_digest(clean) in (scored_digest, model.artifact.digest):
        raise ArtifactError(
            f"cells.clean is {clean.artifact.path}: these are scores of the contaminated model "
            "itself; give the scores of the model that it was trained from."
        )


def _common_scope(clean: Scores, contaminated: Scores) -> str:
    """Returns which part of the examples was scored.

    Raises:
        ArtifactError: the clean model scored another part.
    """
    clean_scope, contaminated_scope = (
        str(scores_origin(s.artifact).settings.get("scope", WHOLE)) for s in (clean, contaminated)
    )
    if clean_scope != contaminated_scope:
        raise ArtifactError(
            f"cells.clean is {clean.artifact.path}: its detection.scope is {clean_scope!r}, and "
            f"that of cells.contaminated {contaminated_scope!r}. Give scores of the same part of "
            "the examples."
        )
    return clean_scope


def _scored_model_digest(scores: Scores) -> str:
    """Returns the digest of the scored model, whether or not it ran code of its own."""
    from contamination.detection.models.hf_model import CODE_SUFFIX

    return scores.artifact.inputs["target"].removesuffix(CODE_SUFFIX)


def _with_contamination_flags(
    examples: pd.DataFrame, second: TwoStageTraining | None
) -> pd.DataFrame:
    """The corpus's examples; of two stages with the flags of the fine-tuning set, too."""
    flags = examples.get(CONTAMINATION_COLUMN, pd.Series("", examples.index)).tolist()
    if second is not None and CONTAMINATION_COLUMN in second.texts.examples:
        flags_of_texts = second.texts.examples.set_index("example_id")[CONTAMINATION_COLUMN]
        further = flags_of_texts.reindex(examples["example_id"], fill_value="").tolist()
        flags = [merge_flags(*pair) for pair in zip(flags, further, strict=True)]
    return examples.assign(**{CONTAMINATION_COLUMN: flags})


def _ranked_examples(examples: pd.DataFrame, scores: Sequence[Scores]) -> pd.DataFrame:
    """Returns the examples that all tables rank."""
    unranked_ids = {name for s in scores for name in s.table["example_id"][~s.table["ranked"]]}
    return examples[~examples["example_id"].isin(unranked_ids)].reset_index(drop=True)


def _last_step_rows(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["checkpoint_step"] == table["checkpoint_step"].max()]


def _scores_by_method(scores: Scores, examples: pd.DataFrame) -> pd.DataFrame:
    """Examples × (method, variant), of the last training step that was scored."""
    folder = scores.artifact.path
    table = _last_step_rows(scores.table)
    key = ["example_id", "method", "variant"]
    twice = table[table.duplicated(key)]
    if len(twice):
        raise DataError(
            f"{folder}: {_describe_example_and_method(twice.iloc[0])} was scored twice: score it "
            "again."
        )
    pivoted = table.pivot(index="example_id", columns=["method", "variant"], values="score")
    wide: pd.DataFrame = pivoted.reindex(examples["example_id"]).sort_index(axis=1)
    missing = np.argwhere(~np.isfinite(wide.to_numpy(np.float64)))
    if len(missing):
        row, column = missing[0]
        place = _describe_example_and_method(
            {"example_id": wide.index[row], "method": wide.columns[column][0]}
        )
        raise DataError(
            f"{folder}: {place} has no finite score ({len(missing)} are missing or NaN): "
            "give the scores of this corpus's examples, or score them again."
        )
    return wide


def _default_method_variants(table: pd.DataFrame) -> frozenset[tuple[str, str]]:
    default_pairs = table.loc[table["default"], ["method", "variant"]].drop_duplicates()
    return frozenset(default_pairs.itertuples(index=False, name=None))


def _describe_example_and_method(row: Mapping[str, Any] | pd.Series[Any]) -> str:
    return f"example {row['example_id']}, method {row['method']},"
