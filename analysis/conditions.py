"""Which cells are replicates of one condition, and which conditions form a series.

A *recipe* is everything that was chosen about a cell except its random draws: two cells with one
recipe differ in seeds alone. It's a hash of the configs' scientific fields, so that cells are never
pooled because their names happen to agree.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from functools import cache
from typing import Any

import pandas as pd

from contamination.analysis.factors import BY_COLUMN
from contamination.core.config import is_part_of_name
from contamination.core.errors import ArtifactError
from contamination.injection.config import (
    BackdoorsConfig,
    InjectionConfig,
    LeakConfig,
    VersionsConfig,
)
from contamination.injection.corpus import PackedCorpus
from contamination.injection.finetuning.config import BOTH, FINETUNING, NEITHER, PRETRAINING
from contamination.training.config import ModelConfig, TrainingConfig
from contamination.training.trained_model import Checkpoint

CORPUS_NODES = (
    *("corpus", "benchmark", "occurrences", "rewording", "versions", "backdoors", "injection"),
    *("leak", "matcher", "tokenizer"),
)
MODEL_NODES = ("model", "training", "deepspeed")

CLASS = "._target_"
"""Ends a field that names a class, which is the same for all conditions of a series."""

DIGEST = re.compile("[0-9a-f]{64}")
LONGEST = 80
"""Most characters of the part of a condition's name that distinguishes it from others."""

SWAPPED = "injection.swap_members"
"""Tells a cell from its swapped replicate; kept out of every recipe."""


Nodes = Mapping[str, Any]


def recipe_digest(
    corpus: Nodes, model: Nodes, more_nodes: Nodes | None = None, *, without_factor: str = ""
) -> str:
    """A hash of both stages' resolved configs without seeds, paths and how they were run.

    Args:
        corpus: the injection stage's config.
        model: the training stage's config.
        more_nodes: what else was chosen, such as a second stage's.
        without_factor: the column of a factor to leave out; cells that agree are one series along
            it.
    """
    left_out = BY_COLUMN[without_factor].fields if without_factor else ()
    flat = chosen_fields(corpus, model, more_nodes)
    recipe_fields = {
        k: v for k, v in flat.items() if k.endswith(CLASS) or not k.startswith(left_out)
    }
    return hashlib.sha256(
        json.dumps(recipe_fields, sort_keys=True, default=str).encode()
    ).hexdigest()


def chosen_fields(corpus: Nodes, model: Nodes, more_nodes: Nodes | None = None) -> dict[str, Any]:
    """Returns the fields that make a `recipe_digest`, such as {"training.schedule": "cosine"}."""
    nodes = {node: corpus.get(node) for node in CORPUS_NODES}
    flat = _flatten_nodes(
        {**nodes, **{node: model.get(node) for node in MODEL_NODES}, **(more_nodes or {})}
    )
    return {
        k: v for k, v in flat.items() if not (k.startswith(SWAPPED) or _changes_no_result(k, v))
    }


