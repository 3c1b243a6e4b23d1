"""The audit of unlearning: what is left of the texts, beside controls and a clean twin.

The ratio screen, completions and questions are those of Shi et al. (2024, section 7). What the
testbed adds is a twin that it trained itself on the same corpus without the texts: what a model
would be that had never seen them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from core.config import runtime
from core.errors import near_names, require
from core.ranges import PART, POSITIVE, Range, at_least, limited
from detection.audits.base import Audit, AuditStage, Prepared
from detection.audits.unlearning.asked import questions_at
from detection.audits.unlearning.chunks import chunks_of
from detection.audits.unlearning.completions import EMBEDDING, JUDGE, Prompts
from detection.audits.unlearning.given import check_tokens, open_models, texts_at
from detection.audits.unlearning.judge import Judge
from detection.audits.unlearning.similarity import Embedding
from detection.audits.unlearning.utility import validation_texts
from detection.audits.unlearning.work import Work

CORPUS = "corpus"
WIDTH = Range(lambda value: value > 1, "give a number above 1.")


@dataclass(frozen=True)
class Unlearning(Audit):
    """What the audit is told; see conf/audit/unlearning.yaml."""

    kind: ClassVar[str] = "unlearning"
    needed: ClassVar[Sequence[str]] = ("original", "unlearned", "texts")

    original: Any = runtime(None)
    """The model before: a path, or a mapping of `ScoredModelConfig`'s fields."""
    unlearned: Any = runtime(None)
    """The model after; several as a list, or as a mapping of names to models."""
    clean: Any = runtime(None)
    """A twin of the original that was never trained on the texts."""
    texts: Any = runtime(None)
    """A corpus folder, or rows of `text` and perhaps `label`, `id`, `benchmark`."""
    validation: str | None = runtime(None)
    """Text that no model was trained on; null: the non-members."""
    chunk_words: int = limited(512, at_least(1))
    screen: str = "min_k"
    """The method whose scores the ratio screen compares."""
    ratio: float = limited(1.15, WIDTH)
    completions: int = limited(20, at_least(0))
    completed_chunks: int = limited(200, at_least(1))
    prompt_words: int = limited(200, at_least(1))
    prompt_share: float = limited(0.5, PART)
    completion_tokens: int = limited(512, at_least(1))
    temperature: float = limited(1.0, POSITIVE)
    questions: str | None = runtime(CORPUS)
    """Of the `corpus`, where `texts` is one; or a file of questions and answers; null: none."""
    embedding: str | None = runtime(None)
    """A sentence encoder."""
    judge: dict[str, Any] | None = runtime(None)
    """A chat model behind a server: `url` and other fields of `ScoredModelConfig`."""

    def prepare(self, stage: AuditStage) -> Prepared:
        """Read and check the models and the texts."""
        remedy = "this audit's models are audit.original, audit.unlearned and audit.clean."
        require(stage.model.given is None, "model", stage.model.given, remedy)
        require(self.screen in stage.method, "audit.screen", self.screen,
                f"it is none of `method`. {near_names(self.screen, stage.method)}")  # fmt: skip
        models = open_models(self.original, self.unlearned, self.clean, stage.runs)
        examples = texts_at("audit.texts", str(self.texts))
        texts, chunks = chunks_of(examples, self.chunk_words)
        check_tokens(models, texts)
        ways: dict[str, Any] = {}
        if self.embedding is not None:
            ways[EMBEDDING] = Embedding(self.embedding, stage.detection.device)
        if self.judge is not None:
            ways[JUDGE] = Judge(self.judge, Path(stage.runs))
        validation = validation_texts(self.validation) if self.validation else None
        asked = self.questions
        questions = None if asked in (None, CORPUS) else questions_at(str(asked))
        work = Work(self, stage, models, texts, chunks, ways, validation, questions)
        return Prepared(
            slug=models.original.source.slug,
            inputs=work.inputs,
            find=work.findings,
            settings={
                "method": stage.method,
                "detection": stage.detection.of_a_pass,
                "corpus_questions": asked == CORPUS,
            },
        )

    @property
    def prompts(self) -> Prompts:
        """How chunks are completed."""
        return Prompts(
            number=self.completions,
            words=self.prompt_words,
            share=self.prompt_share,
            tokens=self.completion_tokens,
            temperature=self.temperature,
        )
