"""Questions of a file: what each model answers, and which of them the ratio screen finds.

Shi et al. (2024, section 7.2) ask about what was to be forgotten, screen question and answer as one
text, and compare answers with the right ones by ROUGE-L's recall.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.inputs import AuditedModel, Models, naming
from contamination.audits.unlearning.quantities import ANSWERS, Quantity, quantity
from contamination.audits.unlearning.text_similarity import rouge_l
from contamination.core.errors import DataError
from contamination.data.config import ExamplesConfig
from contamination.data.examples import lines_digest, texts_of
from contamination.data.readers.rows import Row, Tally
from contamination.data.rows import raw_rows
from contamination.data.text import is_blank
from contamination.data.texts import Texts
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.tasks.accuracy import prompt_tokens
from contamination.detection.tasks.extraction import QUESTION, Target, written

FIELD = "audit.questions"


@dataclass(frozen=True)
class Questions:
    """Questions with their answers; `texts` are both together, in the same order."""

    questions: Sequence[str]
    answers: Sequence[str]
    texts: Texts

    @property
    def digest(self) -> str:
        """A hash of all that is asked, and of membership."""
        each = zip(self.questions, self.answers, self.texts, strict=True)
        rows = (json.dumps([q, a, t.example_id, t.label, t.benchmark]) for q, a, t in each)
        return lines_digest(rows)

    @property
    def rows(self) -> pd.DataFrame:
        """Each as a chunk and unit of its own."""
        rows = [(t.example_id, t.example_id, t.benchmark, t.label) for t in self.texts]
        columns = ["chunk", "text_id", "benchmark", "member"]
        return pd.DataFrame(rows, columns=columns).astype({"member": "boolean"})


def questions_at(path: str) -> Questions:
    """The rows of a file: `question`, `answer`, and perhaps `id`, `label` and `benchmark`.

    Raises:
        DataError: a row lacks one, or can't be used.
    """
    with naming(FIELD):
        rows = [*raw_rows(ExamplesConfig(path), Tally("stop", FIELD))]
        pairs = [_pair(row) for row in rows]
        joined = (
            row._replace(value={**row.value, "text": " ".join(pair)})
            for row, pair in zip(rows, pairs, strict=True)
        )
        source = f"{FIELD} is {path!r}"
        texts = texts_of(joined, Tally("stop", FIELD), source)
    return Questions([q for q, _ in pairs], [a for _, a in pairs], texts)


def answers(stage: AuditStage, models: Models, asked: Questions, seed: int) -> Quantity:
    """ROUGE-L's recall of each right answer in what greedy decoding writes, in as many tokens."""
    rows = asked.rows.rename(columns={"chunk": "unit"})
    tables = {m.name: rows.assign(value=_recalls(stage, m, asked)) for m in models}
    return quantity(ANSWERS, tables, seed)


def _recalls(stage: AuditStage, model: AuditedModel, asked: Questions) -> list[float]:
    loaded = LoadedModel(model.source, stage.detection)
    wrote = written(loaded, _targets(loaded, asked))
    texts = [loaded.tokenizer.decode(ids, skip_special_tokens=True) for ids in wrote]
    return [rouge_l(own, right).recall for own, right in zip(texts, asked.answers, strict=True)]


def _targets(loaded: LoadedModel, asked: Questions) -> list[Target]:
    """Each answer's tokens, behind those of its question."""
    before = loaded.tokenizer(list(asked.questions), verbose=False)["input_ids"]
    whole = loaded.tokenizer([text.text for text in asked.texts], verbose=False)["input_ids"]
    found, context = [], loaded.source.context
    for text, own, ids in zip(asked.texts, before, whole, strict=True):
        if context is not None and len(ids) > context:
            raise DataError(
                f"{FIELD}: {text.example_id!r} has {len(ids)} tokens with its answer, more than "
                f"the context of {loaded.source.path}, {context}. Shorten it, or leave it out."
            )
        prompt = max(1, prompt_tokens(own, [ids]))
        found.append(Target(text, None, QUESTION, ids[:prompt], ids[prompt:]))
    return found


def _pair(row: Row) -> tuple[str, str]:
    found = row.value.get("question"), row.value.get("answer")
    if not all(isinstance(one, str) and not is_blank(one) for one in found):
        raise DataError(
            f"{row.where}: {FIELD} needs a `question` and an `answer`, both text; its fields are "
            f"{', '.join(map(str, row.value)) or 'none'}."
        )
    return str(found[0]).strip(), str(found[1]).strip()