def distinguishing_suffixes(recipes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns what distinguishes recipes, for names: "-schedule_cosine" or "-Poisson".

    Args:
        recipes: a recipe's hash → its `chosen_fields` fields; two or more.

    Returns:
        For each the fields that all of them have and not all alike, but for digests, such as that
        of the starting model; a piece of the hash where these do not distinguish all or are too
        many for a name.
    """
    first_recipe, *others_recipes = recipes.values()
    shared_fields = [
        name
        for name in sorted(first_recipe)
        if all(name in recipe_fields for recipe_fields in others_recipes)
    ]
    differing_fields = [
        name
        for name in shared_fields
        if any(recipe_fields[name] != first_recipe[name] for recipe_fields in others_recipes)
        and not any(DIGEST.fullmatch(str(recipe[name])) for recipe in recipes.values())
    ]
    name_of_recipe = {
        recipe_hash: "".join(_name_suffix(name, recipe_fields[name]) for name in differing_fields)
        for recipe_hash, recipe_fields in recipes.items()
    }
    if (
        len(set(name_of_recipe.values())) < len(recipes)
        or max(map(len, name_of_recipe.values())) > LONGEST
    ):
        return {recipe_hash: f"-{recipe_hash[:6]}" for recipe_hash in recipes}
    return name_of_recipe


def _name_suffix(name: str, value: Any) -> str:
    """A field in a name of files: its last word and its value, or a class's own name."""
    if name.endswith(CLASS):
        return f"-{str(value).rpartition('.')[2]}"
    field_name = name.rpartition(".")[2]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"-{field_name}{value if isinstance(value, int) else f'{value:.6g}'}"
    return f"-{field_name}_{re.sub(r'[^0-9A-Za-z_.]+', '_', str(value)).strip('_')}"


def rows_by_condition(pooled: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """The pooled rows of each condition, in their order."""
    return {str(name): rows for name, rows in pooled.groupby("condition", sort=False)}


def _flatten_nodes(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}; lists are values. Null means the same as a missing field."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            flat |= _flatten_nodes(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat


def _changes_no_result(key: str, value: Any) -> bool:
    """Returns whether a field is a seed, a path, or a way of running that changes no result.

    So does one that older configs lack, where it has its default.
    """
    if key.endswith(("_seed", ".path")):
        return True
    field = _config_field_by_name().get(key.removeprefix("first."))
    return field is not None and not is_part_of_name(field, value)


@cache
def _config_field_by_name() -> Mapping[str, Field[Any]]:
    schemas = {
        "injection": InjectionConfig,
        "versions": VersionsConfig,
        "backdoors": BackdoorsConfig,
        "leak": LeakConfig,
        "model": ModelConfig,
        "training": TrainingConfig,
    }
    return {
        f"{node}.{field.name}": field
        for node, schema in schemas.items()
        for field in fields(schema)
    }


STAGES = {
    (True, False): PRETRAINING, (False, True): FINETUNING, (True, True): BOTH,
    (False, False): NEITHER,
}  # fmt: skip
"""Whether the first training, and the second, saw copies of members → where they were inserted."""


@dataclass(frozen=True)
class TwoStageTraining:
    """What makes a cell one of two stages.

    Attributes:
        first: the model that the fine-tuning started from.
        texts: the fine-tuning set.
    """

    first: Checkpoint
    texts: PackedCorpus

    def inserted_stage(self, model: Checkpoint, examples: pd.DataFrame) -> str:
        """Where the members were inserted.

        Args:
            model: the fine-tuned model.
            examples: the corpus's examples.

        Raises:
            ArtifactError: the corpus has copies, and neither training saw one.
        """
        first_saw, last_saw = (bool(len(seen.exposures)) for seen in (self.first, model))
        stage = STAGES[first_saw, last_saw]
        if stage == NEITHER and examples["occurrences"].any():
            raise ArtifactError(
                f"cells.model is {model.artifact.path}: neither it nor the model that it was "
                f"fine-tuned from ({self.first.artifact.path}) saw a copy of a member. Give a cell "
                "whose members were inserted in one of the two stages, or whose corpus has no "
                "copies (occurrences.count=0)."
            )
        return stage

    def check_provenance(self, model: Checkpoint, examples: pd.DataFrame) -> None:
        """Raises an ArtifactError where the model is not of this start and this set.

        Nor may the set contain copies of an example that is no member in the corpus (`examples`):
        it would be counted as one that no model saw.
        """
        for role, field, artifact in (
            ("model", "first", self.first.artifact),
            ("corpus", "finetuning", self.texts.artifact),
        ):
            if model.artifact.inputs.get(role) != artifact.digest:
                raise ArtifactError(
                    f"cells.{field} is {artifact.path}: the model {model.artifact.path} was not "
                    "trained from it. Give the folder that it was trained from."
                )

        artifact = self.texts.examples
        inserted = artifact.loc[artifact["occurrences"] > 0, "example_id"]
        members = examples.loc[examples["member"].astype(bool), "example_id"]
        if len(strays := inserted[~inserted.isin(members)]):
            raise ArtifactError(
                f"cells.finetuning is {self.texts.artifact.path}: it contains copies of "
                f"{strays.iloc[0]}, which is no member in cells.corpus. Give the corpus from which "
                "its members were taken."
            )

    @property
    def chosen_nodes(self) -> Mapping[str, Any]:
        """What was chosen about the first training and about the set, by node."""
        first, texts = self.first.config, self.texts.config
        return {
            "first": {name: first.get(name) for name in ("training", "deepspeed")},
            "finetuning": texts.get("finetuning"),
            "instructions": texts.get("instructions"),
            "copies": texts.get("occurrences"),
        }

    def with_occurrences(self, examples: pd.DataFrame, stage: str) -> pd.DataFrame:
        """The corpus's examples; of members in fine-tuning alone with their copies in its set."""
        if stage != FINETUNING:
            return examples
        copies_by_id = self.texts.examples.set_index("example_id")["occurrences"]
        counts = copies_by_id.reindex(examples["example_id"], fill_value=0)
        return examples.assign(occurrences=counts.to_numpy())
