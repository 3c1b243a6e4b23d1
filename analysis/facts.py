"""What a cell is and how it was made, in words; and what wrote the report."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from analysis.cells import Cell
from analysis.training_record import Record, utc
from analysis.two_stages import PLACES
from core.artifacts import code_revision

PACKAGES = ("contamination-testbed", "torch", "transformers", "deepspeed", "numpy", "scikit-learn")

Facts = Mapping[str, str]


def cell_facts(cell: Cell, record: Record | None) -> Facts:
    """A cell's facts in words; those of its training need its record."""
    members = cell.examples[cell.examples["member"]]
    numbers = sorted(set(members["occurrences"]) - {0})
    return {
        "cell": cell.name,
        "model": cell.model,
        "parameters": "–" if cell.parameters is None else f"{cell.parameters:,}",
        "corpus tokens": f"{cell.budget_tokens:,}",
        "learning rate": f"{cell.learning_rate:g}",
        "occurrences": ", ".join(map(str, numbers)) or "0",
        "examples": f"{len(members)} + {len(cell.examples) - len(members)}",
        **({"members in": PLACES[cell.stage], "scored": cell.scope} if cell.stage else {}),
        **({"epochs": str(cell.epochs)} if cell.epochs > 1 else {}),
        "seed": str(cell.seed),
        **(record.made if record else {}),
    }


def provenance() -> Facts:
    """The command, the code and the machine that write the report, and when."""
    command = [Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]]
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    host = f"{socket.gethostname()}: {platform.system()} {platform.machine()}"
    return {
        "command": shlex.join(command),
        "code": code_revision(),
        "written": utc(datetime.now(UTC).timestamp()),
        "machine": f"{host}, {os.cpu_count()} CPU cores",
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
    }
