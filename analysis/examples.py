"""Pages of a cell's examples, token by token, beside its report."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from omegaconf import OmegaConf

from analysis.config import CellPaths
from core.config import convert
from core.errors import UserError
from detection import open_scores
from detection.view.run import ViewStage
from detection.view.run import run as write_view

FOLDER = "examples"
log = logging.getLogger(__name__)


def write_examples(folder: Path, cells: Iterable[CellPaths], count: int) -> list[Path]:
    """A page a cell: `count` members and non-members, the model after the training beside before.

    The pages read stored passes; a cell whose passes or texts are gone has none, and the log says
    why. See `detection.view.run`.
    """
    written = []
    for cell in cells if count else ():
        scored, before = (open_scores(path).artifact for path in (cell.contaminated, cell.clean))
        page = folder / FOLDER / f"{scored.path.name}.html"
        page.parent.mkdir(exist_ok=True)
        own = {"view": {"examples": count}, "out": str(page), "reference": before.config()["model"]}
        try:
            stage = convert(OmegaConf.create({**scored.config(), **own}), ViewStage)
            written.append(write_view(stage))
        except UserError as error:
            log.warning("No page of the examples of %s: %s", scored.path.name, error)
    return written
