"""Every pass that the methods need, each from its folder or run once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from contamination.core.artifacts import Built, beside, build, is_complete, locate, open_artifact
from contamination.core.errors import ArtifactError
from contamination.data.examples import texts_digest
from contamination.data.texts import Text, Texts, families, release
from contamination.detection.config import DetectionConfig
from contamination.detection.models import model_of
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_store import (
    KIND,
    PARTS,
    ByText,
    Row,
    StoredPass,
    is_whole,
    part,
    write_rows,
)
from contamination.detection.passes import Pass
from contamination.detection.resources import Resources
from contamination.detection.views import view_of
from contamination.detection.workers import children_kept_alive

if TYPE_CHECKING:
    from contamination.detection.loaded_model import LoadedModel

PART_CHARACTERS = 2**20
"""Of the texts of a part, over all copies: what is in memory at a time, and lost in a kill."""
PART_TEXTS = 2**12

log = logging.getLogger(__name__)


class Collector:
    """Runs or reads passes over some texts. A model is loaded for the first pass not yet stored."""

    def __init__(
        self,
        runs: Path,
        models: Mapping[str, ModelHandle],
        texts: Sequence[Text],
        settings: DetectionConfig,
        resources: Resources | None = None,
    ) -> None:
        self.runs = runs
        self.models = models
        self.settings = settings
        self.resources = replace(resources or Resources(), runs=runs)
        # one row a text, sorted: the stored pass is the same whatever the ids and their order
        whole = Texts.of(texts)
        ordered = whole.take(whole.order("sha256", "benchmark"))
        hashes = ordered.column("sha256").combine_chunks()
        last = pc.not_equal(hashes[1:], hashes[:-1]).to_numpy(zero_copy_only=False)
        self.texts = ordered.take(np.append(last, len(ordered) > 0))
        self._loaded: dict[str, LoadedModel] = {}
        self._found: dict[Pass, ByText] = {}

    def collect(self, passes: Iterable[Pass]) -> dict[Pass, ByText]:
        """The statistics of each pass; a pass that holds others is run for all of them, once."""
        holders = serving(set(passes))
        for each in sorted(set(holders.values()), key=lambda p: p.key):
            self._one(each)
        return {p: self._found[held_by] for p, held_by in holders.items()}

    def collect_slice(self, passes: Iterable[Pass], number: int, of: int) -> int:
        """Write those parts of the passes that are slice `number` of `of` and not there.

        A part is a new file, or none: other slices, and a run of all, may be at work beside it.

        Returns:
            How many it wrote.
        """
        wanted, made = {*serving(set(passes)).values()}, 0
        wanted |= {Pass(p.model) for p in wanted if view_of(p).rewords}
        for each in sorted(wanted, key=lambda p: (view_of(p).rewords, p.key)):
            folder, config, _ = self._place(each)
            with beside(folder, config, f"slice-{number}-of-{of}") as unfinished:
                if unfinished:
                    texts = [*self._parts(each, folder).items()]
                    start, end = (len(texts) * n // of for n in (number - 1, number))
                    made += self._add(each, dict(texts[start:end]))
        return made

    def stored(self, passes: Iterable[Pass]) -> dict[Pass, ByText]:
        """The statistics of those passes whose folders are finished; nothing is run.

        Raises:
            ArtifactError: a folder is damaged.
        """
        holders = serving(set(passes))
        folders = {p: self.folder(p) for p in set(holders.values())}
        found = {
            p: StoredPass(open_artifact(folder, KIND).path)
            for p, folder in folders.items()
            if is_complete(folder)
        }
        return {p: found[held_by] for p, held_by in holders.items() if held_by in found}

    def folder(self, wanted: Pass) -> Path:
        """Where the pass is, or will be."""
        return self._place(wanted)[0]

    def _one(self, wanted: Pass) -> ByText:
        if wanted not in self._found:
            folder, config, inputs = self._place(wanted)
            build(folder, config, inputs, partial(self._run, wanted))
            self._found[wanted] = StoredPass(folder)
        return self._found[wanted]

    def _place(self, wanted: Pass) -> tuple[Path, dict[str, Any], dict[str, str]]:
        """The pass's folder, with the settings and the digests that name it."""
        model = model_of(wanted, self.models)
        # `config` is all that can change the numbers, `inputs` the digests of what is read
        drawn, digests = self.resources.identity(view_of(wanted).needs, self.texts)
        config = {"view": wanted.view_key, **drawn, **self.settings.of_a_pass}
        inputs = {"model": model.digest, "tokenizer": model.tokenizer_digest}
        inputs |= {"texts": texts_digest(self.texts), **digests}
        folder = locate(self.runs, KIND, f"{model.slug}-{wanted.view}", config, inputs)
        return folder, config, inputs

    def _run(self, wanted: Pass, folder: Path) -> Built:
        """Write the parts of the pass that are not there, or not whole."""
        known = self._one(Pass(wanted.model)) if view_of(wanted).rewords else None
        texts = self._parts(wanted, folder)
        missing = [p for p, own in texts.items() if not is_whole(p, [t.sha256 for t in own])]
        for path in {*folder.glob(PARTS), *missing} - (texts.keys() - {*missing}):
            path.unlink(missing_ok=True)
        if 0 < len(missing) < len(texts):
            kept = len(texts) - len(missing)
            log.info("%s: %d of %d parts are there.", wanted.key, kept, len(texts))
        self._write(wanted, {path: texts[path] for path in missing}, known)
        context = self._load(wanted.model).source.context
        return Built([path.name for path in texts], self._counts(folder, context))

    def _parts(self, wanted: Pass, folder: Path) -> dict[Path, Sequence[Text]]:
        """The files of the pass's parts, each with its texts, in their order."""
        return {folder / part(n): own for n, own in enumerate(parts(self.texts, wanted))}

    def _add(self, wanted: Pass, texts: Mapping[Path, Sequence[Text]]) -> int:
        """Write those of these parts that are not there; how many."""
        missing = {path: own for path, own in texts.items() if not path.exists()}
        if missing:
            known = self._known(wanted, missing) if view_of(wanted).rewords else None
            self._write(wanted, missing, known)
        return len(missing)

    def _known(self, wanted: Pass, texts: Mapping[Path, Sequence[Text]]) -> ByText:
        """What the model says of these texts themselves, whose parts are made where they lack.

        Raises:
            ArtifactError: a part is not what a run of these texts writes.
        """
        original, ends = Pass(wanted.model), [*texts.values()]
        first, last = ends[0][0].sha256, ends[-1][-1].sha256
        folder = self.folder(original)
        parts = self._parts(original, folder).items()
        needed = {p: own for p, own in parts if own[0].sha256 <= last and first <= own[-1].sha256}
        self._add(original, needed)
        for path, some in needed.items():
            if not is_whole(path, [text.sha256 for text in some]):
                raise ArtifactError(
                    f"{path} is damaged, or of an earlier version, and no slice replaces what is "
                    "there. Run the same command without slice: it makes the part again."
                )
        return StoredPass(folder)

    def _write(
        self, wanted: Pass, texts: Mapping[Path, Sequence[Text]], known: ByText | None
    ) -> None:
        """Score the texts of these parts, but of one that another process has made meanwhile."""
        model = self._load(wanted.model)
        if len(texts) > 1:  # a bad text is an error before any is scored
            for own in texts.values():
                model.tokenize(wanted, own)
                release()
        several = len(texts) > 1 and known is None and view_of(wanted).shares
        kin = families(map(Texts.of, texts.values())) if several else {}
        held: dict[str, list[Row]] = {}
        with children_kept_alive():
            for path, own in texts.items():
                if not path.exists():
                    _read_ahead(model, wanted, own, known, kin, held)
                    write_rows(path, [row for text in own for row in held.pop(text.sha256)])
                    release()

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

    def _load(self, role: str) -> LoadedModel:
        if role not in self._loaded:
            from contamination.detection.loaded_model import LoadedModel

            self._loaded[role] = LoadedModel(self.models[role], self.settings, self.resources)
        return self._loaded[role]


