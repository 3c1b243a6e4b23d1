"""Clean prompts with their outputs, from any source of rows."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.config import create
from core.errors import DataError, require
from core.seeds import derive
from injection.config import BenchmarkConfig
from injection.fields import check_formats, fill
from injection.finetuning.config import InstructionsConfig
from injection.finetuning.prompts import Prompted, before_output, output_start, wrong_messages
from injection.sources.reading import Row
from injection.sources.streamed import value_at
from injection.sources.tally import Tally, skips

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Instructions:
    """The distinct rows of one set, in the order in which they are drawn.

    `tally` decides on rows that turn out to be unusable later.
    """

    name: str
    texts: list[Prompted]
    tally: Tally
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of all that was read, in that order."""
        rows = [[t.example_id, t.text, t.output_start, t.messages] for t in self.texts]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def read_instructions(name: str, config: InstructionsConfig, seed: int) -> Instructions:
    """Read a set; `seed` draws its order.

    Raises:
        ConfigError: a template without an output, an unknown field, or a source that is not there.
        DataError: a row that can't be used, where `on_error` is stop; or no row at all.
    """
    node = f"instructions.{name}"
    tally = Tally(config.on_error, f"{node}.on_error")
    require(bool(config.rows), f"{node}.rows", config.rows, "give a source of rows (_target_).")
    rows = create(f"{node}.rows", config.rows).rows(tally)
    found: dict[str, Prompted] = {}
    used = 0
    for text in _texts(name, config, rows, tally):
        used += 1
        found.setdefault(text.example_id, text)
    if not found:
        why = skips(tally.skipped) or "it is empty"
        raise DataError(f"{node}: no row can be used ({why}). See conf/instructions/.")
    texts = sorted(found.values(), key=lambda text: text.example_id)
    order = np.random.default_rng(derive(seed, "instructions", name)).permutation(len(texts))
    counts = {"rows": used + sum(tally.skipped.values()), "duplicates": used - len(texts)}
    return Instructions(name, [texts[i] for i in order], tally, counts)


def _texts(
    name: str, config: InstructionsConfig, rows: Iterator[Row], tally: Tally
) -> Iterator[Prompted]:
    node, template = f"instructions.{name}", config.template
    one = (template is None) != (config.messages is None)
    remedy = "give a template or messages, and not both."
    require(one, f"{node}.template", template, remedy)
    if template is None:
        yield from _chats(name, str(config.messages), rows, tally)
        return
    before = before_output(f"{node}.template", template, config.output_field)
    own = BenchmarkConfig(template=template, answer_field=config.output_field)
    check_formats(name, own, config.fields, "instructions")
    for row in rows:
        fields = fill(row, config.fields, config.values, tally)
        if fields is not None:
            text = template.format(**fields)
            yield Prompted(_name(name, text), name, text, output_start(before, fields))


def _chats(name: str, column: str, rows: Iterator[Row], tally: Tally) -> Iterator[Prompted]:
    for row in rows:
        messages = value_at(row, column, tally)
        if messages is None:
            continue
        if wrong := wrong_messages(messages):
            tally.bad("no chat", row.where, wrong)
            continue
        said = [_plain(message) for message in messages]
        yield Prompted(_name(name, json.dumps(said)), name, "", 0, said)


def _plain(message: Mapping[str, Any]) -> dict[str, str]:
    return {"role": str(message["role"]), "content": str(message["content"])}


def _name(name: str, text: str) -> str:
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
