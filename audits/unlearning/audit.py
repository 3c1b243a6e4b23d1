"""The audit of unlearning: what a model still knows of the texts that it should have forgotten.

The ratio screen, completions and questions are those of Shi et al. (2024, section 7). The testbed
adds controls and a clean twin: a model that was trained on the same corpus without the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.base import Audit, AuditStage, PreparedAudit
from contamination.core.config import (
    POSITIVE,
    PROPER_FRACTION,
    Range,
    at_least,
    ranged_field,
    runtime_field,
)
from contamination.core.errors import near_names, require

CORPUS = "corpus"
WIDTH = Range(lambda value: value > 1, "give a number above 1.")


@dataclass(frozen=True)
class Unlearning(Audit):
    """How well models have unlearned texts (Shi et al. 2024); see conf/audit/unlearning.yaml."""

    kind: ClassVar[str] = "unlearning"
    needed: ClassVar[Sequence[str]] = ("original", "unlearned", "texts")

    original: Any = runtime_field(None)
    """The model before unlearning: a path, or a mapping of `ScoredModelConfig`'s fields."""
    unlearned: Any = runtime_field(None)
    """The model after unlearning; several as a list, or as a mapping of names to models."""
    clean: Any = runtime_field(None)
    """A twin of the original that was never trained on the texts; null: none."""
    texts: Any = runtime_field(None)
    """A corpus folder, or rows of `text` and optionally `label`, `id` and `benchmark`."""
    validation: str | None = runtime_field(None)
    """Text that no model was trained on, whose loss is measured; null: the non-members."""
    chunk_words: int = ranged_field(512, at_least(1))
    screen: str = "min_k"
    """The method whose scores the ratio screen compares."""
    ratio: float = ranged_field(1.15, WIDTH)
    completions: int = ranged_field(20, at_least(0))
    completed_chunks: int = ranged_field(200, at_least(1))
    prompt_words: int = ranged_field(200, at_least(1))
    prompt_share: float = ranged_field(0.5, PROPER_FRACTION)
    completion_tokens: int = ranged_field(512, at_least(1))
    temperature: float = ranged_field(1.0, POSITIVE)
    questions: str | None = runtime_field(CORPUS)
    """Those of the `corpus`, if `texts` is one; or a file of questions and answers; null: none."""
    utility: dict[str, str] | None = runtime_field(None)
    """Files of questions about other things, by name, with wrong answers (`perturbed_answer`):
    those of the model's utility; null: the corpus's own of non-members."""
    embedding: str | None = runtime_field(None)
    """A sentence encoder, for the similarity of completions: a folder or a hub id; null: none."""
    judge: dict[str, Any] | None = runtime_field(None)
    """A chat model behind a server that rates completions: `url` and other fields of
    `ScoredModelConfig`; null: none."""

    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads and checks the models and the texts.

        Raises:
            UserError: a model or a text can't be used.
        """
        from contamination.audits.unlearning import completions
        from contamination.audits.unlearning.answer_sets import read_answer_set, read_utility_set
        from contamination.audits.unlearning.inputs import (
            check_same_tokens,
            divide_into_chunks,
            open_audited_models,
            read_texts_of_field,
        )
        from contamination.audits.unlearning.measurement import (
            MeasurementSettings,
            UnlearningInputs,
        )
        from contamination.audits.unlearning.text_similarity import Embedding, Judge

        remedy = "this audit's models are audit.original, audit.unlearned and audit.clean."
        require(stage.model.given is None, "model", stage.model.given, remedy)
        require(self.screen in stage.method, "audit.screen", self.screen,
                f"it is not in `method`. {near_names(self.screen, stage.method)}")  # fmt: skip
        models = open_audited_models(self.original, self.unlearned, self.clean, stage.runs)
        examples = read_texts_of_field("audit.texts", str(self.texts))
        texts, chunks = divide_into_chunks(examples, self.chunk_words)
        check_same_tokens(models, texts)
        similarities: dict[str, Any] = {}
        if self.embedding is not None:
            similarities[completions.EMBEDDING] = Embedding(self.embedding, stage.detection.device)
        if self.judge is not None:
            similarities[completions.JUDGE] = Judge(self.judge, Path(stage.runs))
        validation = completions.read_validation_texts(self.validation) if self.validation else None
        questions = (
            None
            if self.questions in (None, CORPUS)
            else read_answer_set("audit.questions", str(self.questions))
        )
        utility = {
            name: read_utility_set(name, path) for name, path in (self.utility or {}).items()
        }
        settings = MeasurementSettings(
            texts=str(self.texts),
            screen=self.screen,
            ratio=self.ratio,
            completion_plan=completions.CompletionPlan(
                number=self.completions,
                words=self.prompt_words,
                share=self.prompt_share,
                tokens=self.completion_tokens,
                temperature=self.temperature,
            ),
            completed_chunks=self.completed_chunks,
            asks_corpus=bool(self.questions),
        )
        inputs = UnlearningInputs(
            settings, stage, models, texts, chunks, similarities, validation, questions, utility
        )
        return PreparedAudit(
            slug=models.original.source.slug,
            inputs=inputs.digests,
            conduct=inputs.conduct,
            settings={
                "method": stage.method,
                "detection": stage.detection.pass_settings,
                "corpus_questions": self.questions == CORPUS,
            },
        )
