"""`python -m detection build`: makes a labelled benchmark from dated documents.

`docs/building.md` describes the run folder.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from contamination.core.artifacts import Artifact, WrittenFiles, to_plain_data
from contamination.core.config import (
    instantiate_node,
)
from contamination.core.errors import DataError, require
from contamination.core.hashing import digests_by_name
from contamination.core.models import model_digest
from contamination.core.seeds import derive_seed
from contamination.core.task_runner import TaskRunner
from contamination.data.perturbation.base import Rewording
from contamination.data.perturbation.word_edits import Exact
from contamination.detection.building import datasheet, labelled_sets
from contamination.detection.building.candidates import CandidateScan, sum_counts
from contamination.detection.building.dates import EDITED, MEMBER, CutOffs
from contamination.detection.building.labelled_sets import LabelledSet, reword_set
from contamination.detection.building.sources import Source, import_optional
from contamination.detection.config import BuildConfig, BuildStage

log = logging.getLogger(__name__)


def run(stage: BuildStage) -> Artifact:
    """Builds the benchmark, unless the artefact exists; returns the artefact.

    Raises:
        ConfigError: a setting is invalid, or the cut-offs cross.
        DataError: the input can't be used, or has no members or no non-members.
    """
    cut_offs = CutOffs.from_dates(stage.build.members_before, stage.build.nonmembers_from)
    source = instantiate_node("source", stage.source)
    remedy = "give a Source; see conf/source."
    require(isinstance(source, Source), "source._target_", stage.source["_target_"], remedy)
    hashes = digests_by_name(
        {file.name: file.path for file in source.files} | dict(source.other_inputs)
    )
    _create_rewording(stage)  # raises errors before any work
    if path := stage.rewording.get("path"):
        hashes["rewording"] = model_digest("rewording.path", path)
    stage_for_folder_name = replace(stage, source=_nodes_in_folder_name(stage)["source"])
    make = partial(_build_and_write, stage, source, cut_offs, hashes)
    return datasheet.build_benchmark(
        stage.runs, source.name, stage, stage_for_folder_name, hashes, make
    )


ABOUT = (
    "Members were created before the first date, non-members from the second on. A model whose "
    "training data end between the two can have seen only the members. The blind AUROC is that of "
    "a classifier that sees the texts and no model. If its interval does not include 0.5, dates or "
    "style reveal members, and a detector's AUROC may show no more than that. A text is the "
    "beginning of its document, as it is in the source. "
)
UNCHANGED = "Members' texts were last edited (`changed`) before the first date, too."
EDITED_TOO = (
    "Members' texts may have been edited (`changed`) after the first date "
    "(source.unchanged_members=false): no model of that time has seen what was added later."
)


def _build_and_write(
    stage: BuildStage,
    source: Source,
    cut_offs: CutOffs,
    hashes: Mapping[str, str],
    folder: Path,
    intermediates_folder: Path,
) -> WrittenFiles:
    config = stage.build
    drops_duplicates = config.near_duplicates == "drop"
    texts_per_group = config.number + (max(20, config.number // 5) if drops_duplicates else 0)
    by_month, candidates = config.slices == "month", texts_per_group * config.candidates
    source = source.prepare(intermediates_folder)
    scan = CandidateScan(
        source, cut_offs, stage.seed, candidates, by_month, intermediates_folder, config.processes
    )
    file_results = TaskRunner(intermediates_folder, num_proc=config.processes).run("read", scan)
    _check_files_unchanged(source, hashes)
    candidates_by_group = scan.merge_candidates()
    _check_both_labels(candidates_by_group, sum_counts(file_results, "sides"))
    longest = max(config.lengths)
    selected, counts = labelled_sets.select_documents(
        source, candidates_by_group, texts_per_group, longest
    )
    dropped = labelled_sets.near_duplicates_across_labels(selected)[0] if drops_duplicates else []
    _check_enough_texts(config, labelled_sets.exclude_documents(selected, dropped), counts)
    documents = labelled_sets.balance_groups(selected, dropped, config.number)
    edits = labelled_sets.count_edited(documents[MEMBER], cut_offs)
    if after := edits["edited_after_members_before"]:
        log.warning(
            "source.unchanged_members is false: %d of %d members were edited after "
            "build.members_before=%s, so that a model of that time has not seen all of their text.",
            after, edits["members"], config.members_before,
        )  # fmt: skip
    sets = [*labelled_sets.iter_labelled_sets(documents, config.lengths, source.name)]
    sets += _reword_sets(stage, sets)
    dates = f"before {config.members_before} against from {config.nonmembers_from}"
    sheet = {
        "name": f"{source.name}, {dates}",
        "about": ABOUT + (UNCHANGED if source.unchanged_members else EDITED_TOO),
        "settings": _settings_of_result(stage),
        "sources": datasheet.digest_rows(hashes),
        "read": {
            "documents": sum_counts(file_results, "sides"),
            "left_out": sum_counts(file_results, "skipped"),
            **to_plain_data(counts),
            "taken": {group: len(group_documents) for group, group_documents in documents.items()},
        },
        "overlap": labelled_sets.count_shared_texts(documents, dropped, counts, longest),
        "edited": edits,
        "dates": labelled_sets.year_rows(sum_counts(file_results, "months")),
    }
    rows_by_set = {labelled_set.name: labelled_set.rows for labelled_set in sets}
    return datasheet.write_benchmark(folder, sheet, rows_by_set, source.licence)


def _settings_of_result(stage: BuildStage) -> dict[str, Any]:
    settings = {
        name: value for name, value in to_plain_data(stage.build).items() if name != "processes"
    }
    return {"seed": stage.seed, **settings, **_nodes_in_folder_name(stage)}


FIELDS_NOT_IN_NAME = ("paths", "dates", "read_dates", "max_text_bytes")
"""Fields of a source that are not part of the folder's name; the files' hashes are instead."""


def _nodes_in_folder_name(stage: BuildStage) -> dict[str, dict[str, Any]]:
    """Returns the nodes that name the folder; files are named by content, not by path."""
    source = {name: value for name, value in stage.source.items() if name not in FIELDS_NOT_IN_NAME}
    return {"source": source, "rewording": stage.rewording}


def _check_files_unchanged(source: Source, hashes: Mapping[str, str]) -> None:
    """Raises a DataError if a file was changed since it was hashed for the folder's name."""
    for name, digest in digests_by_name({file.name: file.path for file in source.files}).items():
        if digest != hashes[name]:
            raise DataError(f"source.paths: {name} was changed while it was read: run again.")


