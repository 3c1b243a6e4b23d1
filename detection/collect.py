"""Every pass that the methods need, each from its folder or run once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from core.artifacts import Built, build, locate
from core.errors import ConfigError, near_names
from detection.config import DetectionConfig
from detection.examples import Text, texts_digest
from detection.passes import INFILL, Pass, TokenStats
from detection.scored_model import ScoredModel
from detection.store import FILE, KIND, read_copies, write_rows
from detection.views import Material, needs, rewords

if TYPE_CHECKING:
    from detection.loaded import LoadedModel

Copies = Mapping[str, tuple[TokenStats, ...]]  # by the text's SHA-256


def _serving(wanted: Pass, others: set[Pass]) -> Pass:
    """The infilling pass with the most future tokens holds all that have fewer; else the pass."""
    if wanted.view != INFILL:
        return wanted
    alike = [p for p in others if (p.model, p.view) == (wanted.model, wanted.view)]
    return max(alike, key=lambda p: float(str(dict(p.parameters)["future"]).replace("all", "inf")))


class Collector:
    """Runs or reads passes over some texts. A model is loaded for the first pass not yet stored."""

    def __init__(
        self,
        runs: Path,
        models: Mapping[str, ScoredModel],
        texts: Sequence[Text],
        settings: DetectionConfig,
        material: Material | None = None,
    ) -> None:
        self.runs = runs
        self.models = models
        self.settings = settings
        self.material = replace(material or Material(), runs=runs)
        # one row a text, sorted: the stored pass is the same whatever the ids and their order
        ordered = sorted(texts, key=lambda t: (t.sha256, t.benchmark))
        self.texts = list({t.sha256: t for t in ordered}.values())
        self._loaded: dict[str, LoadedModel] = {}
        self._found: dict[Pass, Copies] = {}

    def collect(self, passes: Iterable[Pass]) -> dict[Pass, Copies]:
        """The statistics of each pass; equal passes are run once, and the largest infilling."""
        wanted = set(passes)
        serving = {p: _serving(p, wanted) for p in wanted}
        run = sorted(set(serving.values()), key=lambda p: p.key)
        found = {p: self._one(p) for p in run}
        return {p: found[serving[p]] for p in wanted}

    def _one(self, wanted: Pass) -> Copies:
        if wanted not in self._found:
            self._found[wanted] = self._read(wanted)
        return self._found[wanted]

    def _read(self, wanted: Pass) -> Copies:
        model = self._model(wanted)
        # `config` is all that can change the numbers, `inputs` the digests of what is read
        drawn, digests = self.material.identity(needs(wanted), self.texts)
        config = {"view": wanted.view_key, **drawn, **self.settings.of_a_pass}
        texts = texts_digest(self.texts)
        inputs = {
            "model": model.digest, "tokenizer": model.tokenizer_digest, "texts": texts, **digests
        }  # fmt: skip
        folder = locate(self.runs, KIND, f"{model.slug}-{wanted.view}", config, inputs)
        build(folder, config, inputs, partial(self._run, wanted))
        return read_copies(folder / FILE)

    def _run(self, wanted: Pass, folder: Path) -> Built:
        known = self._one(Pass(wanted.model)) if rewords(wanted) else None
        rows = self._load(wanted.model).run(wanted, self.texts, known)
        write_rows(folder / FILE, rows)
        counts = {
            "texts": len(self.texts),
            "rows": len(rows),
            "scored_tokens": sum(len(row.stats) for row in rows),
            "truncated": sum(row.truncated for row in rows),
            "windowed": len({row.text_sha256 for row in rows if row.windowed}),
        }
        return Built([FILE], counts)

    def _model(self, wanted: Pass) -> ScoredModel:
        if wanted.model not in self.models:
            raise ConfigError(
                f"pass {wanted.key}: no path was given for the model {wanted.model!r}. "
                f"{near_names(wanted.model, self.models)}"
            )
        return self.models[wanted.model]

    def _load(self, role: str) -> LoadedModel:
        if role not in self._loaded:
            from detection.loaded import LoadedModel

            self._loaded[role] = LoadedModel(self.models[role], self.settings, self.material)
        return self._loaded[role]