def _read_ahead(
    model: LoadedModel,
    wanted: Pass,
    own: Sequence[Text],
    known: ByText | None,
    kin: dict[str, Texts],
    held: dict[str, list[Row]],
) -> None:
    """Hold the rows of these texts, and of other parts' texts that are read together with them."""
    names = {text.sha256 for text in own}
    others = {t.sha256: t for name in names for t in kin.get(name, ())}
    for name in others:
        del kin[name]  # all of a family are read at once
    new = [*own, *(others[name] for name in sorted(others.keys() - names))]
    rows = model.run(wanted, [text for text in new if text.sha256 not in held], known)
    for name, some in groupby(rows, attrgetter("text_sha256")):
        held[name] = [*some]


def serving(wanted: Collection[Pass]) -> dict[Pass, Pass]:
    """For each pass the one of them that holds it."""
    return {
        p: view_of(p).serving(p, (o for o in wanted if (o.model, o.view) == (p.model, p.view)))
        for p in wanted
    }


def parts(texts: Sequence[Text], wanted: Pass) -> Iterator[Sequence[Text]]:
    """The texts in runs of up to PART_CHARACTERS, all copies counted, or of one text."""
    copies = view_of(wanted).copies(wanted)
    start = characters = 0
    for place, text in enumerate(texts):
        own = len(text.text) * copies
        if place > start and (characters + own > PART_CHARACTERS or place - start >= PART_TEXTS):
            yield texts[start:place]
            start, characters = place, 0
        characters += own
    if start < len(texts):
        yield texts[start:]
