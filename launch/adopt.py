"""`python -m launch adopt`: copies a model or corpus from elsewhere into a runs folder.

A finished folder of another runs folder keeps its name and its manifest, so that the command that
would make it reuses it. A Hugging Face folder gets a manifest of its own:

::

    runs/model/<the folder's name>-<hash>/
    ├── config.yaml     where it was copied from
    ├── hf/             the copy
    └── manifest.json
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from contamination.core import artifacts
from contamination.core.config import runtime_field
from contamination.core.errors import ArtifactError, DataError, require
from contamination.core.files import sync_to_disk, write_text_atomically
from contamination.core.hashing import combined_digest, digests_by_name, file_digests_of_folder
from contamination.core.integrity import MANIFEST
from contamination.core.lock import exclusive_build
from contamination.core.models import load_model, load_tokenizer
from contamination.core.output_paths import check_writable_folder, disk_errors_as_data_errors
from contamination.core.stored_files import read_text
from contamination.training import trained_model
from contamination.training.trained_model import ancestry_of

REMEDIES = {
    "model": "it has neither manifest.json nor config.json. Give a Hugging Face folder "
    "(config.json, model.safetensors, tokenizer.json), or a finished model folder.",
    "corpus": "it has no manifest.json. Give a finished corpus folder of another runs folder; "
    "documents become one with python -m injection corpus=local_jsonl corpus.paths=….",
}


@dataclass(frozen=True)
class Adopted:
    """The content of config.yaml for a copied model."""

    adopted_from: str = runtime_field("")


def adopt(kind: str, path: str, runs: str) -> artifacts.Artifact:
    """Copies a finished folder of the kind, or a Hugging Face folder of a model, into `runs`.

    Raises:
        ConfigError: there is nothing at `path` that can be adopted.
        ArtifactError: it is damaged, or another artefact has its name.
        DataError: the disk refuses the copy, or the files change meanwhile.
    """
    require(kind in REMEDIES, "kind", kind, f"give one of {', '.join(REMEDIES)}.")
    source = Path(path).expanduser().resolve()
    remedy = "there is no such folder. A hub id needs none: give it as model.path."
    require(bool(path) and source.is_dir(), "path", path, remedy)
    inside = source in {Path(runs).resolve(), *Path(runs).resolve().parents}
    require(bool(runs) and not inside, "runs", runs, "give a folder that is not in path.")
    check_writable_folder("runs", runs)
    if artifacts.is_complete(source):
        return _copy_artifact(artifacts.open_artifact(source, kind), Path(runs))
    owner = next((folder for folder in source.parents[:2] if artifacts.is_complete(folder)), None)
    require(owner is None, "path", path, f"it is a part of the artefact {owner}: give that folder.")
    adoptable = kind == "model" and (source / "config.json").is_file()
    require(adoptable, "path", path, REMEDIES[kind])
    return _adopt_hf_model(source, Path(runs))


ADOPTING = ".adopting"
"""A file that marks a folder while a finished one is copied into it."""


def _copy_artifact(source: artifacts.Artifact, runs: Path) -> artifacts.Artifact:
    """Copies a finished folder with its manifest, under its own name unless it was renamed."""
    folder_name = source.path.name
    if not artifacts.RUN_FOLDER_NAME.fullmatch(folder_name):
        folder_name = f"{folder_name}-{source.digest[:12]}"
    folder = runs / source.kind / folder_name
    is_there = source.path.parent == folder.parent.resolve()
    remedy = "it is an artefact of this runs folder already: use it as it is."
    require(not is_there, "path", str(source.path), remedy)
    with exclusive_build(folder) as check, disk_errors_as_data_errors(folder):
        if not artifacts.is_complete(folder):
            _prepare_empty_folder(folder)
            (folder / ADOPTING).touch()
            _copy_files(source.path, folder, [artifacts.CONFIG, *source.files, *source.records])
            check()
            (folder / ADOPTING).unlink()
            write_text_atomically(folder / MANIFEST, read_text(source.path / MANIFEST))
    copy = artifacts.open_artifact(folder, source.kind)
    if copy.digest != source.digest:
        raise ArtifactError(
            f"{folder} exists already, with other content than {source.path} (its digest is "
            f"{copy.digest[:12]}…, not {source.digest[:12]}…): use that one, or give another runs."
        )
    return copy


def _prepare_empty_folder(folder: Path) -> None:
    """Empty the folder if a killed adoption left it; refuse a folder that a stage began."""
    if folder.is_dir() and not (folder / ADOPTING).exists() and any(folder.iterdir()):
        raise ArtifactError(
            f"{folder} exists, is unfinished, and was not begun by an adoption: finish it by its "
            "own command, or remove it, or give another runs."
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _adopt_hf_model(source: Path, runs: Path) -> artifacts.Artifact:
    load_tokenizer("path", str(source))
    model = load_model("path", str(source), device_map="meta")  # without the weights' values
    parameters = sum(weights.numel() for weights in model.parameters())
    files = file_digests_of_folder(source)

    def make(folder: Path) -> artifacts.WrittenFiles:
        copy = folder / trained_model.HF
        shutil.rmtree(copy, ignore_errors=True)
        _copy_files(source, copy, files)
        if digests_by_name({file_name: copy / file_name for file_name in files}) != files:
            raise DataError(f"{source} changed while it was copied: run the same command again.")
        counts = {"parameters": parameters, **ancestry_of("path", str(source)).manifest_entries()}
        return artifacts.WrittenFiles(
            [f"{trained_model.HF}/{file_name}" for file_name in files], counts
        )

    inputs = {"model": combined_digest(files)}
    folder = artifacts.run_folder(runs, trained_model.KIND, source.name, Adopted(), inputs)
    return artifacts.build_or_open(folder, Adopted(str(source)), inputs, make)


def _copy_files(source: Path, target: Path, names: Iterable[str]) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
        sync_to_disk(target / name)
