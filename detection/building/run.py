"""`python -m detection build`: dated documents become a labelled benchmark.

::

    runs/benchmark/<slug>-<hash>/
    ├── config.yaml     the resolved config
    ├── data/           a labelled JSONL for each length, slice and setting
    ├── datasheet.json  counts, dates, sources with their SHA-256, the blind AUROC, overlap
    ├── datasheet.md    the same for a reader
    ├── README.md       the same as a card for the hub, which names the files
    └── manifest.json
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING

from contamination.core.artifacts import Artifact, Built, as_data
from contamination.core.config import (
    PART,
    Range,
    Ranged,
    at_least,
    create,
    limited,
    one_of,
    runtime,
)
from contamination.core.errors import DataError, require
from contamination.core.hashing import digests
from contamination.core.models import model_digest
from contamination.core.seeds import derive
from contamination.core.tasks import Runner
from contamination.data.perturbation.base import Rewording
from contamination.data.perturbation.word_edits import Exact
from contamination.detection.building.candidates import Scan, totals
from contamination.detection.building.datasheet import hashed, made_in, write
from contamination.detection.building.dates import EDITED, MEMBER, CutOffs
from contamination.detection.building.labelled_sets import (
    LabelledSet,
    Looks,
    Taken,
    by_year,
    edited,
    even,
    kept,
    labelled,
    near_duplicates,
    overlap,
    reworded,
    take,
)
from contamination.detection.building.sources import Source, needed

NAMELESS = ("paths", "dates", "read_dates", "max_text_bytes")
"""Fields of a source that are no part of the folder's name: the files' content is."""
LENGTHS = Range(
    lambda lengths: len({*lengths}) == len(lengths) > 0 and min(lengths) > 0,
    "give lengths in words, each once, such as [32,64].",
)
ABOUT = (
    "Members were created before the first date, non-members from the second on. A model whose "
    "training data end between the two can have seen the members alone. The blind AUROC is that of "
    "a classifier that sees the texts and no model. Where its interval does not hold 0.5, dates or "
    "style tell members, and a detector's AUROC may show no more than that. A text is its "
    "document's first words, as they stand in the source. "
)
UNCHANGED = "Members' texts were last edited (`changed`) before the first date, too."
EDITED_TOO = (
    "Members' texts may have been edited (`changed`) after the first date "
    "(source.unchanged_members=false): what was added then no model of that time has seen."
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildConfig(Ranged, node="build"):
    """What is made of the documents (node `build`)."""

    members_before: str = MISSING
    """Members were created before this date (UTC)."""
    nonmembers_from: str = MISSING
    """Non-members were created from this date on (UTC)."""
    number: int = limited(1000, at_least(10))
    """Members, and non-members, of each set."""
    lengths: list[int] = limited([32, 64, 128, 256], LENGTHS)
    """In words. All sets have the same documents, which are as long as the longest."""
    candidates: int = limited(4, at_least(1))
    """Documents that are looked at for each one asked for: many are too short."""
    near_duplicates: str = limited("report", one_of(("report", "drop")))
    """Texts that share 13 words in a row with one of the other label: report them, or drop both."""
    slices: str = limited("none", one_of(("none", "month")))
    """`month`: a set for each month in which non-members were created, for a moving cut-off."""
    least_bleu: float = limited(0.75, PART)
    """A reworded text has a BLEU above it."""
    processes: int = runtime(1, at_least(1))
    """Processes that read files side by side."""


@dataclass(frozen=True)
class BuildStage:
    """Everything that one run needs."""

    runs: str = runtime("runs")
    seed: int = 0
    source: dict[str, Any] = field(default_factory=dict)
    rewording: dict[str, Any] = field(default_factory=dict)
    build: BuildConfig = field(default_factory=BuildConfig)


def run(stage: BuildStage) -> Artifact:
    """Build the benchmark, or find it built.

    Raises:
        ConfigError: a setting that can't be, or cut-offs that cross.
        DataError: input that can't be used, or no document on one side.
    """
    cut_offs = CutOffs.of(stage.build.members_before, stage.build.nonmembers_from)
    source = create("source", stage.source)
    known = isinstance(source, Source)
    require(known, "source._target_", stage.source["_target_"], "give a Source; see conf/source.")
    hashes = digests({file.name: file.path for file in source.files} | dict(source.also_read))
    _rewording(stage)  # what it lacks is an error before any work
    if path := stage.rewording.get("path"):
        hashes["rewording"] = model_digest("rewording.path", path)
    named = replace(stage, source=_named(stage)["source"])
    make = partial(_make, stage, source, cut_offs, hashes)
    return made_in(stage.runs, source.name, stage, named, hashes, make)


def _make(
    stage: BuildStage,
    source: Source,
    cut_offs: CutOffs,
    hashes: Mapping[str, str],
    folder: Path,
    notes: Path,
) -> Built:
    own = stage.build
    drop = own.near_duplicates == "drop"
    number = own.number + (max(20, own.number // 5) if drop else 0)
    by_month, most = own.slices == "month", number * own.candidates
    source = source.prepared(notes)
    scan = Scan(source, cut_offs, stage.seed, most, by_month, notes, own.processes)
    results = Runner(notes, num_proc=own.processes).run("read", scan)
    _check_unchanged(source, hashes)
    groups = scan.merged()
    _check_sides(groups, totals(results, "sides"))
    longest = max(own.lengths)
    taken, looks = take(source, groups, number, longest)
    dropped = near_duplicates(taken)[0] if drop else []
    _check_enough(own, kept(taken, dropped), looks)
    found = even(taken, dropped, own.number)
    edits = edited(found[MEMBER], cut_offs)
    if after := edits["edited_after_members_before"]:
        log.warning(
            "source.unchanged_members is false: %d of %d members were edited after "
            "build.members_before=%s, so that a model of that time has not seen all of their text.",
            after, edits["members"], own.members_before,
        )  # fmt: skip
    sets = [*labelled(found, own.lengths, source.name)]
    sets += _reworded(stage, sets)
    sheet = {
        "name": f"{source.name}, before {own.members_before} against from {own.nonmembers_from}",
        "about": ABOUT + (UNCHANGED if source.unchanged_members else EDITED_TOO),
        "settings": _settings(stage),
        "sources": hashed(hashes),
        "read": {
            "documents": totals(results, "sides"),
            "left_out": totals(results, "skipped"),
            **as_data(looks),
            "taken": {group: len(each) for group, each in found.items()},
        },
        "overlap": overlap(found, dropped, looks, longest),
        "edited": edits,
        "dates": by_year(totals(results, "months")),
    }
    return write(folder, sheet, {one.name: one.rows for one in sets}, source.licence)


def _settings(stage: BuildStage) -> dict[str, Any]:
    """What of the configuration can change the result."""
    own = {name: value for name, value in as_data(stage.build).items() if name != "processes"}
    return {"seed": stage.seed, **own, **_named(stage)}


def _named(stage: BuildStage) -> dict[str, dict[str, Any]]:
    """The nodes that name the folder: a file's content does, wherever it is."""
    source = {name: value for name, value in stage.source.items() if name not in NAMELESS}
    return {"source": source, "rewording": stage.rewording}


