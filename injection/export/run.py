"""`python -m injection export`: a finished corpus in a trainer's own files, and their proof.

::

    runs/export/<format>-<corpus>-<hash>/
    ├── config.yaml       the format's settings
    ├── tokens.bin …      what the trainer reads
    ├── ledger.parquet    the corpus's, with the export's own coordinates
    ├── examples.parquet  the corpus's
    ├── tokenizer/        the corpus's
    └── manifest.json
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import get_class

from contamination.core.artifacts import (
    CONFIG,
    Artifact,
    Built,
    build,
    is_complete,
    locate,
    open_artifact,
)
from contamination.core.config import create, runtime
from contamination.core.errors import DataError, require
from contamination.core.integrity import read_manifest, reading
from contamination.core.registry import stored_object
from contamination.injection.corpus import (
    Contaminated,
    PackedCorpus,
    open_corpus,
    refuse_finetuning,
)
from contamination.injection.export.base import Format
from contamination.injection.verification import Proof

log = logging.getLogger(__name__)

KIND = "export"


@dataclass(frozen=True)
class ExportStage:
    """Everything that `export` needs."""

    runs: str = runtime("runs")
    corpus_folder: str = runtime("")
    format: dict[str, Any] = field(default_factory=dict)


def export(stage: ExportStage) -> Artifact:
    """Write a corpus in a trainer's format, or find it written.

    Raises:
        ArtifactError: the corpus is not there, unfinished, or damaged.
        ConfigError: there is no such format, or it can't hold the corpus.
        DataError: what was written is not what the corpus holds.
    """
    remedy = "give a folder that the injection stage wrote, runs/corpus/…."
    require(bool(stage.corpus_folder), "corpus_folder", stage.corpus_folder, remedy)
    corpus, form = open_corpus(stage.corpus_folder), _format(stage.format)
    refuse_finetuning("corpus_folder", corpus)
    inputs = {"corpus": corpus.artifact.digest}
    with reading(stage.corpus_folder):
        slug = f"{type(form).__name__.lower()}-{corpus.slug}"
    folder = locate(Path(stage.runs), KIND, slug, stage, inputs)
    artifact = build(folder, stage, inputs, partial(_make, form, corpus))
    for what, times in artifact.counts["lost"].items():
        log.warning("export: not as in the corpus: %d × %s", times, what)
    if natural := artifact.counts["elsewhere"]:
        log.warning(
            "export: texts of the pool stand %d times in documents, beside the copies", natural
        )
    log.info("export: %s", artifact.path)
    log.info("read it with %s", form.USAGE.format(folder=folder, **artifact.counts))
    return artifact


def open_export(folder: Path | str) -> Contaminated:
    """Open a finished export.

    Raises:
        ArtifactError: there is none, or it is unfinished or damaged.
    """
    return Contaminated(open_artifact(folder, KIND))


def is_export(folder: Path | str) -> bool:
    """Whether it is a finished folder of this stage."""
    return is_complete(Path(folder)) and read_manifest(Path(folder))["kind"] == KIND


def reprove(folder: Path | str, formats: Collection[str] = ()) -> Proof:
    """Prove a finished export again from its files.

    Args:
        folder: the export.
        formats: paths of the user's own classes that its config may name besides those of conf/.

    Raises:
        ArtifactError: there is none, it is unfinished or damaged, or it names another class.
    """
    opened = open_export(folder)
    node, where = opened.config.get("format"), str(opened.artifact.path / CONFIG)
    form = stored_object("format", node, Format, where, formats)
    try:
        proof = _proof(form, opened)
    except DataError as error:
        return Proof(failures=[str(error)])
    known = opened.artifact.counts["elsewhere"]
    if proof.elsewhere != known:
        found = f"{proof.elsewhere} texts of the pool beside the ledger's, {known} were there"
        proof.failures.append(found)
    return proof


def _proof(form: Format, opened: Contaminated) -> Proof:
    """The format's own, and whether as much was read as was written."""
    proof = form.prove(opened)
    units = f"{proof.units.unit}s"
    written = opened.artifact.counts[units]
    if proof.tokens != written:
        proof.failures.append(f"{proof.tokens} {units}, {written} were written")
    return proof


def _format(node: dict[str, Any]) -> Format:
    """The format of a node that the user gave; nothing is called that is none."""
    target = str(node.get("_target_"))
    try:
        known = issubclass(get_class(target), Format)
    except Exception:  # hydra's, of several kinds
        known = False
    require(known, "format._target_", target, "choose one of the files in conf/format/.")
    made: Format = create("format", node)
    return made


def _make(form: Format, corpus: PackedCorpus, folder: Path) -> Built:
    with reading(corpus.artifact.path):
        written = form.write(corpus, folder)
    written.ledger.to_parquet(folder / "ledger.parquet", index=False)
    corpus.examples.to_parquet(folder / "examples.parquet", index=False)
    files = sorted(name for name in corpus.artifact.files if name.startswith("tokenizer/"))
    shutil.rmtree(folder / "tokenizer", ignore_errors=True)  # of a run that was stopped
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(corpus.artifact.path / name, folder / name)
    with reading(corpus.artifact.path):
        proof = _proof(form, Contaminated(Artifact(folder, KIND, "", {}, written.counts, {})))
    if proof.failures:
        raise DataError(str(proof))
    log.info("ledger: %s", proof)
    counts = {"lost": {}, **written.counts, "elsewhere": proof.elsewhere}
    return Built([*written.files, "ledger.parquet", "examples.parquet", *files], counts)
