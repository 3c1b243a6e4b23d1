"""`python -m detection thresholds`: calibrates on labelled scores, or applies saved thresholds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from contamination.core.errors import DataError
from contamination.core.output_paths import check_output_file
from contamination.core.stored_files import MAX_BYTES, parse_json, parse_typed
from contamination.core.table_files import write_csv
from contamination.core.terminal import fit_columns
from contamination.core.user_files import atomic_output_file, open_to_read
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest, lines_digest
from contamination.data.texts import Text
from contamination.detection.examples import open_examples
from contamination.detection.flags import count_flags, describe_flags
from contamination.detection.scores import RECORDED_SETTINGS, Origin, read_scores
from contamination.detection.tasks.config import REMEDIES, ThresholdStage
from contamination.detection.thresholds import (
    Threshold,
    apply_thresholds,
    calibrate,
    calibration_split,
)
from contamination.detection.view_resources import PREFIX_TEXTS

MIN_TEXTS = 20
"""The smallest number of members and of non-members, in the calibration and in the test split:
with fewer, a rate is only known to about 0.1. Pieces of one cluster count as one text."""
MODELS = ("target", "reference", "masked_lm")


@dataclass(frozen=True)
class Calibration:
    """Thresholds, and the facts that determine whether they apply to other scores.

    Attributes:
        models: the digest of each role's model whose scores they were chosen on.
        prefix: the digest of the prefix texts; None if there were none.
        settings: the settings of `detection` that can change a score (`scores.RECORDED_SETTINGS`).
        examples: a hash of the labelled texts, with their labels.
        members, nonmembers: the numbers of texts that they were chosen on; pieces of one cluster
            count as one.
        test_members, test_nonmembers: the numbers of texts that they were tested on.
        rule, fpr, share, seed: the settings of the calibration.
        thresholds: one per method and variant.
    """

    models: dict[str, str]
    prefix: str | None
    settings: dict[str, Any]
    examples: str
    members: int
    nonmembers: int
    test_members: int
    test_nonmembers: int
    rule: str
    fpr: float
    share: float
    seed: int
    thresholds: list[Threshold]

    def iter_refusals(
        self, scores: Origin, methods: Collection[tuple[str, str]]
    ) -> Iterator[tuple[str, str]]:
        """Yields the reasons against applying the thresholds to these scores of these methods.

        Each is a pair of a name for `override` and a sentence. The names are:

        - `model`: the scores of another model have another scale.
        - `prefix`: so do scores after another prefix.
        - `settings`: so do scores that were computed with other settings.
        - `chance`: the interval of a method's AUROC on the test texts includes 0.5.
        - `size`: there were fewer than MIN_TEXTS members or non-members in a split.
        """
        yield from self._iter_differences(scores)
        for threshold in self.thresholds:
            is_used = (threshold.method, threshold.variant) in methods
            if is_used and threshold.auroc_low <= 0.5:
                yield (
                    "chance",
                    f"{threshold.name} was no better than a guess on its {self.test_members} + "
                    f"{self.test_nonmembers} test texts: AUROC {threshold.auroc:.3f} "
                    f"[{threshold.auroc_low:.3f}, {threshold.auroc_high:.3f}]",
                )
        test = self.test_members, self.test_nonmembers
        if min(self.members, self.nonmembers, *test) < MIN_TEXTS:
            yield (
                "size",
                f"it was calibrated on {self.members} members and {self.nonmembers} non-members "
                f"and tested on {test[0]} and {test[1]} others, fewer than {MIN_TEXTS} of a label",
            )

    def _iter_differences(self, scores: Origin) -> Iterator[tuple[str, str]]:
        for role in MODELS:
            calibrated, scored = self.models.get(role), scores.inputs.get(role)
            recorded = calibrated is not None and scored is not None
            if calibrated != scored if recorded else role == "target":
                yield (
                    "model",
                    f"its {role} model is {_shorten_digest(calibrated)}, that of the scores "
                    f"{_shorten_digest(scored)}",
                )
        prefix = scores.inputs.get(PREFIX_TEXTS)
        if self.prefix and prefix and self.prefix != prefix:
            yield (
                "prefix",
                f"its prefix (prefix.path) is {_shorten_digest(self.prefix)}, that of the scores "
                f"{_shorten_digest(prefix)}",
            )
        for name, default in RECORDED_SETTINGS.items():
            calibrated = self.settings.get(name, default)
            scored = scores.settings.get(name, default)
            if calibrated != scored or calibrated == "unknown":
                yield (
                    "settings",
                    f"its detection.{name} is {calibrated}, that of the scores {scored}",
                )

    def write(self, path: Path) -> None:
        """Writes the file atomically."""
        with atomic_output_file(path) as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Returns the calibration from a file that `write` wrote.

        Raises:
            DataError: the file is no such file, or has missing, unknown or wrong fields, or no
                threshold.
        """
        command = "`python -m detection thresholds examples=…`"
        try:
            with open_to_read(path) as stream:
                content = stream.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
            record = parse_json(content.decode())
            if not isinstance(record, dict) or "thresholds" not in record:
                raise ValueError("it has no thresholds")
        except (OSError, ValueError) as error:
            raise DataError(
                f"apply is {str(path)!r}: it is not a file of thresholds ({error}). Give a file "
                f"that {command} wrote."
            ) from error
        try:
            calibration: Calibration = parse_typed(record, cls)
            if not calibration.thresholds:
                raise ValueError("thresholds is []")
        except ValueError as error:
            raise DataError(
                f"apply is {str(path)!r}, where {error}: an earlier version wrote it, or it was "
                f"edited: calibrate again with {command}."
            ) from error
        return calibration

    def check_applicable(
        self, scores: Origin, methods: Collection[tuple[str, str]], override: Sequence[str]
    ) -> None:
        """Raises a DataError unless the thresholds may be applied to these scores."""
        refusals = [r for r in self.iter_refusals(scores, methods) if r[0] not in override]
        if refusals:
            reasons = "; ".join(reason for _, reason in refusals)
            reason_names = [name for name in REMEDIES if name in dict(refusals)]
            remedies = " ".join(REMEDIES[name] for name in reason_names)
            raise DataError(
                f"apply: the thresholds are not applied, since {reasons}. {remedies} To apply them "
                "anyway, give "
                f"override=[{','.join([*override, *reason_names])}]."
            )


