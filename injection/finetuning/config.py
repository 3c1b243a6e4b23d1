"""The configuration of a fine-tuning set: where its texts come from, and how they are laid out."""

from __future__ import annotations

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

TEMPLATE, CHAT, TEXT = "template", "chat", "text"
PACKED, PADDED = "packed", "padded"


@dataclass(frozen=True)
class InstructionsConfig(Ranged):
    """One clean set of prompts with their outputs."""

    template: str | None = None
    """Format string over `fields` that ends with the output's; null: `messages` are given."""
    output_field: str = "output"
    """The field that the model learns to write."""
    messages: str | None = None
    """Column with a chat, whose last message is the output (finetuning.format=chat)."""
    examples: int | None = ranged_field(None, at_least(1))
    """The most rows, drawn by injection.pool_seed; null: all."""
    on_error: str = runtime_field("stop")
    """What to do at a row that can't be used: stop, or skip (leave it out and count it)."""
    rows: dict[str, Any] = field(default_factory=dict)
    """A source of rows (a `_target_`)."""
    fields: dict[str, str] = field(default_factory=dict)
    """Formats over a row."""
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    """Replacements, by field."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.template is not None:
            object.__setattr__(self, "template", with_escapes(self.template))


@dataclass(frozen=True)
class FinetuningConfig(Ranged, node="finetuning"):
    """What the texts look like, and how they are laid out in sequences."""

    format: str = ranged_field(TEMPLATE, one_of((TEMPLATE, CHAT, TEXT)))
    """template: a text is what its template makes, and its output begins at the answer. chat: the
    tokenizer's own chat template. text: no prompt, all of the text is output."""
    layout: str = ranged_field(PACKED, one_of((PACKED, PADDED)))
    """packed: several texts a sequence, none of which sees another. padded: one text a sequence."""
    sequence_tokens: int | None = ranged_field(None, at_least(8))
    """Tokens of a sequence; null: injection.sequence_tokens, or those of `corpus_folder`."""
    end: bool = True
    """End each text with the tokenizer's end-of-text token, which the model learns to write; only
    with format=template."""
    drop_overlaps: bool = True
    """Leave out clean rows that share text with an example of the pool, member or non-member."""


@dataclass(frozen=True)
class FinetuningStage(PoolStage):
    """The configuration of `injection.finetuning.run`.

    Its node `injection` draws the pool and its members: as that of a corpus, for the same ones.
    """

    corpus_folder: str = runtime_field("")
    """A corpus whose members are trained on, instead of those of `benchmark`."""
    instructions: dict[str, InstructionsConfig] = field(default_factory=dict)
    finetuning: FinetuningConfig = field(default_factory=FinetuningConfig)

    def __post_init__(self) -> None:
        common = sorted({*self.instructions} & {*self.benchmark})
        remedy = "a benchmark has the same name; give this set another one."
        require(not common, "instructions", ", ".join(common), remedy)
        sources = self.instructions or self.benchmark or self.corpus_folder
        remedy = "give it, benchmark or corpus_folder: there is nothing to train on."
        require(bool(sources), "instructions", {}, remedy)

    def pool_stage(self) -> InjectionStage:
        """Return an injection stage that draws the same pool and the same members."""
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

PLACES = {PRETRAINING: "pretraining", FINETUNING: "fine-tuning", BOTH: "both stages"}
"""In words."""
