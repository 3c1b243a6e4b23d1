"""`python -m injection export`: writes a finished corpus in a trainer's format and verifies it.

runs/export/<format>-<corpus>-<hash>/ contains the trainer's files (tokens.bin, …), the corpus's
examples.parquet and tokenizer/, and its ledger.parquet with positions in the exported files.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import get_class

from contamination.core import artifacts
from contamination.core.artifacts import Artifact, WrittenFiles, run_folder
from contamination.core.config import instantiate_node
from contamination.core.errors import DataError, require
from contamination.core.integrity import errors_naming_folders, read_manifest
from contamination.core.registry import create_stored_object
from contamination.injection.config import ExportStage
from contamination.injection.corpus import (
    ContaminatedFolder,
    PackedCorpus,
    check_not_finetuning_set,
    open_corpus,
)
from contamination.injection.export.base import Format
from contamination.injection.verification import Proof

log = logging.getLogger(__name__)

KIND = "export"


def export_corpus(stage: ExportStage) -> Artifact:
    """Returns the export of a corpus in a trainer's format, which is written unless it exists.

    Raises:
        ArtifactError: the corpus is missing, unfinished or damaged.
        ConfigError: the format is unknown, or unsuitable for the corpus.
        DataError: the written files differ from the corpus.
    """
    remedy = "give a folder that the injection stage wrote, runs/corpus/…."
    require(bool(stage.corpus_folder), "corpus_folder", stage.corpus_folder, remedy)
    corpus, export_format = open_corpus(stage.corpus_folder), _create_format(stage.format)
    check_not_finetuning_set("corpus_folder", corpus)
    inputs = {"corpus": corpus.artifact.digest}
    with errors_naming_folders(stage.corpus_folder):
        slug = f"{type(export_format).__name__.lower()}-{corpus.slug}"
    folder = run_folder(Path(stage.runs), KIND, slug, stage, inputs)
    artifact = artifacts.build_or_open(
        folder, stage, inputs, partial(_make_export, export_format, corpus)
    )
    for loss, times in artifact.counts["lost"].items():
        log.warning("export: differs from the corpus: %d × %s", times, loss)
    if natural := artifact.counts["elsewhere"]:
        log.warning(
            "export: texts of the pool occur %d times in documents, besides the copies", natural
        )
    log.info("export: %s", artifact.path)
    log.info("read it with %s", export_format.USAGE.format(folder=folder, **artifact.counts))
    return artifact


def open_export(folder: Path | str) -> ContaminatedFolder:
    """Returns a finished export.

    Raises:
        ArtifactError: the export is missing, unfinished or damaged.
    """
    return ContaminatedFolder(artifacts.open_artifact(folder, KIND))


def is_export(folder: Path | str) -> bool:
    """Returns whether the folder is a finished export."""
    return artifacts.is_complete(Path(folder)) and read_manifest(Path(folder))["kind"] == KIND


def prove_finished_export(folder: Path | str, formats: Collection[str] = ()) -> Proof:
    """Verifies a finished export again from its files.

    Args:
        folder: the export.
        formats: import paths of the user's classes that its config may name.

    Raises:
        ArtifactError: the export is missing, unfinished or damaged, or names another class.
    """
    opened_export = open_export(folder)
    node, where = (
        opened_export.config.get("format"),
        str(opened_export.artifact.path / artifacts.CONFIG),
    )
    export_format = create_stored_object("format", node, Format, where, formats)
    try:
        proof = _prove_export(export_format, opened_export)
    except DataError as error:
        return Proof(failures=[str(error)])
    recorded = opened_export.artifact.counts["elsewhere"]
    if proof.natural_count != recorded:
        proof.failures.append(
            f"{proof.natural_count} texts of the pool besides the ledger's, but {recorded} were "
            "recorded"
        )
    return proof


def _prove_export(export_format: Format, opened_export: ContaminatedFolder) -> Proof:
    """Verifies an export, and checks that as much was read as was written."""
    proof = export_format.prove(opened_export)
    units = f"{proof.units.unit}s"
    written_units = opened_export.artifact.counts[units]
    if proof.tokens != written_units:
        proof.failures.append(f"{proof.tokens} {units}, but {written_units} were written")
    return proof


def _create_format(format_config: dict[str, Any]) -> Format:
    """Returns the format that a configuration node describes."""
    target = str(format_config.get("_target_"))
    try:
        is_format = issubclass(get_class(target), Format)
    except Exception:  # Hydra raises various errors
        is_format = False
    require(is_format, "format._target_", target, "choose one of the files in conf/format/.")
    export_format: Format = instantiate_node("format", format_config)
    return export_format


def _make_export(export_format: Format, corpus: PackedCorpus, folder: Path) -> WrittenFiles:
    with errors_naming_folders(corpus.artifact.path):
        written = export_format.write(corpus, folder)
    written.ledger.to_parquet(folder / "ledger.parquet", index=False)
    corpus.examples.to_parquet(folder / "examples.parquet", index=False)
    files = sorted(name for name in corpus.artifact.files if name.startswith("tokenizer/"))
    shutil.rmtree(folder / "tokenizer", ignore_errors=True)  # left by an interrupted run
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(corpus.artifact.path / name, folder / name)
    with errors_naming_folders(corpus.artifact.path):
        proof = _prove_export(
            export_format, ContaminatedFolder(Artifact(folder, KIND, "", {}, written.counts, {}))
        )
    if proof.failures:
        raise DataError(str(proof))
    log.info("ledger: %s", proof)
    counts = {"lost": {}, **written.counts, "elsewhere": proof.natural_count}
    return WrittenFiles([*written.files, "ledger.parquet", "examples.parquet", *files], counts)