def labelled_texts_digest(examples: Sequence[Text]) -> str:
    """Returns a hash of the texts, their ids and labels, independent of their order."""
    return lines_digest(sorted(json.dumps([e.sha256, e.example_id, e.label]) for e in examples))


def _shorten_digest(digest: str | None) -> str:
    return digest[:12] if digest else "unknown"


TABLE_HEADER = [
    "method",
    "variant",
    "threshold",
    "accuracy",
    "F1",
    "TPR",
    "FPR",
    "AUROC",
    "stability",
]


def calibrate_or_apply(stage: ThresholdStage) -> None:
    """Calibrates thresholds and saves them, or applies saved ones; prints a summary.

    Raises:
        DataError: the scores, the examples or the thresholds can't be read or don't match.
    """
    check_output_file("out", stage.out)
    table, origin = read_scores(Path(stage.scores))
    print("".join(f"{line}\n" for line in describe_flags(count_flags(table))), end="")
    out = Path(stage.out).expanduser()
    if stage.apply is not None:
        saved = Calibration.read(Path(stage.apply))
        methods = set(zip(table["method"], table["variant"], strict=True))
        saved.check_applicable(origin, methods, stage.override)
        decisions = apply_thresholds(table, saved.thresholds)
        with atomic_output_file(out) as temporary:
            write_csv(temporary, decisions)
        print("\n".join(_format_decisions(decisions)))
    else:
        examples = _open_and_check_scored_texts(stage, table, origin.inputs)
        calibration = _calibrate(stage, table, examples, origin)
        calibration.write(out)
        print(_format_calibration(calibration, origin))
    print(f"wrote {out}")


