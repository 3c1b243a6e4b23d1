"""The cells of a sweep that an audit reads: given as a finished report, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.analysis.cells import CONTAMINATED, Cell, name_apart, open_cell
from contamination.analysis.config import CellPaths
from contamination.analysis.report_folder import cell_paths
from contamination.core.errors import ArtifactError, ConfigError, near_names
from contamination.injection.corpus import PackedCorpus, open_corpus
from contamination.injection.finetuning.config import FINETUNING
from contamination.training.trained_model import open_trained

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class AuditedCell:
    """A cell whose model was trained on its corpus, as an audit reads it."""

    paths: CellPaths
    cell: Cell
    corpus: PackedCorpus

    @property
    def name(self) -> str:
        """Its condition and its seed."""
        return self.cell.name

    @property
    def doses(self) -> NDArray[np.int64]:
        """How often each example was inserted; 0: a non-member. Shape (examples,)."""
        doses: NDArray[np.int64] = self.cell.examples["occurrences"].to_numpy(np.int64)
        return doses

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the cell's artefacts, by name."""
        return {f"{self.name}/{name}": digest for name, digest in self.cell.digests.items()}

    @property
    def digests_key(self) -> tuple[tuple[str, str], ...]:
        """The same without the name, which other cells may change."""
        return tuple(sorted(self.cell.digests.items()))

    @property
    def attacks(self) -> list[str]:
        """The names of the methods with which it was scored, such as "min_k k=0.2"."""
        return [f"{method} {variant}".strip() for method, variant in self.cell.scores[CONTAMINATED]]

    def scores(self, field: str, attack: str) -> Scores:
        """Returns the scores of a method, by its name or its name and variant.

        Raises:
            ConfigError: the cell has no scores of it, or several of that name.
        """
        table = self.cell.scores[CONTAMINATED]
        keys = {f"{method} {variant}".strip(): (method, variant) for method, variant in table}
        defaults = [name for name, key in keys.items() if key[0] == attack]
        if attack not in keys and len(defaults) > 1:
            defaults = [name for name in defaults if keys[name] in self.cell.defaults]
        name = attack if attack in keys else next(iter(defaults), "")
        if name not in keys:
            hint = near_names(attack, keys)
            raise ConfigError(f"{field} is {attack!r}: cell {self.name} has no such scores. {hint}")
        scores: Scores = table[keys[name]].to_numpy(np.float64)
        return scores


def open_cells(
    field: str, source: Any, *, members_in_finetuning: bool = False
) -> list[AuditedCell]:
    """Opens the cells of one or several reports, or those in a list of {corpus, model, …}.

    Args:
        field: the config field that names them, for errors.
        source: the reports, or the list.
        members_in_finetuning: whether a model may have seen the members in its fine-tuning set
            alone, so that the corpus's ledger and flags say nothing about it.

    Raises:
        ConfigError: it is neither.
        ArtifactError: an artefact can't be used, or a model was not trained on its corpus.
    """
    return [
        _open_audited_cell(f"{field}.{i}", paths, members_in_finetuning)
        for i, paths in enumerate(cell_paths(field, source))
    ]


def _open_audited_cell(field: str, paths: CellPaths, members_in_finetuning: bool) -> AuditedCell:
    corpus, cell = open_corpus(paths.corpus), open_cell(paths)
    if cell.stage == FINETUNING and members_in_finetuning and paths.finetuning is not None:
        texts = open_corpus(paths.finetuning).artifact
        if texts.inputs.get("corpus") != corpus.artifact.digest:
            raise ArtifactError(
                f"{field}.corpus is {paths.corpus}: the members of {texts.path} were not "
                "taken from it, so its labels say nothing about the model. Give the "
                "corpus that the set was made from (corpus_folder)."
            )
        return AuditedCell(paths, cell, corpus)
    model = open_trained(f"{field}.model", paths.first or paths.model)
    if model.artifact.inputs.get("corpus") != corpus.artifact.digest:
        raise ArtifactError(
            f"{field}.corpus is {paths.corpus}: the model {model.artifact.path} was not trained on "
            "it, so its labels say nothing about that model. Give the corpus of its training, or "
            "launch the cell again."
        )
    return AuditedCell(paths, cell, corpus)


def named_apart(cells: Sequence[AuditedCell]) -> list[AuditedCell]:
    """Returns the cells in order, with distinct names; see `analysis.cells.name_apart`."""
    by_digest = {cell.digests_key: cell for cell in cells}
    named = name_apart([cell.cell for cell in cells])
    return [replace(by_digest[tuple(sorted(c.digests.items()))], cell=c) for c in named]


def choose_cell(field: str, cells: Sequence[AuditedCell], name: str | None) -> AuditedCell:
    """Returns the cell of that name, or the only cell.

    Raises:
        ConfigError: there is none of that name, or there are several and none is named.
    """
    by_name = {cell.name: cell for cell in cells}
    if name is None and len(cells) == 1:
        return cells[0]
    if name not in by_name:
        raise ConfigError(f"{field} is {name!r}: name one cell. {near_names(str(name), by_name)}")
    return by_name[name]
