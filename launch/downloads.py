"""What a cell reads from the Hugging Face hub, which `launch fetch` downloads in advance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from contamination.core import hub
from contamination.core.errors import require
from contamination.core.models import MODEL_FILES, resolve_model_path
from contamination.core.terminal import fit_columns
from contamination.data.readers.hub import download_split, hub_nodes, is_data_set_cached
from contamination.detection.methods.registry import build_methods
from contamination.detection.requirements import all_needs
from contamination.injection.pool import chosen_source
from contamination.launch.labelled_benchmark import is_benchmark
from contamination.launch.plan import BASE, CellPlan, plan


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model, or of a tokenizer alone."""

    field: str
    name: str
    kind = "model"

    def is_cached(self) -> bool:
        """Returns whether its weights are in the hub's cache."""
        folder = hub.cached_snapshot(self.name)
        return folder is not None and any(folder.glob("*.safetensors"))

    def fetch(self) -> None:
        """Downloads the files into the cache; raises a ConfigError if the hub has none."""
        hub.download_snapshot(self.field, self.name, MODEL_FILES)


@dataclass(frozen=True)
class DataSet:
    """The splits of a data set that a benchmark or a corpus reads."""

    field: str
    name: str
    config: str | None
    splits: tuple[str, ...]
    revision: str | None
    kind = "data set"

    def is_cached(self) -> bool:
        """Returns whether some of its rows are in the cache of `datasets`."""
        return is_data_set_cached(self.name)

    def fetch(self) -> None:
        """Downloads all rows of the splits into the cache; raises a UserError if that fails."""
        commit = hub.commit_on_hub(self.field, self.name, kind="dataset", revision=self.revision)
        for split in self.splits:
            download_split(self.name, self.config, split, commit)


Download = ModelFiles | DataSet


def list_downloads(cell: CellPlan) -> list[Download]:
    """Returns what the cell reads from the hub, without repeats, in the order of its stages."""
    return list(dict.fromkeys([*_iter_data_set_downloads(cell), *_iter_model_downloads(cell)]))


def describe_downloads(listed: list[Download]) -> list[str]:
    """Returns the lines of a table of the downloads, without asking the hub."""
    if not listed:
        return ["from the hub: nothing"]
    rows = [[f"  {d.field}", d.name, d.kind, "cached" if d.is_cached() else "-"] for d in listed]
    note = "from the hub (python -m launch fetch … brings all into the cache):"
    return [note, *fit_columns(["  for", "name", "is a", "here"], rows, least=("is a",)).lines()]


def fetch(config: DictConfig) -> None:
    """Downloads everything into the caches for machines without a network (`launch fetch`).

    Raises:
        UserError: the configuration is invalid, or something can't be downloaded.
    """
    remedy = "download its files and the models, and give examples.path=DIR model.path=DIR."
    require(not is_benchmark(config), "examples", "a labelled benchmark", remedy)
    all_downloads = list_downloads(plan(config, read_benchmarks=False))
    for download in all_downloads:
        print(f"{download.field}: {download.name} …", flush=True)
        download.fetch()
    count = len(all_downloads)
    print(f"{count} in the hub's cache" if count else "nothing of this is on the hub")


def _iter_model_downloads(cell: CellPlan) -> Iterator[Download]:
    detection = cell.detection
    roles = all_needs(build_methods(detection.method))
    paths = {
        "model.path": cell.training.model.path,
        "tokenizer.path": cell.injection.tokenizer.path,
        "reference.path": detection.reference.path if "reference" in roles else None,
        "masked_lm.path": detection.masked_lm.path if "masked_lm" in roles else None,
    }
    for field, path in paths.items():
        if (
            path not in (None, BASE)
            and not Path(where := resolve_model_path(field, str(path))).exists()
        ):
            yield ModelFiles(field, where)


def _iter_data_set_downloads(cell: CellPlan) -> Iterator[Download]:
    injection = cell.injection
    nodes: dict[str, Any] = {"corpus": injection.corpus}
    if cell.pretraining:
        nodes["base_corpus"] = cell.base_corpus
    for name, config in injection.benchmark.items():
        nodes[f"benchmark.{name}"] = config.sources[chosen_source(injection, name, config)]
    if cell.has_second_stage:
        sets = cell.second.clean_sets.items()
        nodes |= {f"second_stage.instructions.{name}": config.rows for name, config in sets}
    for field, node in nodes.items():
        for source in hub_nodes(node):
            name, splits = str(source["path"]), tuple(source.get("splits") or [source["split"]])
            if not Path(name).is_dir():
                yield DataSet(field, name, source.get("config"), splits, source.get("revision"))
