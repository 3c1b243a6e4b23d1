"""An audit as an artefact.

::

    runs/audit/<audit>-<model>-<hash>/
    ├── config.yaml      the resolved config that first made it
    ├── <table>.parquet  one each table, with all figures
    ├── <table>.csv      the same for a spreadsheet
    ├── audit.md         what was found, for a reader
    ├── report.html      the same as a page with charts, which needs no other file and no network
    └── manifest.json
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pyarrow as pa

from core.artifacts import Artifact, Built, build, locate
from core.config import create, identity
from core.csv_files import write_csv
from core.files import write_text
from core.parquet_files import write_parquet
from core.stored import read_text
from core.wholeness import parsing
from detection.audits.base import AuditStage, Prepared, audit_of
from detection.audits.findings import Table
from detection.audits.markdown import markdown
from detection.audits.page import page

KIND = "audit"
MARKDOWN, PAGE = "audit.md", "report.html"
log = logging.getLogger(__name__)


def run(stage: AuditStage) -> Artifact:
    """Do the audit, or find it done.

    Raises:
        UserError: what can't be used; nothing is written then.
    """
    audit = audit_of(create("audit", stage.audit), stage.audit)
    stage.detection.require_whole("an audit cuts its texts itself")
    prepared = audit.prepare(stage)
    named = {"audit": {"kind": audit.kind, **identity(audit)}, "seed": stage.seed}
    named |= prepared.settings
    slug = f"{audit.kind}-{prepared.slug}"
    folder = locate(Path(stage.runs), KIND, slug, named, prepared.inputs)
    artifact = build(folder, stage, prepared.inputs, partial(_make, prepared), named=named)
    log.info("audit: %s", artifact.path / PAGE)
    return artifact


def findings(artifact: Artifact) -> str:
    """What the audit found, in Markdown.

    Raises:
        ArtifactError: it can't be read.
    """
    with parsing(artifact.path / MARKDOWN):
        return read_text(artifact.path / MARKDOWN)


def _make(prepared: Prepared, folder: Path) -> Built:
    found = prepared.find(folder)
    written = [name for table in found.tables for name in _write(folder, table)]
    write_text(folder / MARKDOWN, markdown(found))
    write_text(folder / PAGE, page(found))
    return Built([*written, *found.files, MARKDOWN, PAGE], found.counts)


def _write(folder: Path, table: Table) -> tuple[str, str]:
    """Write the table's two files; their names."""
    names = f"{table.name}.parquet", f"{table.name}.csv"
    write_parquet(folder / names[0], pa.Table.from_pandas(table.rows, preserve_index=False))
    write_csv(folder / names[1], table.rows)
    return names
