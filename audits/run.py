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

from contamination.audits.base import AuditResult, AuditStage, PreparedAudit, check_audit
from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.config import identity_data, instantiate_node
from contamination.core.files import write_text_atomically
from contamination.core.integrity import errors_naming_file
from contamination.core.report.document import html_document, markdown_document, save_charts
from contamination.core.stored_files import read_text
from contamination.core.table_files import write_data_files
from contamination.training.metrics import open_wandb_run

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
    results: list[AuditResult] = []
    build = partial(_conduct_and_write, prepared, results)
    artifact = build_or_open(folder, stage, prepared.inputs, build, named=settings)
    log.info("audit: %s", artifact.path / PAGE)
    for result in results:
        _mirror_to_wandb(stage, audit.kind, artifact, result)
    return artifact


def read_findings(artifact: Artifact) -> str:
    """Returns the audit's findings in Markdown.

    Raises:
        ArtifactError: the file can't be read.
    """
    with errors_naming_file(artifact.path / MARKDOWN):
        return read_text(artifact.path / MARKDOWN)


def read_conclusions(artifact: Artifact) -> list[str]:
    """Returns the audit's conclusions, the main answer first.

    Raises:
        ArtifactError: the file can't be read.
    """
    blocks = read_findings(artifact).partition("\n## ")[0].split("\n\n")
    return [block.strip().replace("**", "") for block in blocks[1:]]


def _mirror_to_wandb(stage: AuditStage, kind: str, artifact: Artifact, result: AuditResult) -> None:
    """Logs the audit's numbers, tables and page as a run of its own; the audit is finished by then.

    A mirror that fails (no network, no login) is a warning: the audit's folder is the record.
    """
    if stage.wandb.mode == "disabled":
        return
    import wandb

    folder = artifact.path
    run_fields = {"id": folder.name.rsplit("-", 1)[-1], "name": folder.name, "group": stage.name}
    settings = {"console": "off", "x_disable_stats": True}
    config = {"audit": {"kind": kind, **stage.audit}, "artifacts": dict(artifact.inputs)}
    try:
        run = open_wandb_run(
            stage.wandb, Path(stage.runs), settings, **run_fields, job_type=KIND, config=config
        )
        with run:
            run.summary.update({f"{kind}/{name}": value for name, value in result.counts.items()})
            for table in result.content.tables:
                rows = wandb.Table(dataframe=table.data)
                run.log({f"tables/{kind}/{table.name}": rows})
            run.log({f"pages/{kind}": wandb.Html(str(folder / PAGE))})
    except wandb.errors.Error as error:
        log.warning(
            "The audit is finished, but Weights & Biases failed (%s): log in with `wandb login` "
            "or give wandb.mode=offline, remove %s and run this again.",
            str(error).strip().splitlines()[0],
            folder,
        )


def _conduct_and_write(
    prepared: PreparedAudit, results: list[AuditResult], folder: Path
) -> WrittenFiles:
    """Conducts the audit, writes its files and appends its result to `results`."""
    result = prepared.conduct(folder)
    results.append(result)
    table_files = [
        name
        for table in result.content.tables
        for name in write_data_files(folder, table.name, table.data)
    ]
    chart_files = save_charts(result.content, folder)
    write_text_atomically(folder / MARKDOWN, markdown_document(result.content, has_charts=True))
    write_text_atomically(folder / PAGE, html_document(result.content))
    return WrittenFiles([*table_files, *result.files, *chart_files, MARKDOWN, PAGE], result.counts)