def _create_rewording(stage: BuildStage) -> Rewording | None:
    """Returns the configured rewording; None if texts stay as they are."""
    rewording = instantiate_node("rewording", stage.rewording) if stage.rewording else Exact()
    if isinstance(rewording, Exact):
        return None
    import_optional("sacrebleu", "a rewording")
    return cast(Rewording, rewording)


def _reword_sets(stage: BuildStage, sets: Sequence[LabelledSet]) -> list[LabelledSet]:
    rewording = _create_rewording(stage)
    if rewording is None:
        return []
    setting = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(rewording).__name__).lower()
    seed = derive_seed(stage.seed, "rewording")
    least_bleu = stage.build.least_bleu
    return [reword_set(originals, setting, rewording, least_bleu, seed) for originals in sets]


def _check_both_labels(groups: Mapping[str, Any], counts_by_side: Mapping[str, int]) -> None:
    """Raises a DataError if there are no members or no non-members."""
    if MEMBER not in groups or len(groups) < 2:
        counts = ", ".join(f"{n:,} {side}" for side, n in counts_by_side.items()) or "no document"
        older = (
            " The source lacks the older text of documents that were edited since: give a source "
            "that has it (pages-meta-history), or source.unchanged_members=false to use the new "
            "text."
        )
        raise DataError(
            f"source.paths: there are no documents on both sides of the cut-offs ({counts}). Move "
            "build.members_before or build.nonmembers_from, or give more files."
            f"{older if EDITED in counts_by_side and MEMBER not in counts_by_side else ''}"
        )


def _check_enough_texts(
    config: BuildConfig,
    selected: labelled_sets.Groups,
    counts: labelled_sets.CandidateCounts,
) -> None:
    """Warns of groups with too few texts; raises a DataError if one label has none."""
    sizes = {group: len(documents) for group, documents in selected.items()}
    if min(sizes.values()) >= config.number:
        return
    text_counts = ", ".join(
        f"{sizes[group]} {group} texts among {n:,} documents"
        for group, n in counts.looked_at.items()
    )
    message = (
        f"build.number is {config.number}, but with {max(config.lengths)} words and more there are "
        f"{text_counts}. Give more files, shorter build.lengths, or more build.candidates."
    )
    if not (sizes.pop(MEMBER) and any(sizes.values())):
        raise DataError(message)
    log.warning(message)
