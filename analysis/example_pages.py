"""Pages of a cell's examples, token by token, in the report's folder."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from contamination.analysis.config import CellPaths
from contamination.core.artifacts import Artifact
from contamination.core.config import convert_config
from contamination.core.errors import ArtifactError, UserError
from contamination.core.hub import hub_offline
from contamination.core.integrity import errors_naming_folders
from contamination.core.registry import find_registered_class
from contamination.core.stored_files import count_values, escape_interpolations
from contamination.detection.config import ViewStage
from contamination.detection.methods.base import Method
from contamination.detection.scores import open_scores
from contamination.detection.viewer.run import run as write_view

FOLDER = "examples"
STORED = ("name", "seed", "runs", "examples", "masked_lm", "prefix", "detection")
"""What a page takes unchanged from the scores' config: plain values, and folders to read."""
MOST_VALUES = 10_000
"""Of a scores' config; that of all methods and MIMIR has fewer than 1,000."""
log = logging.getLogger(__name__)


def write_example_pages(folder: Path, cells: Iterable[CellPaths], count: int) -> list[Path]:
    """Writes a page per cell: `count` members and non-members, scored before and after training.

    The pages read stored passes; a cell whose passes or texts are gone has none, as the log
    explains. See `detection.viewer.run`.
    """
    written = []
    for cell in cells if count else ():
        scored, before = (open_scores(path).artifact for path in (cell.contaminated, cell.clean))
        page = folder / FOLDER / f"{scored.path.name}.html"
        page.parent.mkdir(exist_ok=True)
        try:
            with errors_naming_folders(scored.path, before.path):
                stage = _page_config(
                    scored, before, {"view": {"examples": count}, "out": str(page)}
                )
            with hub_offline():
                written.append(write_view(stage))
        except UserError as error:
            log.warning("No page of the examples of %s: %s", scored.path.name, error)
    return written


def _page_config(scored: Artifact, before: Artifact, page_settings: Mapping[str, Any]) -> ViewStage:
    """Returns the page's config from those of the scores, which may come from elsewhere: data only.

    They can choose the project's own classes only, run no model's code and send no request to a
    server. What they name on the hub is read from its cache (`only_cached`).

    Raises:
        ArtifactError: a server ran one of the models.
        ConfigError: a value that is not allowed.
    """
    config = scored.config()
    models = {"model": config["model"], "reference": before.config()["model"]}
    for field, node in models.items():
        if node["path"] is None:
            raise ArtifactError(
                f"{field} was scored behind a server, which a report does not ask. The page comes "
                "from python -m detection view model.url=… instead."
            )
    _check_not_a_stream(config["examples"].get("path"))
    methods = {
        name: node
        for name, node in config["method"].items()
        if find_registered_class("method", node["_target_"], Method)
    }
    stored = {name: config[name] for name in STORED if name in config}
    if (count := count_values({**stored, "method": methods})) > MOST_VALUES:
        raise ArtifactError(
            f"{scored.path}: its config has {count:,} values, and a page reads at most "
            f"{MOST_VALUES:,}. Score the texts with fewer variants or parts for a page of them."
        )
    paths = {field: {"path": node["path"]} for field, node in models.items()}
    nodes = escape_interpolations({**stored, **paths, "method": methods})
    return convert_config(OmegaConf.create({**nodes, **page_settings}), ViewStage)


def _check_not_a_stream(path: Any) -> None:
    """Raises an ArtifactError if examples would be read from standard input, a pipe or a device."""
    file = Path(path or ".")
    if path == "-" or (file.exists() and not (file.is_file() or file.is_dir())):
        raise ArtifactError(f"examples.path is {path!r}: a report reads files and folders only.")
