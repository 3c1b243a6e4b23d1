"""Collects the passes that the methods need: each is read from its folder, or run once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from contamination.core.artifacts import (
    WrittenFiles,
    build_or_open,
    is_complete,
    open_artifact,
    run_folder,
    shared_folder,
)
from contamination.core.errors import ArtifactError
from contamination.data.examples import texts_digest
from contamination.data.texts import Text, Texts, families_by_sha256, release_memory
from contamination.detection import pass_store
from contamination.detection.config import DetectionConfig
from contamination.detection.flags import with_token_count_pass
from contamination.detection.methods.registry import build_methods
from contamination.detection.models import model_for_pass
from contamination.detection.models.base import ModelHandle
from contamination.detection.pass_store import PassRow, StatsByText, StoredPass
from contamination.detection.passes import Pass
from contamination.detection.view_resources import Resources
from contamination.detection.views import view_of
from contamination.detection.workers import keep_children_alive

if TYPE_CHECKING:
    from contamination.detection.loaded_model import LoadedModel

PART_CHARACTERS = 2**20
"""The maximum number of characters per part, over all copies. One part at a time is in memory, and
lost if the process is killed."""
PART_TEXTS = 2**12

log = logging.getLogger(__name__)


class Collector:
    """Runs or reads passes over texts. A model is loaded for the first pass that is not stored."""

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
        self.resources = replace(
            resources or Resources(), runs=runs, reference=models.get("reference")
        )
        # one row per text, sorted, so that a stored pass does not depend on the ids or their order
        all_texts = Texts.of(texts)
        ordered = all_texts.take(all_texts.sorting_indices("sha256", "benchmark"))
        hashes = ordered.column("sha256").combine_chunks()
        is_last = pc.not_equal(hashes[1:], hashes[:-1]).to_numpy(zero_copy_only=False)
        self.texts = ordered.take(np.append(is_last, len(ordered) > 0))
        self._loaded: dict[str, LoadedModel] = {}
        self._passes: dict[Pass, StatsByText] = {}

    def collect(self, passes: Iterable[Pass]) -> dict[Pass, StatsByText]:
        """Returns the statistics of each pass.

        If one pass contains the statistics of others, only that pass is run.
        """
        covering = covering_pass_by_pass(set(passes))
        for to_run in sorted(set(covering.values()), key=lambda p: p.key):
            self._read_or_run_pass(to_run)
        return {p: self._passes[covering_pass] for p, covering_pass in covering.items()}

    def collect_slice(self, passes: Iterable[Pass], number: int, n_slices: int) -> int:
        """Writes the missing parts of slice `number` of `n_slices` of each pass.

        Each part is written atomically, so other slices, or a run of all parts, may run at once.

        Returns:
            The number of parts written.
        """
        to_run, written = {*covering_pass_by_pass(set(passes)).values()}, 0
        to_run |= {Pass(p.model) for p in to_run if view_of(p).rewords}
        for wanted in sorted(to_run, key=lambda p: (view_of(p).rewords, p.key)):
            folder, config, _ = self._folder_config_inputs(wanted)
            with shared_folder(folder, config, f"slice-{number}-of-{n_slices}") as unfinished:
                if unfinished:
                    texts_by_path = [*self._texts_by_part_path(wanted, folder).items()]
                    start, end = (len(texts_by_path) * n // n_slices for n in (number - 1, number))
                    written += self._write_missing_parts(wanted, dict(texts_by_path[start:end]))
        return written

    def read_finished(self, passes: Iterable[Pass]) -> dict[Pass, StatsByText]:
        """Returns the statistics of the passes whose folders are finished, without running any.

        Raises:
            ArtifactError: a folder is damaged.
        """
        covering = covering_pass_by_pass(set(passes))
        folders = {p: self.folder(p) for p in set(covering.values())}
        stored_passes = {
            p: StoredPass(open_artifact(folder, pass_store.KIND).path)
            for p, folder in folders.items()
            if is_complete(folder)
        }
        return {
            p: stored_passes[covering_pass]
            for p, covering_pass in covering.items()
            if covering_pass in stored_passes
        }

    def folder(self, wanted: Pass) -> Path:
        """Returns the folder where the pass is, or will be, stored."""
        return self._folder_config_inputs(wanted)[0]

    def _read_or_run_pass(self, wanted: Pass) -> StatsByText:
        if wanted not in self._passes:
            folder, config, inputs = self._folder_config_inputs(wanted)
            build_or_open(
                folder, config, inputs, partial(self._build_pass, wanted), log_nearest=False
            )
            self._passes[wanted] = StoredPass(folder)
        return self._passes[wanted]

    def _folder_config_inputs(self, wanted: Pass) -> tuple[Path, dict[str, Any], dict[str, str]]:
        """Returns the pass's folder, and the settings and digests that name it."""
        model = model_for_pass(wanted, self.models)
        # `config` has every setting that can change the numbers, `inputs` the digests of the inputs
        seed, digests = self.resources.identity(view_of(wanted).needs, self.texts)
        config = {"view": wanted.view_key, **seed, **self.settings.pass_settings}
        inputs = {"model": model.digest, "tokenizer": model.tokenizer_digest}
        inputs |= {"texts": texts_digest(self.texts), **digests}
        folder = run_folder(
            self.runs, pass_store.KIND, f"{model.slug}-{wanted.view}", config, inputs
        )
        return folder, config, inputs

    def _build_pass(self, wanted: Pass, folder: Path) -> WrittenFiles:
        """Writes the parts of the pass that are missing or damaged."""
        text_stats = self._read_or_run_pass(Pass(wanted.model)) if view_of(wanted).rewords else None
        texts_by_path = self._texts_by_part_path(wanted, folder)
        missing = [
            p
            for p, part_texts in texts_by_path.items()
            if not pass_store.is_intact(p, [t.sha256 for t in part_texts])
        ]
        for path in {*folder.glob(pass_store.PARTS), *missing} - (
            texts_by_path.keys() - {*missing}
        ):
            path.unlink(missing_ok=True)
        if 0 < len(missing) < len(texts_by_path):
            finished = len(texts_by_path) - len(missing)
            log.info(
                "%s: %d of %d parts are already stored.", wanted.key, finished, len(texts_by_path)
            )
        self._write_parts(wanted, {path: texts_by_path[path] for path in missing}, text_stats)
        context = self._loaded_model(wanted.model).source.context
        return WrittenFiles(
            [path.name for path in texts_by_path], self._count_contents(folder, context)
        )

    def _texts_by_part_path(self, wanted: Pass, folder: Path) -> dict[Path, Sequence[Text]]:
        return {
            folder / pass_store.part_file_name(n): part_texts
            for n, part_texts in enumerate(divide_texts(self.texts, wanted))
        }

    def _write_missing_parts(
        self, wanted: Pass, texts_by_path: Mapping[Path, Sequence[Text]]
    ) -> int:
        """Writes the missing parts among these, and returns their number."""
        missing = {
            path: part_texts for path, part_texts in texts_by_path.items() if not path.exists()
        }
        if missing:
            text_stats = (
                self._original_text_stats(wanted, missing) if view_of(wanted).rewords else None
            )
            self._write_parts(wanted, missing, text_stats)
        return len(missing)

    def _original_text_stats(
        self, wanted: Pass, texts_by_path: Mapping[Path, Sequence[Text]]
    ) -> StatsByText:
        """Returns the statistics of the original texts, writing missing parts of their pass.

        Raises:
            ArtifactError: a part is damaged or of an earlier version.
        """
        original, wanted_parts = Pass(wanted.model), [*texts_by_path.values()]
        first, last = wanted_parts[0][0].sha256, wanted_parts[-1][-1].sha256
        folder = self.folder(original)
        original_parts = self._texts_by_part_path(original, folder).items()
        needed_parts = {
            p: part_texts
            for p, part_texts in original_parts
            if part_texts[0].sha256 <= last and first <= part_texts[-1].sha256
        }
        self._write_missing_parts(original, needed_parts)
        for path, part_texts in needed_parts.items():
            if not pass_store.is_intact(path, [text.sha256 for text in part_texts]):
                raise ArtifactError(
                    f"{path} is damaged, or of an earlier version, and no slice replaces existing "
                    "parts. Run the same command without slice: it makes the part again."
                )
        return StoredPass(folder)

    def _write_parts(
        self,
        wanted: Pass,
        texts_by_path: Mapping[Path, Sequence[Text]],
        text_stats: StatsByText | None,
    ) -> None:
        """Writes these parts, except any that another process has written in the meantime."""
        model = self._loaded_model(wanted.model)
        if len(texts_by_path) > 1:  # reports a bad text before any text is scored
            for part_texts in texts_by_path.values():
                model.tokenize(wanted, part_texts)
                release_memory()
        several = (
            len(texts_by_path) > 1 and text_stats is None and view_of(wanted).shares_beginnings
        )
        families_by_text = (
            families_by_sha256(map(Texts.of, texts_by_path.values())) if several else {}
        )
        rows_read: dict[str, list[PassRow]] = {}
        with keep_children_alive():
            for path, part_texts in texts_by_path.items():
                if not path.exists():
                    _add_rows_of_part(
                        model, wanted, part_texts, text_stats, families_by_text, rows_read
                    )
                    pass_store.write_rows(
                        path, [row for text in part_texts for row in rows_read.pop(text.sha256)]
                    )
                    release_memory()

    def _count_contents(self, folder: Path, context: int | None) -> dict[str, int]:
        """Counts the contents of the pass. A windowed text has at least `context` statistics."""
        stored, n_rows, n_tokens, n_windowed = StoredPass(folder), 0, 0, 0
        for copies in stored.values():
            n_rows += len(copies)
            n_tokens += sum(map(len, copies))
            n_windowed += context is not None and max(map(len, copies)) >= context
        return {
            "texts": len(self.texts),
            "rows": n_rows,
            "scored_tokens": n_tokens,
            "truncated": stored.count_truncated(),
            "windowed": n_windowed,
        }

    def _loaded_model(self, role: str) -> LoadedModel:
        if role not in self._loaded:
            from contamination.detection.loaded_model import LoadedModel

            self._loaded[role] = LoadedModel(self.models[role], self.settings, self.resources)
        return self._loaded[role]