def _check_unchanged(source: Source, hashes: Mapping[str, str]) -> None:
    """Raise a DataError where a file was changed since the folder was named by it."""
    for name, digest in digests({file.name: file.path for file in source.files}).items():
        if digest != hashes[name]:
            raise DataError(f"source.paths: {name} was changed while it was read: start again.")


def _rewording(stage: BuildStage) -> Rewording | None:
    """What rewords the texts; None: nothing does."""
    made = create("rewording", stage.rewording) if stage.rewording else Exact()
    if isinstance(made, Exact):
        return None
    needed("sacrebleu", "a rewording")
    return cast(Rewording, made)


def _reworded(stage: BuildStage, sets: Sequence[LabelledSet]) -> list[LabelledSet]:
    rewording = _rewording(stage)
    if rewording is None:
        return []
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(rewording).__name__).lower()
    seed = derive(stage.seed, "rewording")
    return [reworded(one, name, rewording, stage.build.least_bleu, seed) for one in sets]


def _check_sides(groups: Mapping[str, Any], sides: Mapping[str, int]) -> None:
    """Raise a DataError where one side has no document."""
    if MEMBER not in groups or len(groups) < 2:
        seen = ", ".join(f"{n:,} {side}" for side, n in sides.items()) or "no document"
        older = (
            " The source has no older text of those that were edited since: give one that has "
            "(pages-meta-history), or source.unchanged_members=false, which takes their new text."
        )
        raise DataError(
            f"source.paths: there are no documents on both sides of the cut-offs ({seen}). Move "
            "build.members_before or build.nonmembers_from, or give more files."
            f"{older if EDITED in sides and MEMBER not in sides else ''}"
        )


def _check_enough(own: BuildConfig, found: Mapping[str, Sequence[Taken]], looks: Looks) -> None:
    """Warn of groups with fewer texts than asked for; raise a DataError where a side has none."""
    sizes = {group: len(each) for group, each in found.items()}
    if min(sizes.values()) >= own.number:
        return
    seen = (
        f"{sizes[group]} {group} texts among {n:,} documents"
        for group, n in looks.looked_at.items()
    )
    said = (
        f"build.number is {own.number}, but with {max(own.lengths)} words and more there are "
        f"{', '.join(seen)}. Give more files, shorter build.lengths, or more build.candidates."
    )
    if not (sizes.pop(MEMBER) and any(sizes.values())):
        raise DataError(said)
    log.warning(said)
