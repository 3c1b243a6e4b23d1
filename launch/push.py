"""`python -m launch push FOLDER repo=OWNER/NAME`: uploads a result or a benchmark to the hub.

The hub's data set gets the files of the finished folder (see `launch.publishable`), a card that
says what they are, and a manifest of the files as they were uploaded, so that a download passes the
same integrity check as the folder did.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contamination.analysis import report_folder
from contamination.audits import run as audits_run
from contamination.core import hub
from contamination.core.artifacts import CONFIG, is_complete, read_config
from contamination.core.errors import ArtifactError, ConfigError, near_names, require
from contamination.core.files import hashed_json
from contamination.core.hashing import combined_digest
from contamination.core.integrity import (
    ALWAYS,
    MANIFEST,
    SCHEMA,
    damage_error,
    find_damages,
    read_manifest,
)
from contamination.core.report.tables import escape_markdown
from contamination.core.terminal import fit_columns
from contamination.detection import scores
from contamination.detection.building import datasheet
from contamination.launch.publishable import PublishedFile, find_left_out, publish_file
from contamination.launch.redaction import Redaction

if TYPE_CHECKING:
    from huggingface_hub import DatasetCard

REPORT, SCORES, AUDIT = report_folder.KIND, scores.KIND, audits_run.KIND
BENCHMARK = datasheet.KIND
CARD = "README.md"
OPENING = {REPORT: report_folder.REPORT, AUDIT: audits_run.MARKDOWN}
"""The files that begin with the answer, before any table."""
OWN_AUDITS = "contamination.audits."
"""The modules of the audits whose answers quote no texts; those of other packages may."""
ABOUT = {
    REPORT: "Report of an experiment with known contamination: how well methods tell members "
    "(texts that the model was trained on) from non-members. Start with report.md.",
    SCORES: "Membership scores of texts under a language model: one row per text, method and "
    "variant in scores.parquet. A higher score means member.",
    AUDIT: "Audit of a language model. Start with audit.md, if it is here, or the tables.",
    BENCHMARK: "Benchmark of labelled texts: members (label 1) and non-members (label 0).",
}
"""What a folder of each kind that can be uploaded is."""
USE = {
    REPORT: "python -c 'import contamination as c; print(c.open_report(\"{path}\").pooled)'",
    SCORES: "python -c 'import pandas as pd; print(pd.read_parquet(\"{path}/scores.parquet\"))'",
    AUDIT: "cat {path}/*.csv",
    BENCHMARK: "contamination detect examples=jsonl examples.path={path}/data model.path=MODEL",
}
"""A command to begin with after the download, by kind."""
UNKNOWN_LICENSES = ("other", "unknown", "")
"""Licences that a source gives its benchmark if it does not know the texts' licence."""


@dataclass(frozen=True)
class Upload:
    """What is sent to the hub.

    Attributes:
        folder: the finished folder.
        digest: of its content before anything was changed for the upload.
        files: all files, with the card and the manifest.
        left_out: name → the reason, for the folder's other files.
    """

    folder: Path
    digest: str
    files: Sequence[PublishedFile]
    left_out: Mapping[str, str]

    @property
    def card(self) -> str:
        """The README.md."""
        (card,) = (file.content for file in self.files if file.name == CARD)
        assert isinstance(card, bytes)
        return card.decode()


def push(
    folder: str,
    repo: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    texts: bool = False,
    license: str = "",  # the hub's word
) -> str:
    """Uploads a finished folder of a report, scores, an audit or a benchmark.

    Args:
        folder: the folder, below runs/.
        repo: the data set on the hub, as owner/name; it is created if it does not exist.
        private: whether nobody else may see it; False: as the owner's default is.
        dry_run: only check everything; nothing is sent.
        texts: whether the texts are uploaded as well.
        license: the hub's identifier of a licence, such as cc-by-4.0.

    Returns:
        What was, or would be, uploaded, in lines for the terminal.

    Raises:
        ConfigError: a field is wrong, a benchmark has no licence, or the hub refuses.
        ArtifactError: the folder is damaged, unfinished or of another kind.
        DataError: a file contains a secret.
        ServerError: the hub does not answer as it should.
    """
    remedy = "give the owner and the name of a data set on the hub, as repo=OWNER/NAME."
    require(re.fullmatch(r"[\w.-]+/[\w.-]+", repo) is not None, "repo", repo, remedy)
    upload = prepare_upload(Path(folder), repo, texts=texts, license=license)
    lines = _describe(upload)
    if dry_run:
        to = f"data set: {repo}{' (private)' * private}; dry run, nothing was sent"
        return "\n".join([to, *lines, "", upload.card.rstrip()])
    contents = {file.name: file.content for file in upload.files}
    message = f"{upload.folder.name} ({upload.digest[:12]})"
    address = hub.upload_data_set("repo", repo, contents, private=private, message=message)
    return "\n".join([f"data set: {address}", *lines])