def _add_rows_of_part(
    model: LoadedModel,
    wanted: Pass,
    part_texts: Sequence[Text],
    text_stats: StatsByText | None,
    families_by_text: dict[str, Texts],
    rows_read: dict[str, list[PassRow]],
) -> None:
    """Adds to `rows_read` the rows of these texts, and of texts of other parts read with them."""
    names = {text.sha256 for text in part_texts}
    relatives = {t.sha256: t for name in names for t in families_by_text.get(name, ())}
    for name in relatives:
        del families_by_text[name]  # the whole family is read at once
    new = [*part_texts, *(relatives[name] for name in sorted(relatives.keys() - names))]
    rows = model.run(wanted, [text for text in new if text.sha256 not in rows_read], text_stats)
    for name, text_rows in groupby(rows, attrgetter("text_sha256")):
        rows_read[name] = [*text_rows]


def covering_pass_by_pass(wanted: Collection[Pass]) -> dict[Pass, Pass]:
    """Returns, for each pass, the pass among them that contains its statistics."""
    return {
        p: view_of(p).covering_pass(
            p, (o for o in wanted if (o.model, o.view) == (p.model, p.view))
        )
        for p in wanted
    }


@dataclass(frozen=True)
class TokensRead:
    """The most tokens that models read to score one text.

    Attributes:
        target: by the scored model.
        other_models: by the reference model, whose passes are run once for all scored models.
        neighbours: by the masked language model that makes neighbours.
    """

    target: int
    other_models: int
    neighbours: int


