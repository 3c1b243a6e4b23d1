"""What a cell reads from the Hugging Face hub: a dry run lists it, `launch fetch` fetches it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from contamination.core import hub
from contamination.core.errors import require
from contamination.core.models import MODEL_FILES, resolve
from contamination.core.terminal import fit
from contamination.data.readers.hub import fetch_rows, hub_nodes, rows_are_kept
from contamination.detection.methods.registry import build_methods
from contamination.detection.requirements import used_by
from contamination.injection.pool import source_name
from contamination.launch.benchmark import is_benchmark
from contamination.launch.plan import BASE, CellPlan, plan


@dataclass(frozen=True)
class ModelFiles:
    """A model's files, or those of a tokenizer alone."""

    field: str
    name: str
    kind = "model"

    def is_kept(self) -> bool:
        """Whether weights of it are in the hub's cache."""
        folder = hub.kept(self.name)
        return folder is not None and any(folder.glob("*.safetensors"))

    def fetch(self) -> None:
        """Bring them into the cache; a ConfigError where the hub can't give them."""
        hub.snapshot(self.field, self.name, MODEL_FILES)


@dataclass(frozen=True)
class DataSet:
    """The splits of a data set that a benchmark or a corpus reads."""

    field: str
    name: str
    config: str | None
    splits: tuple[str, ...]
    revision: str | None
    kind = "data set"

    def is_kept(self) -> bool:
        """Whether some of it is in the cache of `datasets`."""
        return rows_are_kept(self.name)

    def fetch(self) -> None:
        """Bring all rows of the splits into the cache; a UserError where the hub can't."""
        commit = hub.commit(self.field, self.name, kind="dataset", revision=self.revision)
        for split in self.splits:
            fetch_rows(self.name, self.config, split, commit)


Download = ModelFiles | DataSet


def downloads(cell: CellPlan) -> list[Download]:
    """What the cell reads from the hub, each once, in the order of its stages."""
    return list(dict.fromkeys([*_data_sets(cell), *_models(cell)]))


def described(found: list[Download]) -> list[str]:
    """A table of them; nothing is looked up."""
    if not found:
        return ["from the hub: nothing"]
    rows = [[f"  {d.field}", d.name, d.kind, "cached" if d.is_kept() else "-"] for d in found]
    note = "from the hub (python -m launch fetch … brings all into the cache):"
    return [note, *fit(["  for", "name", "is a", "here"], rows, least=("is a",)).lines()]


def fetch(config: DictConfig) -> None:
    """`python -m launch fetch …`: all of it into the caches, for machines without a network.

    Raises:
        UserError: the configuration can't work, or the hub can't give something.
    """
    remedy = "download its files and the models, and give examples.path=DIR model.path=DIR."
    require(not is_benchmark(config), "examples", "a labelled benchmark", remedy)
    found = downloads(plan(config, read=False))
    for one in found:
        print(f"{one.field}: {one.name} …", flush=True)
        one.fetch()
    print(f"{len(found)} in the hub's cache" if found else "nothing of this is on the hub")


def _models(cell: CellPlan) -> Iterator[Download]:
    used, own = used_by(build_methods(cell.detection.method)), cell.detection
    named = {
        "model.path": cell.training.model.path,
        "tokenizer.path": cell.injection.tokenizer.path,
        "reference.path": own.reference.path if "reference" in used else None,
        "masked_lm.path": own.masked_lm.path if "masked_lm" in used else None,
    }
    for field, path in named.items():
        if path not in (None, BASE) and not Path(where := resolve(field, str(path))).exists():
            yield ModelFiles(field, where)


def _data_sets(cell: CellPlan) -> Iterator[Download]:
    own = cell.injection
    nodes: dict[str, Any] = {"corpus": own.corpus}
    if cell.pretraining:
        nodes["base_corpus"] = cell.base_corpus
    for name, config in own.benchmark.items():
        nodes[f"benchmark.{name}"] = config.sources[source_name(own, name, config)]
    if cell.two_stages:
        sets = cell.second.clean.items()
        nodes |= {f"second_stage.instructions.{name}": config.rows for name, config in sets}
    for field, node in nodes.items():
        for found in hub_nodes(node):
            name, splits = str(found["path"]), tuple(found.get("splits") or [found["split"]])
            if not Path(name).is_dir():
                yield DataSet(field, name, found.get("config"), splits, found.get("revision"))
