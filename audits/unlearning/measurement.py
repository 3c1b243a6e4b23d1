"""Measures what models still know of the chunks: scores, completions, answers and losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from contamination.audits.base import AuditResult, AuditStage
from contamination.audits.unlearning import comparison, completions
from contamination.audits.unlearning.answer_sets import (
    AnswerSet,
    corpus_answer_set,
)
from contamination.audits.unlearning.completions import CompletionPlan
from contamination.audits.unlearning.forget_ratio import ScreenResult, apply_ratio_screen
from contamination.audits.unlearning.inputs import (
    AuditedModels,
    choose_chunk_indices,
)
from contamination.audits.unlearning.quantities import (
    Quantity,
    QuestionFile,
    answer_quantities,
    answer_recall_quantity,
    find_score_of_method,
    make_quantity,
    read_corpus_questions,
    score_quantities,
)
from contamination.audits.unlearning.report import UnlearningFigures, build_report
from contamination.audits.unlearning.unlearning_metrics import (
    AnswerSets,
    metric_table,
    token_quantities,
)
from contamination.core.errors import DataError
from contamination.core.table_files import write_parquet
from contamination.data.examples import examples_digest, lines_digest
from contamination.data.texts import Texts

CHUNKS, COMPLETIONS = "chunks.parquet", "continuations.parquet"
SuspiciousUnits = Mapping[str, set[str]]
"""The units that the screen finds suspicious, by unlearned model."""


@dataclass(frozen=True)
class MeasurementSettings:
    """How an audit of unlearning measures.

    Attributes:
        texts: the path of the texts.
        screen: the method whose scores the ratio screen compares.
        ratio: the ratio above which a chunk is suspicious.
        completion_plan: how continuations of chunks are sampled.
        completed_chunks: the number of chunks that are continued.
        asks_corpus: whether the corpus's own questions are asked if no file has others.
    """

    texts: str
    screen: str
    ratio: float
    completion_plan: CompletionPlan
    completed_chunks: int
    asks_corpus: bool


@dataclass(frozen=True)
class UnlearningInputs:
    """The checked input of an audit, and the measurements on it.

    Attributes:
        settings: how they are measured.
        stage: the configuration of the stage.
        models: the audited models.
        texts: the chunks.
        chunks: one row per chunk: chunk, text_id, benchmark, member.
        similarities: measures of completions besides ROUGE-L, by name.
        validation: the texts whose loss is measured; None: the non-members.
        questions: those of a file; None: the corpus's own, or none.
        utility: questions about other things, by the name of their set.
    """

    settings: MeasurementSettings
    stage: AuditStage
    models: AuditedModels
    texts: Texts
    chunks: pd.DataFrame
    similarities: Mapping[str, Any]
    validation: Texts | None
    questions: AnswerSet | None
    utility: Mapping[str, AnswerSet]

    @property
    def digests(self) -> dict[str, str]:
        """The digests of everything that is read, by name."""
        labels = (f"{row.chunk} {row.text_id} {row.member}" for row in self.chunks.itertuples())
        digests = {"texts": examples_digest(self.texts), "labels": lines_digest(sorted(labels))}
        digests |= {name: similarity.digest for name, similarity in self.similarities.items()}
        if self.validation is not None:
            digests["validation"] = examples_digest(self.validation)
        if self.questions is not None:
            digests["questions"] = self.questions.digest
        digests |= {f"utility {name}": asked.digest for name, asked in self.utility.items()}
        digests |= {f"model {model.name}": model.source.digest for model in self.models}
        for model in self.models:  # the hash depends on methods, settings and the reference
            folder = self.stage.scores_folder(self.texts, "chunks", model.node)
            digests[f"scores of {model.name}"] = folder.name.rpartition("-")[2]
        return digests

    def conduct(self, folder: Path) -> AuditResult:
        """Measures everything, writes the files and returns the report."""
        scores = [
            *score_quantities(self.stage, self.models, self.texts, self.chunks, self.stage.seed)
        ]
        score = find_score_of_method(scores, self.settings.screen)
        if score.units.table.empty:
            raise DataError(self._no_ranked_chunk_message())
        screens = self._screen_by_model(score)
        suspicious = _suspicious_units_by_model(score, screens)
        completion_quantities = [*self._compare_completions(folder)]
        answer_quantities, suspicious_questions = self._ask_questions(suspicious)
        token_metrics = token_quantities(self.stage, self.models, self.texts, self.chunks)
        self._write_chunk_table(folder, scores, screens)
        figures = UnlearningFigures(
            models=self.models,
            screened=score,
            screens=comparison.screen_table(screens, score, self.models.original.name),
            ratios=self._forget_ratio_table(
                [*scores, *token_metrics, *completion_quantities, *answer_quantities]
            ),
            metrics=metric_table(
                self.stage,
                self.models,
                token_metrics,
                score,
                AnswerSets(self._forget_questions(), self.utility),
                answer_quantities,
            ),
            membership=self._membership_table(scores),
            completions=comparison.group_mean_table(self.models, completion_quantities, suspicious),
            answers=comparison.group_mean_table(
                self.models, answer_quantities, suspicious_questions
            ),
            utility=self._utility_loss_table(),
            chunks=self.chunks,
            texts=self.settings.texts,
            of_validation=self.validation is not None,
            method=self.settings.screen,
            ratio=self.settings.ratio,
            completions_per_chunk=self.settings.completion_plan.number,
            similarities=[completions.TITLES[name] for name in self.similarities],
        )
        return build_report(figures, [CHUNKS, *([COMPLETIONS] if completion_quantities else [])])

    def _no_ranked_chunk_message(self) -> str:
        min_tokens = self.stage.detection.min_scored_tokens
        return (
            f"audit.texts is {self.settings.texts!r}: no text is left: each is blank or has fewer "
            f"than detection.min_scored_tokens={min_tokens} scored tokens. Give longer texts."
        )

    def _screen_by_model(self, score: Quantity) -> dict[str, ScreenResult]:
        before, clean = score.values[self.models.original.name], self.models.clean
        clean_scores = None if clean is None else score.values[clean.name]
        return {
            model.name: apply_ratio_screen(
                score.units, before, score.values[model.name], clean_scores, self.settings.ratio
            )
            for model in self.models.unlearned
        }

    def _compare_completions(self, folder: Path) -> Iterator[Quantity]:
        """Yields the similarity of completions by each measure; writes all completions."""
        if not self.settings.completion_plan.number:
            return
        plan = self.settings.completion_plan
        completable = [
            index for index, text in enumerate(self.texts) if plan.true_continuation(text.text)
        ]
        rows = self.chunks.iloc[completable].reset_index(drop=True)
        chosen = choose_chunk_indices(rows, self.settings.completed_chunks, self.stage.seed)
        if not chosen:
            return
        texts = self.texts.take([completable[index] for index in chosen])
        true_continuations = completions.true_continuation_by_sha256(
            self.models.original, texts, plan
        )
        runs, settings, seed = Path(self.stage.runs), self.stage.detection, self.stage.seed
        tables = {}
        for model in self.models:
            continuations = completions.sample_continuations_by_sha256(
                model, texts, plan, runs, settings, seed
            )
            tables[model.name] = completions.compare_continuations(
                texts, continuations, true_continuations, self.similarities
            )
        table = pd.concat(
            [rows.assign(model=name) for name, rows in tables.items()], ignore_index=True
        )
        write_parquet(folder / COMPLETIONS, pa.Table.from_pandas(table, preserve_index=False))
        for measure in (
            completions.ROUGE,
            *(name for name in completions.TITLES if name in table and name != completions.ROUGE),
        ):
            means = {name: self._chunk_means(rows, measure) for name, rows in tables.items()}
            yield make_quantity(completions.TITLES[measure], means, seed)

    def _chunk_means(self, table: pd.DataFrame, measure: str) -> pd.DataFrame:
        means = table.groupby("chunk")[measure].mean().rename("value").reset_index()
        return self.chunks.merge(means, on="chunk").rename(columns={"chunk": "unit"})

    def _ask_questions(self, suspicious: SuspiciousUnits) -> tuple[list[Quantity], SuspiciousUnits]:
        """The answers to questions, and which of these each unlearned model's screen finds."""
        if self.questions is not None and self.questions.file is not None:
            return self._ask_questions_of_file(self.questions.file)
        path = self.settings.texts
        questions = read_corpus_questions(path) if self.settings.asks_corpus else None
        if questions is None:
            return [], {}
        answers = answer_quantities(self.stage, self.models, path, questions, self.stage.seed)
        return answers, self._suspicious_texts_by_model(suspicious)

    def _ask_questions_of_file(
        self, questions: QuestionFile
    ) -> tuple[list[Quantity], SuspiciousUnits]:
        stage, models = self.stage, self.models
        scores = score_quantities(stage, models, questions.texts, questions.rows, stage.seed)
        score = find_score_of_method([*scores], self.settings.screen)
        answers = answer_recall_quantity(stage, models, questions, stage.seed)
        return [answers], _suspicious_units_by_model(score, self._screen_by_model(score))

    def _forget_questions(self) -> AnswerSet | None:
        """The questions about what is to be forgotten, of a file or of the corpus; None: none."""
        if self.questions is not None or not self.settings.asks_corpus:
            return self.questions
        asked = read_corpus_questions(self.settings.texts)
        return None if asked is None else corpus_answer_set(asked)

    def _suspicious_texts_by_model(self, suspicious: SuspiciousUnits) -> dict[str, set[str]]:
        text_id_by_chunk = dict(zip(self.chunks["chunk"], self.chunks["text_id"], strict=True))
        return {
            name: {text_id_by_chunk[chunk] for chunk in chunks}
            for name, chunks in suspicious.items()
        }

    def _membership_table(self, scores: Sequence[Quantity]) -> pd.DataFrame | None:
        if not all(score.units.has_both_labels for score in scores):
            return None
        return comparison.membership_table(self.models, scores, self.stage.seed)

    def _forget_ratio_table(self, quantities: Sequence[Quantity]) -> pd.DataFrame | None:
        if self.models.clean is None:
            return None
        compared = [
            quantity
            for quantity in quantities
            if quantity.name != completions.TITLES[completions.OTHER]
        ]
        table = comparison.forget_ratio_table(self.models, compared)
        return None if table.empty else table

    def _utility_loss_table(self) -> pd.DataFrame | None:
        """Returns the loss on validation texts, else on the non-members; None without either."""
        nonmembers = (~self.chunks["member"].fillna(True)).to_numpy(bool)
        texts = self.validation
        if texts is None:
            texts = self.texts.take(np.flatnonzero(nonmembers))
        if not len(texts):
            return None
        rows = completions.unlabelled_unit_table(texts)
        if self.validation is None:
            rows["text_id"] = self.chunks.loc[nonmembers, "text_id"].to_numpy()
        losses = {
            model.name: rows.assign(value=completions.mean_losses(self.stage, model, texts))
            for model in self.models
        }
        return comparison.utility_table(self.models, make_quantity("loss", losses, self.stage.seed))

    def _write_chunk_table(
        self, folder: Path, scores: Sequence[Quantity], screens: Mapping[str, ScreenResult]
    ) -> None:
        """Writes one row per chunk: its label, its score by each method and model, the screens."""
        table = self.chunks
        for score in scores:
            columns = {f"{score.name} of {model}": values for model, values in score.values.items()}
            units = score.units.table["unit"].rename("chunk")
            table = table.merge(pd.DataFrame({"chunk": units, **columns}), how="left", on="chunk")
        screened_units = find_score_of_method(scores, self.settings.screen).units.table["unit"]
        for model_name, screen in screens.items():
            is_suspicious_by_unit = dict(zip(screened_units, screen.suspicious, strict=True))
            table[f"suspicious in {model_name}"] = (
                table["chunk"].map(is_suspicious_by_unit).astype("boolean")
            )
        write_parquet(folder / CHUNKS, pa.Table.from_pandas(table, preserve_index=False))


def _suspicious_units_by_model(
    score: Quantity, screens: Mapping[str, ScreenResult]
) -> dict[str, set[str]]:
    units = score.units.table["unit"]
    return {model_name: set(units[screen.suspicious]) for model_name, screen in screens.items()}