def tokens_read(method_nodes: Mapping[str, Any], text_tokens: int) -> TokensRead:
    """Returns the most tokens that models read to score one text with the methods.

    Args:
        method_nodes: the config nodes of the methods, by name.
        text_tokens: the tokens of the text.
    """
    methods = build_methods(method_nodes).values()
    needed = with_token_count_pass({p for method in methods for p in method.passes})
    passes = set(covering_pass_by_pass(needed).values())
    tokens = {p: view_of(p).max_tokens_read(p, text_tokens) for p in passes}
    by_masked_lm = {p.view_key: p for p in passes if "masked_lm" in view_of(p).needs}
    copies = sum(view_of(p).copies_per_text(p) for p in by_masked_lm.values())
    return TokensRead(
        target=sum(count for p, count in tokens.items() if p.model == "target"),
        other_models=sum(count for p, count in tokens.items() if p.model != "target"),
        neighbours=text_tokens * copies,
    )


def divide_texts(texts: Sequence[Text], wanted: Pass) -> Iterator[Sequence[Text]]:
    """Yields the texts in parts of up to PART_CHARACTERS over all copies, or of one text."""
    copies = view_of(wanted).copies_per_text(wanted)
    start = characters = 0
    for index, text in enumerate(texts):
        characters_of_copies = len(text.text) * copies
        if index > start and (
            characters + characters_of_copies > PART_CHARACTERS or index - start >= PART_TEXTS
        ):
            yield texts[start:index]
            start, characters = index, 0
        characters += characters_of_copies
    if start < len(texts):
        yield texts[start:]