def prepare_upload(folder: Path, repo: str, *, texts: bool, license: str) -> Upload:
    """Returns what is to be sent, after the folder's files were compared with its manifest.

    Raises:
        UserError: as `push`, but the hub is not asked.
    """
    manifest = _read_checked_manifest(folder)
    kind = manifest["kind"]
    redaction = Redaction.of(folder)
    left_out = find_left_out(folder, kind, manifest["bytes"], texts)
    names = [name for name in manifest["bytes"] if name not in {*left_out, CARD}]
    files = [publish_file(folder, kind, name, texts, redaction) for name in names]
    built_card = _read_built_card(folder, kind)
    given = license or (built_card.data.get("license") if built_card else "") or ""
    if kind == BENCHMARK and given in UNKNOWN_LICENSES:
        raise ConfigError(
            f"license is {license!r}: a benchmark is uploaded only with a licence, and its source "
            "names none. Give the one of its texts as the hub calls it, such as "
            "license=cc-by-sa-4.0."
        )
    facts = redaction.hide_paths_in(manifest)
    card = redaction.hide_paths(_render_card(folder, kind, repo, facts, given, files, left_out))
    redaction.check_no_secret(CARD, card)
    files.append(PublishedFile(CARD, card.encode(), "written for the upload"))
    files.append(_write_manifest(facts, files))
    return Upload(folder, manifest["digest"], files, left_out)


def _read_checked_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a folder that can be uploaded; every file is hashed."""
    require(
        folder.is_dir(), "FOLDER", str(folder), "there is no such folder. Give one below runs/."
    )
    if not is_complete(folder):
        raise ArtifactError(
            f"{folder} has no {MANIFEST}: it is unfinished, or no stage wrote it. Give a finished "
            f"folder below runs/ of one of these kinds: {', '.join(ABOUT)}."
        )
    manifest = read_manifest(folder)
    if manifest["kind"] not in ABOUT or manifest["schema"] != SCHEMA:
        raise ArtifactError(
            f"{folder} contains a {manifest['kind']} of schema {manifest['schema']}: give a folder "
            f"of schema {SCHEMA} of one of these kinds: {', '.join(ABOUT)}."
        )
    if damages := [*find_damages(folder, manifest, ALWAYS)]:
        raise damage_error(folder, "; ".join(damages))
    return manifest


def _read_built_card(folder: Path, kind: str) -> DatasetCard | None:
    """Returns the card that the builder wrote for the hub, if it is a benchmark's folder."""
    from huggingface_hub import DatasetCard

    if kind != BENCHMARK:
        return None
    return DatasetCard((folder / CARD).read_text(encoding="utf-8"))


def _opening(folder: Path, kind: str) -> str:
    """Returns the answer that a report or an audit begins with; "" if it may quote texts."""
    file = folder / OPENING.get(kind, "")
    audit = read_config(folder).get("audit") or {}
    if not file.is_file() or not audit.get("_target_", OWN_AUDITS).startswith(OWN_AUDITS):
        return ""
    before_tables = re.split(r"^## |^\|", file.read_text(encoding="utf-8"), maxsplit=1, flags=re.M)
    return before_tables[0].partition("\n")[2].strip()


