"""The audit of unlearning: what is left of the texts, beside controls and a clean twin.

The ratio screen, completions and questions are those of Shi et al. (2024, section 7). What the
testbed adds is a twin that it trained itself on the same corpus without the texts: what a model
would be that had never seen them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from contamination.audits.base import Audit, AuditStage, Prepared
from contamination.audits.findings import Findings
from contamination.audits.unlearning import comparison
from contamination.audits.unlearning.completions import (
    EMBEDDING,
    JUDGE,
    ROUGE,
    TITLES,
    Prompts,
    compared,
    losses,
    rows_of,
    truths,
    validation_texts,
    written,
)
from contamination.audits.unlearning.forget_ratio import Screened, screened
from contamination.audits.unlearning.inputs import (
    Models,
    check_tokens,
    chunks_of,
    drawn,
    open_models,
    texts_at,
)
from contamination.audits.unlearning.judge import Judge
from contamination.audits.unlearning.quantities import (
    Quantity,
    answered,
    by_name,
    quantity,
    questions_of,
    scored,
)
from contamination.audits.unlearning.questions import Questions, answers, questions_at
from contamination.audits.unlearning.report import Found, findings
from contamination.audits.unlearning.text_similarity import Embedding
from contamination.core.config import PART, POSITIVE, Range, at_least, limited, runtime
from contamination.core.errors import DataError, near_names, require
from contamination.core.table_files import write_parquet
from contamination.data.examples import examples_digest, lines_digest
from contamination.data.texts import Texts

CHUNKS, COMPLETIONS = "chunks.parquet", "continuations.parquet"


@dataclass(frozen=True)
class Work:
    """An audit whose input is good.

    Attributes:
        audit: what it is told.
        stage: the same of the stage.
        models: the models.
        texts: the chunks.
        chunks: a row each.
        compare: how completions are compared beside ROUGE-L, by name.
        validation: the texts whose loss is measured; None: the non-members.
        questions: those of a file; None: a corpus's own, or none.
    """

    audit: Unlearning
    stage: AuditStage
    models: Models
    texts: Texts
    chunks: pd.DataFrame
    compare: Mapping[str, Any]
    validation: Texts | None
    questions: Questions | None

    @property
    def inputs(self) -> dict[str, str]:
        """The digests of all that is read."""
        labels = (f"{row.chunk} {row.text_id} {row.member}" for row in self.chunks.itertuples())
        own = {"texts": examples_digest(self.texts), "labels": lines_digest(sorted(labels))}
        own |= {name: way.digest for name, way in self.compare.items()}
        if self.validation is not None:
            own["validation"] = examples_digest(self.validation)
        if self.questions is not None:
            own["questions"] = self.questions.digest
        own |= {f"model {m.name}": m.source.digest for m in self.models}
        for model in self.models:  # by other methods, settings or a reference they are others
            place = self.stage.scores_place(self.texts, "chunks", model.node)
            own[f"scores of {model.name}"] = place.name.rpartition("-")[2]
        return own

    def findings(self, folder: Path) -> Findings:
        """Everything: the tables, the files and what may be concluded."""
        scores = [*scored(self.stage, self.models, self.texts, self.chunks, self.stage.seed)]
        main = by_name(scores, self.audit.screen)
        if main.units.table.empty:
            raise DataError(self._nothing())
        screens = self._screens(main)
        listed, completed = _listed(main, screens), [*self._completed(folder)]
        asked, about = self._asked(listed)
        self._write_chunks(folder, scores, screens)
        found = Found(
            models=self.models,
            main=main,
            scores=scores,
            screens=comparison.screens(screens, main, self.models.original.name),
            ways=self._ways([*scores, *completed, *asked]),
            membership=self._membership(scores),
            completions=comparison.groups(self.models, completed, listed),
            answers=comparison.groups(self.models, asked, about),
            utility=self._utility(),
            chunks=self.chunks,
            compared=[TITLES[name] for name in self.compare],
            audit=self.audit,
        )
        files = [CHUNKS, *([COMPLETIONS] if completed else [])]
        return findings(found, files)

    def _nothing(self) -> str:
        least = self.stage.detection.min_scored_tokens
        return (
            f"audit.texts is {self.audit.texts!r}: no text is left: each is blank or has fewer "
            f"than detection.min_scored_tokens={least} scored tokens. Give longer texts."
        )

    def _screens(self, main: Quantity) -> dict[str, Screened]:
        """What the ratio screen finds with each unlearned model."""
        before, clean = main.values[self.models.original.name], self.models.clean
        twin, width = None if clean is None else main.values[clean.name], self.audit.ratio
        return {
            model.name: screened(main.units, before, main.values[model.name], twin, width)
            for model in self.models.unlearned
        }

    def _completed(self, folder: Path) -> Iterator[Quantity]:
        """How alike completions are, a quantity a way; every completion stands in a file."""
        if not self.audit.completions:
            return
        prompts = self.audit.prompts
        rest = [place for place, text in enumerate(self.texts) if prompts.rest(text.text)]
        rows = self.chunks.iloc[rest].reset_index(drop=True)
        places = [rest[n] for n in drawn(rows, self.audit.completed_chunks, self.stage.seed)]
        if not places:
            return
        texts = self.texts.take(places)
        true, runs = truths(self.models.original, texts, prompts), Path(self.stage.runs)
        tables = {}
        for model in self.models:
            settings, seed = self.stage.detection, self.stage.seed
            found = written(model, texts, prompts, runs, settings, seed)
            tables[model.name] = compared(texts, found, true, self.compare)
        whole = pd.concat([t.assign(model=name) for name, t in tables.items()], ignore_index=True)
        write_parquet(folder / COMPLETIONS, pa.Table.from_pandas(whole, preserve_index=False))
        for name in (ROUGE, *(n for n in TITLES if n in whole.columns and n != ROUGE)):
            means = {m: self._means(t, name) for m, t in tables.items()}
            yield quantity(TITLES[name], means, self.stage.seed)

    def _means(self, table: pd.DataFrame, name: str) -> pd.DataFrame:
        """Each chunk's mean over its completions."""
        means = table.groupby("chunk")[name].mean().rename("value").reset_index()
        return self.chunks.merge(means, on="chunk").rename(columns={"chunk": "unit"})

    def _asked(
        self, listed: Mapping[str, set[str]]
    ) -> tuple[list[Quantity], Mapping[str, set[str]]]:
        """What questions show, and which of them each unlearned model's screen finds."""
        stage, path = self.stage, str(self.audit.texts)
        if self.questions is not None:
            return self._asked_of_a_file(self.questions)
        asked = questions_of(path) if self.audit.questions else None
        if asked is None:
            return [], {}
        return answered(stage, self.models, path, asked, stage.seed), self._of_texts(listed)

    def _asked_of_a_file(self, asked: Questions) -> tuple[list[Quantity], Mapping[str, set[str]]]:
        stage, models = self.stage, self.models
        scores = scored(stage, models, asked.texts, asked.rows, stage.seed)
        screens = self._screens(main := by_name([*scores], self.audit.screen))
        return [answers(stage, models, asked, stage.seed)], _listed(main, screens)

    def _of_texts(self, listed: Mapping[str, set[str]]) -> dict[str, set[str]]:
        """The texts with a suspicious chunk."""
        text = dict(zip(self.chunks["chunk"], self.chunks["text_id"], strict=True))
        return {name: {text[chunk] for chunk in own} for name, own in listed.items()}

    def _membership(self, scores: Sequence[Quantity]) -> pd.DataFrame | None:
        if not all(one.units.labelled for one in scores):
            return None
        return comparison.membership(self.models, scores, self.stage.seed)

    def _ways(self, quantities: Sequence[Quantity]) -> pd.DataFrame | None:
        if self.models.clean is None:
            return None
        found = comparison.ways(
            self.models, [q for q in quantities if q.name != TITLES["rouge_l_other"]]
        )
        return None if found.empty else found

    def _utility(self) -> pd.DataFrame | None:
        """The loss on validation texts, else on the non-members; None: there are neither."""
        others = (~self.chunks["member"].fillna(True)).to_numpy(bool)
        texts = (
            self.texts.take(np.flatnonzero(others)) if self.validation is None else self.validation
        )
        if not len(texts):
            return None
        rows = rows_of(texts)
        if self.validation is None:
            rows["text_id"] = self.chunks.loc[others, "text_id"].to_numpy()
        values = {m.name: rows.assign(value=losses(self.stage, m, texts)) for m in self.models}
        return comparison.utility(self.models, quantity("loss", values, self.stage.seed))

    def _write_chunks(
        self, folder: Path, scores: Sequence[Quantity], screens: Mapping[str, Screened]
    ) -> None:
        """Each chunk's row: what it is, its score by each method and model, and the screens."""
        found = self.chunks
        for one in scores:
            columns = {f"{one.name} of {m}": values for m, values in one.values.items()}
            units = one.units.table["unit"].rename("chunk")
            found = found.merge(pd.DataFrame({"chunk": units, **columns}), how="left", on="chunk")
        main = by_name(scores, self.audit.screen).units.table["unit"]
        for name, screen in screens.items():
            listed = dict(zip(main, screen.suspicious, strict=True))
            found[f"suspicious in {name}"] = found["chunk"].map(listed).astype("boolean")
        write_parquet(folder / CHUNKS, pa.Table.from_pandas(found, preserve_index=False))


def _listed(main: Quantity, screens: Mapping[str, Screened]) -> dict[str, set[str]]:
    """The suspicious units by unlearned model."""
    units = main.units.table["unit"]
    return {name: set(units[screen.suspicious]) for name, screen in screens.items()}


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
