"""Conducts an audit and stores it as an artefact.

::

    runs/audit/<audit>-<model>-<hash>/
    ├── config.yaml      the resolved config that first made it
    ├── <table>.parquet  one per table, with all figures
    ├── <table>.csv      the same for a spreadsheet
    ├── audit.md         conclusions and tables
    ├── report.html      the same as a page with charts, which needs no other file and no network
    └── manifest.json
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pyarrow as pa

from contamination.audits.base import AuditStage, PreparedAudit, check_audit
from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.config import identity_data, instantiate_node
from contamination.core.files import write_text_atomically
from contamination.core.integrity import errors_naming_file
from contamination.core.report.document import html_document, markdown_document
from contamination.core.report.tables import Table
from contamination.core.stored_files import read_text
from contamination.core.table_files import write_csv, write_parquet

KIND = "audit"
MARKDOWN, PAGE = "audit.md", "report.html"
log = logging.getLogger(__name__)


def run(stage: AuditStage) -> Artifact:
    """Conducts the audit, unless its folder is already complete.

    Returns:
        The audit's run folder.

    Raises:
        UserError: the input can't be used; nothing is written in that case.
    """
    audit = check_audit(instantiate_node("audit", stage.audit), stage.audit)
    stage.detection.require_whole_texts("an audit cuts its texts itself")
    prepared = audit.prepare(stage)
    settings = {"audit": {"kind": audit.kind, **identity_data(audit)}, "seed": stage.seed}
    settings |= prepared.settings
    slug = f"{audit.kind}-{prepared.slug}"
    folder = run_folder(Path(stage.runs), KIND, slug, settings, prepared.inputs)
    artifact = build_or_open(
        folder, stage, prepared.inputs, partial(_conduct_and_write, prepared), named=settings
    )
    log.info("audit: %s", artifact.path / PAGE)
    return artifact


def read_findings(artifact: Artifact) -> str:
    """Returns the audit's findings in Markdown.

    Raises:
        ArtifactError: the file can't be read.
    """
    with errors_naming_file(artifact.path / MARKDOWN):
        return read_text(artifact.path / MARKDOWN)


def _conduct_and_write(prepared: PreparedAudit, folder: Path) -> WrittenFiles:
    result = prepared.conduct(folder)
    table_files = [name for table in result.content.tables for name in _write_table(folder, table)]
    write_text_atomically(folder / MARKDOWN, markdown_document(result.content))
    write_text_atomically(folder / PAGE, html_document(result.content))
    return WrittenFiles([*table_files, *result.files, MARKDOWN, PAGE], result.counts)


def _write_table(folder: Path, table: Table) -> tuple[str, str]:
    """Writes the table's data as Parquet and as CSV; returns the files' names."""
    parquet_name, csv_name = f"{table.name}.parquet", f"{table.name}.csv"
    write_parquet(folder / parquet_name, pa.Table.from_pandas(table.data, preserve_index=False))
    write_csv(folder / csv_name, table.data)
    return parquet_name, csv_name