def _render_card(
    folder: Path,
    kind: str,
    repo: str,
    facts: Mapping[str, Any],
    license: str,
    files: Sequence[PublishedFile],
    left_out: Mapping[str, str],
) -> str:
    """Returns the data set's README.md: the header that the hub reads, then the facts."""
    from huggingface_hub import DatasetCardData

    path = f"runs/{kind}/{folder.name}"
    built_card = _read_built_card(folder, kind)
    header: dict[str, Any] = dict(vars(built_card.data)) if built_card else {}
    header |= {"license": license} if license else {}
    header.setdefault("pretty_name", folder.name)
    header["tags"] = [*header.get("tags", []), "contamination-testbed", kind]
    rows = [("kind", kind), ("name", folder.name), ("SHA-256 of the content", facts["digest"])]
    rows += [("made by", f"contamination-testbed {facts['version']} ({facts['revision']})")]
    rows += [(f"input {name}", digest) for name, digest in facts["inputs"].items()]
    rows += [(name.replace("_", " "), count) for name, count in facts["counts"].items()]
    parts = [
        f"# {escape_markdown(folder.name)}",
        ABOUT[kind],
        *filter(None, [_opening(folder, kind)]),
        "## Use it",
        f"```\nhf download {repo} --repo-type dataset --local-dir {path}\n"
        f"{USE[kind].format(path=path)}\n```",
        "`contamination check` compares the download with its manifest.json.",
        "## What it is",
        _table(("", ""), rows),
        f"The configuration is in {CONFIG}, and the SHA-256 of each file in {MANIFEST}.",
    ]
    changed = [(file.name, file.remark) for file in files if file.remark]
    changed += [(name, f"left out: {why}") for name, why in left_out.items()]
    if changed:
        parts += ["## Changed for the upload", _table(("file", "what"), changed)]
    if built_card:
        parts += [f"#{built_card.text.strip()}"]
    header_yaml = DatasetCardData(**header).to_yaml()
    return f"---\n{header_yaml}\n---\n\n" + "\n\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head, *lines = [[escape_markdown(str(cell)) for cell in line] for line in (header, *rows)]
    table = [head, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def _write_manifest(facts: Mapping[str, Any], files: Sequence[PublishedFile]) -> PublishedFile:
    """Returns the manifest of the files as they are uploaded."""
    digests = {file.name: file.sha256 for file in files}
    lists = {
        field: {name: digests[name] for name in facts[field] if name in digests}
        for field in ("files", "records")
    }
    listed = {*lists["files"], *lists["records"]}
    sizes = {file.name: file.size for file in files if file.name in listed}
    manifest = {
        **facts, **lists, "bytes": sizes, "digest": combined_digest(lists["files"]),
        "digest_before_upload": facts["digest"],
    }  # fmt: skip
    manifest.pop("own_sha256", None)
    return PublishedFile(MANIFEST, hashed_json(manifest).encode(), "of the files as uploaded")


def _describe(upload: Upload) -> list[str]:
    rows = [[f"  {file.name}", f"{file.size:,}", file.remark or "-"] for file in upload.files]
    files = fit_columns(["  file", "bytes", "changed for the upload"], rows, least=("bytes",))
    lines = [f"from: {upload.folder} (SHA-256 {upload.digest[:12]}…)", *files.lines()]
    return [*lines, *(f"left out: {name} ({why})" for name, why in upload.left_out.items())]


def parse_words(words: Sequence[str]) -> dict[str, Any]:
    """Returns the arguments of `push` that the command line gives.

    Raises:
        ConfigError: a field is unknown, missing or not true or false.
    """
    given: dict[str, Any] = {"repo": "", "private": "false", "dry_run": "false"}
    given |= {"texts": "false", "license": ""}
    folders = [word for word in words if "=" not in word or Path(word).is_dir()]
    require(len(folders) == 1, "FOLDER", " ".join(folders), "give one folder below runs/.")
    for word in words:
        field, _, value = word.partition("=")
        if word not in folders and field not in given:
            raise ConfigError(f"{field}: unknown field. {near_names(field, given)}")
        given |= {} if word in folders else {field: value}
    for field in ("private", "dry_run", "texts"):
        require(given[field] in ("true", "false"), field, given[field], "give true or false.")
        given[field] = given[field] == "true"
    return {"folder": folders[0], **given}
