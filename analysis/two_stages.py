"""Cells of two stages: a contaminated pretraining, then a fine-tuning (Ye et al. 2024, 3.1, 5.6).

Where the members were inserted is read from what each training saw, not from a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from core.errors import ArtifactError
from injection import PackedCorpus
from training import Checkpoint

PRETRAINING, FINETUNING, BOTH = "pretraining", "finetuning", "both"
STAGES = {(True, False): PRETRAINING, (False, True): FINETUNING, (True, True): BOTH}
"""Whether the first training, and the second, saw copies of members → where they were inserted."""

PLACES = {PRETRAINING: "pretraining", FINETUNING: "fine-tuning", BOTH: "both stages"}
"""In words."""


@dataclass(frozen=True)
class Second:
    """What makes a cell one of two stages.

    Attributes:
        first: the model that the fine-tuning started from.
        texts: the fine-tuning set.
    """

    first: Checkpoint
    texts: PackedCorpus

    def stage(self, model: Checkpoint) -> str:
        """Where the members were inserted.

        Raises:
            ArtifactError: nowhere.
        """
        seen = tuple(bool(len(own.exposures)) for own in (self.first, model))
        if seen not in STAGES:
            raise ArtifactError(
                f"cells.model is {model.artifact.path}: neither it nor the model that it was "
                f"fine-tuned from ({self.first.artifact.path}) saw a copy of a member. Give a cell "
                "whose members were inserted in one of the two stages."
            )
        return STAGES[seen]

    def check(self, model: Checkpoint, examples: pd.DataFrame) -> None:
        """Raise an ArtifactError where the model is not of this start and this set.

        Nor may the set hold copies of an example that is no member in the corpus (`examples`): it
        would be counted as one that no model saw.
        """
        for role, field, own in (
            ("model", "first", self.first.artifact),
            ("corpus", "finetuning", self.texts.artifact),
        ):
            if model.artifact.inputs.get(role) != own.digest:
                raise ArtifactError(
                    f"cells.{field} is {own.path}: the model {model.artifact.path} was not trained "
                    "from it. Give the folder that it was trained from."
                )

        own = self.texts.examples
        inserted = own.loc[own["occurrences"] > 0, "example_id"]
        members = examples.loc[examples["member"].astype(bool), "example_id"]
        if len(strays := inserted[~inserted.isin(members)]):
            raise ArtifactError(
                f"cells.finetuning is {self.texts.artifact.path}: it holds copies of "
                f"{strays.iloc[0]}, which is no member in cells.corpus. Give the corpus from which "
                "its members were taken."
            )

    @property
    def chosen(self) -> Mapping[str, Any]:
        """What was chosen about the first training and about the set, by node."""
        first, texts = self.first.config, self.texts.config
        return {
            "first": {name: first.get(name) for name in ("training", "deepspeed")},
            "finetuning": texts.get("finetuning"),
            "instructions": texts.get("instructions"),
            "copies": texts.get("occurrences"),
        }

    def occurrences(self, examples: pd.DataFrame, stage: str) -> pd.DataFrame:
        """The corpus's examples; of members in fine-tuning alone with their copies in its set."""
        if stage != FINETUNING:
            return examples
        own = self.texts.examples.set_index("example_id")["occurrences"]
        counts = own.reindex(examples["example_id"], fill_value=0)
        return examples.assign(occurrences=counts.to_numpy())
