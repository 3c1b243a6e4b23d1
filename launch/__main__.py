"""`python -m launch experiment=quickstart [overrides]`: the whole way; `-m` for a sweep."""

from __future__ import annotations

import sys

from core.command import command, said
from launch.sweep import conclude, run

if __name__ == "__main__":
    status = command("pipeline", run)
    sys.exit(status or said(conclude))
