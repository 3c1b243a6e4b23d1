"""Configuration of a fine-tuning set: the sources of its texts, and their layout in sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contamination.core.config import (
    Ranged,
    at_least,
    one_of,
    ranged_field,
    register_schema,
    runtime_field,
)
from contamination.core.errors import require
from contamination.data.config import with_escapes
from contamination.injection.config import InjectionStage, PoolStage
from contamination.injection.occurrences import ORDERED_TARGET

TEMPLATE, CHAT, TEXT = "template", "chat", "text"
PACKED, PADDED = "packed", "padded"


@dataclass(frozen=True)
class InstructionsConfig(Ranged):
    """A set of clean prompts with their outputs."""

    template: str | None = None
    """A format string over `fields` that ends with the output field; null: use `messages`."""
    output_field: str = "output"
    """The field with the output, which the model learns."""
    messages: str | None = None
    """The column with a chat whose last message is the output (finetuning.format=chat)."""
    examples: int | None = ranged_field(None, at_least(1))
    """The maximum number of rows, drawn with injection.pool_seed; null: all."""
    on_error: str = runtime_field("stop")
    """What to do with a row that can't be used: stop, or skip (leave it out and count it)."""
    rows: dict[str, Any] = field(default_factory=dict)
    """A source of rows (a `_target_`)."""
    fields: dict[str, str] = field(default_factory=dict)
    """Field → a format string over a row."""
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    """Field → texts to replace, with their replacements."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.template is not None:
            object.__setattr__(self, "template", with_escapes(self.template))


@dataclass(frozen=True)
class FinetuningConfig(Ranged, node="finetuning"):
    """The format of the texts, and their layout in sequences."""

    format: str = ranged_field(TEMPLATE, one_of((TEMPLATE, CHAT, TEXT)))
    """template: texts are formatted by their template, and the output begins at the answer. chat:
    the tokenizer's chat template. text: no prompt; the whole text is output."""
    layout: str = ranged_field(PACKED, one_of((PACKED, PADDED)))
    """packed: several texts per sequence, which don't attend to each other. padded: one text per
    sequence."""
    sequence_tokens: int | None = ranged_field(None, at_least(8))
    """Tokens per sequence; null: those of `corpus_folder`, or injection.sequence_tokens."""
    end: bool = True
    """Whether each text ends with the tokenizer's end-of-text token, which the model learns; only
    for format=template."""
    drop_overlaps: bool = True
    """Whether to leave out clean rows that share text with a member or non-member."""


@dataclass(frozen=True)
class FinetuningStage(PoolStage):
    """The configuration of `injection.finetuning.run`.

    Its node `injection` determines the pool and its members. With the settings of a corpus, they
    are the same as in that corpus.
    """

    corpus_folder: str = runtime_field("")
    """A corpus whose members are used instead of those of `benchmark`."""
    instructions: dict[str, InstructionsConfig] = field(default_factory=dict)
    finetuning: FinetuningConfig = field(default_factory=FinetuningConfig)

    def __post_init__(self) -> None:
        common = sorted({*self.instructions} & {*self.benchmark})
        remedy = "a benchmark has the same name; give this set another name."
        require(not common, "instructions", ", ".join(common), remedy)
        sources = self.instructions or self.benchmark or self.corpus_folder
        remedy = "give it, benchmark or corpus_folder: there is nothing to train on."
        require(bool(sources), "instructions", {}, remedy)
        remedy = "a fine-tuning set has no shards: choose fixed, ladder, poisson or share."
        nodes = [self.occurrences, *(config.occurrences for config in self.benchmark.values())]
        targets = [node.get("_target_") for node in nodes if isinstance(node, Mapping)]
        require(ORDERED_TARGET not in targets, "occurrences", "ordered", remedy)

    def pool_stage(self) -> InjectionStage:
        """Returns an injection stage that draws the same pool and the same members."""
        return InjectionStage(
            runs=self.runs,
            seed=self.seed,
            name=self.name,
            benchmark=self.benchmark,
            occurrences=self.occurrences,
            tokenizer=self.tokenizer,
            injection=self.injection,
        )


register_schema("finetuning", FinetuningConfig)

PRETRAINING, FINETUNING, BOTH = "pretraining", "finetuning", "both"
NEITHER = "neither"
"""Of a clean twin, in which `members_in` changes nothing since there are no copies."""
STAGE_TITLES = {
    PRETRAINING: "pretraining",
    FINETUNING: "fine-tuning",
    BOTH: "both stages",
    NEITHER: "neither stage",
}
"""The stages as titles in reports."""
