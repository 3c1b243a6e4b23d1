"""The audit's work, once its input is read and good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from core.errors import DataError
from core.parquet_files import write_parquet
from detection.audits.base import AuditStage
from detection.audits.findings import Findings
from detection.audits.unlearning import comparison
from detection.audits.unlearning.asked import Questions, answers
from detection.audits.unlearning.chunks import drawn
from detection.audits.unlearning.completions import ROUGE, TITLES, compared, truths, written
from detection.audits.unlearning.given import Models
from detection.audits.unlearning.quantities import (
    Quantity,
    answered,
    by_name,
    quantity,
    questions_of,
    scored,
)
from detection.audits.unlearning.report import Found, findings
from detection.audits.unlearning.screen import Screened, screened
from detection.audits.unlearning.utility import losses, rows_of
from detection.examples import examples_digest, lines_digest
from detection.texts import Texts

if TYPE_CHECKING:
    from detection.audits.unlearning.audit import Unlearning

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