def _open_and_check_scored_texts(
    stage: ThresholdStage, table: pd.DataFrame, inputs: Mapping[str, str]
) -> Sequence[Text]:
    """Returns the labelled texts.

    Raises:
        DataError: they differ from the texts that were scored.
    """
    examples = open_examples(ExamplesConfig(str(stage.examples)))
    scored = set(table["example_id"])
    missing = [e.example_id for e in examples if e.example_id not in scored]
    if missing or inputs.get("examples", examples_digest(examples)) != examples_digest(examples):
        unscored = f"; the text {missing[0]!r} has no score" if missing else ""
        raise DataError(
            f"examples is {stage.examples!r}: these are not the texts of {stage.scores}{unscored}. "
            "Give the file that was scored, with the same ids and texts; its labels may be new."
        )
    return examples


def _calibrate(
    stage: ThresholdStage, table: pd.DataFrame, examples: Sequence[Text], origin: Origin
) -> Calibration:
    inputs = origin.inputs
    calibration_texts, test_texts = calibration_split(table, examples, stage.share, stage.seed)
    members, nonmembers = _count_clusters_by_label(calibration_texts)
    test_members, test_nonmembers = _count_clusters_by_label(test_texts)
    settings = {name: getattr(stage, name) for name in ("rule", "fpr", "share", "seed")}
    return Calibration(
        models={role: inputs[role] for role in MODELS if role in inputs},
        prefix=inputs.get(PREFIX_TEXTS),
        settings=dict(origin.settings),
        examples=labelled_texts_digest(examples),
        members=members,
        nonmembers=nonmembers,
        test_members=test_members,
        test_nonmembers=test_nonmembers,
        thresholds=calibrate(table, examples, **settings),
        **settings,
    )


def _count_clusters_by_label(texts: Sequence[Text]) -> tuple[int, int]:
    """Returns the numbers of members and non-members; pieces of one cluster count as one."""
    clusters = {(e.label, e.benchmark, e.cluster or e.example_id) for e in texts}
    members = sum(label is True for label, *_ in clusters)
    return members, len(clusters) - members


def _format_decisions(decisions: pd.DataFrame) -> Iterator[str]:
    """Yields a line per method with the share of texts called members and of small p-values."""
    for key, rows in decisions[decisions["ranked"]].groupby(["method", "variant"]):
        called, small = rows["member"].mean(), (rows["p_value"] <= 0.05).mean()
        yield f"{' '.join(key):46} {called:7.1%} called members, {small:7.1%} with p ≤ 0.05"


def _format_calibration(calibration: Calibration, origin: Origin) -> str:
    rows = [
        [
            *(t.method, t.variant, f"{t.value:.5g}"),
            *(f"{rate:.3f}" for rate in (t.accuracy, t.f1, t.tpr, t.fpr)),
            *(f"{t.auroc:.3f} [{t.auroc_low:.3f}, {t.auroc_high:.3f}]", f"{t.stability:.4g}"),
        ]
        for t in calibration.thresholds
    ]
    table = fit_columns(TABLE_HEADER, rows, least=["stability", "F1", "accuracy"]).lines(
        n_left_aligned=2
    )
    note = (
        f"chosen on {calibration.members} members and {calibration.nonmembers} non-members, "
        f"tested on {calibration.test_members} and {calibration.test_nonmembers} others (pieces of "
        "one cluster count once); stability: the threshold's standard deviation over subsets"
    )
    methods = {(t.method, t.variant) for t in calibration.thresholds}
    warnings = [
        f"`apply` will refuse the file without an override: {reason}."
        for _, reason in calibration.iter_refusals(origin, methods)
    ]
    return "\n".join([*table, note, *warnings])
