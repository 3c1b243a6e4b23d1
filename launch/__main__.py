"""`python -m launch experiment=quickstart [overrides]`: the whole way; `-m` for a sweep."""

from __future__ import annotations

import sys

from core.command import command, said
from core.errors import StoppedError
from launch.sweep import conclude, run

if __name__ == "__main__":
    status = 1
    try:
        status = command("pipeline", run)
    finally:  # a cell's process that died ends Hydra's launcher, not what the others made
        if status != StoppedError.status:
            status = max(status, said(conclude))
    sys.exit(status)
