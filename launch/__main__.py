"""`python -m launch experiment=quickstart [overrides]`: the whole way; `-m` for a sweep.

`python -m launch status [runs=DIR | FOLDER]`: what became of each cell; `… report FOLDER`: a
launch's report again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from core.command import command, said
from core.errors import ArtifactError
from core.stopping import SIGNALS
from launch.folder import Launch
from launch.status import status

STOPPED = [128 + number for number in SIGNALS]


def _report(folder: Path) -> int:
    from launch.run import report  # here, so that status answers at once

    if not (folder / "cells").is_dir():
        raise ArtifactError(f"{folder} is no launch's folder: give one of runs/launches/.")
    return report(Launch(folder.resolve()))


def _launch() -> int:
    from launch.run import conclude, run

    code = 1
    try:
        code = command("pipeline", run)
    finally:  # a cell's process that died ends Hydra's launcher, not what the others made
        if code not in STOPPED and not isinstance(sys.exception(), KeyboardInterrupt):
            code = max(code, said(conclude))
    return code


def main() -> int:
    """Run a launch, or one of its tools."""
    match sys.argv[1:]:
        case ["status"]:
            return said(lambda: print(status(Path("runs"))))
        case ["status", place]:
            return said(lambda: print(status(Path(place.removeprefix("runs=")))))
        case ["report", folder]:
            return said(lambda: _report(Path(folder)))
        case ["status" | "report", *_]:
            print(__doc__, file=sys.stderr)
            return 2
    return _launch()


if __name__ == "__main__":
    sys.exit(main())
