"""Every pass that the methods need, each from its folder or run once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from core.artifacts import Built, build, locate
from core.errors import ConfigError, near_names
from detection.config import DetectionConfig
from detection.examples import texts_digest
from detection.parallel import staying
from detection.passes import INFILL, Pass
from detection.scored_model import ScoredModel
from detection.store import KIND, PARTS, Copies, StoredPass, is_whole, part, write_rows
from detection.texts import Text, Texts, release
from detection.views import Material, needs, rewords

if TYPE_CHECKING:
    from detection.loaded import LoadedModel

PART_CHARACTERS = 2**20
"""Of the texts of a part, over all copies: what is in memory at a time, and lost in a kill."""
PART_TEXTS = 2**12

log = logging.getLogger(__name__)


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
        whole = Texts.of(texts)
        ordered = whole.take(whole.order("sha256", "benchmark"))
        hashes = ordered.column("sha256").combine_chunks()
        last = pc.not_equal(hashes[1:], hashes[:-1]).to_numpy(zero_copy_only=False)
        self.texts = ordered.take(np.append(last, len(ordered) > 0))
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
        return StoredPass(folder)

    def _run(self, wanted: Pass, folder: Path) -> Built:
        """Write the parts of the pass that are not there, or not whole."""
        known = self._one(Pass(wanted.model)) if rewords(wanted) else None
        texts = {folder / part(n): own for n, own in enumerate(parts(self.texts, wanted))}
        missing = [p for p, own in texts.items() if not is_whole(p, [t.sha256 for t in own])]
        for path in {*folder.glob(PARTS), *missing} - (texts.keys() - {*missing}):
            path.unlink(missing_ok=True)
        if 0 < len(missing) < len(texts):
            kept = len(texts) - len(missing)
            log.info("%s: %d of %d parts are there.", wanted.key, kept, len(texts))
        model = self._load(wanted.model)
        if len(missing) > 1:  # what is wrong with a text is said before any is scored
            for path in missing:
                model.tokenize(wanted, texts[path])
                release()
        with staying():
            for path in missing:
                write_rows(path, model.run(wanted, texts[path], known))
                release()
        return Built([path.name for path in texts], self._counts(folder, model.context))

    def _counts(self, folder: Path, context: int | None) -> dict[str, int]:
        """What is in the pass; one of a windowed text has more statistics than the context."""
        found, rows, tokens, windowed = StoredPass(folder), 0, 0, 0
        for copies in found.values():
            rows += len(copies)
            tokens += sum(map(len, copies))
            windowed += context is not None and max(map(len, copies)) >= context
        return {
            "texts": len(self.texts),
            "rows": rows,
            "scored_tokens": tokens,
            "truncated": found.truncated(),
            "windowed": windowed,
        }

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


def parts(texts: Sequence[Text], wanted: Pass) -> Iterator[Sequence[Text]]:
    """The texts in runs of up to PART_CHARACTERS, all copies counted, or of one text."""
    copies = _copies(wanted)
    start = characters = 0
    for place, text in enumerate(texts):
        own = len(text.text) * copies
        if place > start and (characters + own > PART_CHARACTERS or place - start >= PART_TEXTS):
            yield texts[start:place]
            start, characters = place, 0
        characters += own
    if start < len(texts):
        yield texts[start:]


def _copies(wanted: Pass) -> int:
    """About how many statistics a token of a text has in the pass."""
    given = dict(wanted.parameters)
    n, future = given.get("n", 1), given.get("future", 0)
    return int(n) if not isinstance(future, int) or not future else future + 1
