"""`python -m detection thresholds`: calibrate on labelled scores, or apply what was calibrated."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from contamination.core.config import Range, Ranged, limited
from contamination.core.disk import check_file
from contamination.core.errors import DataError
from contamination.core.stored_files import MOST_BYTES, parse_json, typed
from contamination.core.table_files import write_csv
from contamination.core.terminal import fit
from contamination.core.user_files import open_to_read, output_file
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest, lines_digest
from contamination.data.texts import Text
from contamination.detection.examples import open_examples
from contamination.detection.flags import counted, said
from contamination.detection.resources import PREFIX_TEXTS
from contamination.detection.scores import RECORDED, Origin, read_scores
from contamination.detection.thresholds import Threshold, apply, calibrate, halves

LEAST = 20
"""Texts of each kind, to calibrate on and to judge by: fewer tell a rate to some 0.1 at best.
Pieces of one cluster are one text."""
MODELS = ("target", "reference", "masked_lm")
REMEDIES = {
    "model": "Calibrate on texts that this model scored.",
    "prefix": "Score behind the prefix that was calibrated with.",
    "settings": "Score with the settings that were calibrated with.",
    "chance": "Leave such methods out, or calibrate on more texts.",
    "size": "Calibrate on more texts.",
}
"""By what `thresholds.override` may name: see `Calibration.refusals`."""


@dataclass(frozen=True)
class Calibration:
    """Thresholds, and all that says whether they mean something elsewhere.

    Attributes:
        models: role → digest of the models whose scores they were chosen on.
        prefix: digest of the texts that stood before theirs; None where none did.
        settings: what of `detection` can change a score (`scores.RECORDED`).
        examples: a hash of the labelled texts, with their labels.
        members, nonmembers: how many texts they were chosen on; pieces of one cluster are one.
        test_members, test_nonmembers: how many they are judged on.
        rule, fpr, share, seed: how they were chosen.
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

    def refusals(
        self, scores: Origin, methods: Collection[tuple[str, str]]
    ) -> Iterator[tuple[str, str]]:
        """Why they should not be applied to these scores by these methods.

        Yields what `override` calls it, and the reason.

        `model`: another model's scores have another scale. `prefix`: so have scores behind other
        texts. `settings`: so have those that were computed in another way. `chance`: on its test
        texts a method's AUROC is not above 0.5. `size`: chosen, or judged, on fewer than LEAST of a
        kind.
        """
        yield from self._of_another_kind(scores)
        for one in self.thresholds:
            if (one.method, one.variant) in methods and one.auroc_low <= 0.5:
                yield (
                    "chance",
                    f"{one.name} was no better than a guess on its {self.test_members} + "
                    f"{self.test_nonmembers} test texts: AUROC {one.auroc:.3f} "
                    f"[{one.auroc_low:.3f}, {one.auroc_high:.3f}]",
                )
        test = self.test_members, self.test_nonmembers
        if min(self.members, self.nonmembers, *test) < LEAST:
            yield (
                "size",
                f"it was calibrated on {self.members} members and {self.nonmembers} non-members "
                f"and judged on {test[0]} and {test[1]} others, fewer than {LEAST} of a kind",
            )

    def _of_another_kind(self, scores: Origin) -> Iterator[tuple[str, str]]:
        """What differs between the scores that they were chosen on and these."""
        for role in MODELS:
            own, other = self.models.get(role), scores.inputs.get(role)
            why = f"its {role} model is {_short(own)}, that of the scores {_short(other)}"
            known = own is not None and other is not None
            if own != other if known else role == "target":
                yield "model", why
        before = scores.inputs.get(PREFIX_TEXTS)
        if self.prefix and before and self.prefix != before:
            own, other = _short(self.prefix), _short(before)
            yield "prefix", f"its prefix (prefix.path) is {own}, that of the scores {other}"
        for name, unsaid in RECORDED.items():
            own, other = (of.get(name, unsaid) for of in (self.settings, scores.settings))
            if own != other or own == "unknown":
                yield "settings", f"its detection.{name} is {own}, that of the scores {other}"

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        with output_file(path) as part:
            part.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """The file that `write` wrote.

        Raises:
            DataError: it is none, lacks a field, has one too many or wrong, or has no threshold.
        """
        command = "`python -m detection thresholds examples=…`"
        try:
            with open_to_read(path) as stream:
                content = stream.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            found = parse_json(content.decode())
            if not isinstance(found, dict) or "thresholds" not in found:
                raise ValueError("it has no thresholds")
        except (OSError, ValueError) as error:
            raise DataError(
                f"apply is {str(path)!r}: it is no file of thresholds ({error}). Give one that "
                f"{command} wrote."
            ) from error
        try:
            read: Calibration = typed(found, cls)
            if not read.thresholds:
                raise ValueError("thresholds is []")
        except ValueError as error:
            raise DataError(
                f"apply is {str(path)!r}, where {error}: an earlier version wrote it, or it was "
                f"edited: calibrate again with {command}."
            ) from error
        return read

    def check(
        self, scores: Origin, methods: Collection[tuple[str, str]], override: Sequence[str]
    ) -> None:
        """Raise a DataError unless the thresholds may be applied to these scores."""
        found = [each for each in self.refusals(scores, methods) if each[0] not in override]
        if found:
            why = "; ".join(reason for _, reason in found)
            kinds = [kind for kind in REMEDIES if kind in dict(found)]
            raise DataError(
                f"apply: the thresholds are not applied, since {why}. "
                f"{' '.join(REMEDIES[kind] for kind in kinds)} To apply them all the same give "
                f"override=[{','.join([*override, *kinds])}]."
            )


def labelled_digest(examples: Sequence[Text]) -> str:
    """A hash of the texts, their ids and labels, in any order."""
    return lines_digest(sorted(json.dumps([e.sha256, e.example_id, e.label]) for e in examples))


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "unknown"


OVERRIDE = Range(lambda names: set(names) <= set(REMEDIES), f"choose from {', '.join(REMEDIES)}.")

SHOWN = ["method", "variant", "threshold", "accuracy", "F1", "TPR", "FPR", "AUROC", "stability"]


@dataclass(frozen=True)
class ThresholdStage(Ranged):
    """What to calibrate, or what to apply."""

    scores: str = limited("", Range(bool, "give a folder with scores.parquet."))
    """A scores folder, or a folder that `python -m detection out=…` wrote."""
    examples: str | None = None
    """The labelled texts that were scored (a corpus folder or a JSONL): calibrate on them."""
    apply: str | None = None
    """A file of thresholds to apply instead."""
    override: list[str] = limited([], OVERRIDE)
    """With `apply`: go on though the file is of another `model`, `prefix` or `settings`, is no
    better than `chance`, or is of a `size` that is too small."""
    out: str = "thresholds.json"
    """Where the thresholds go; with `apply` a CSV."""
    rule: str = "accuracy"
    """accuracy, f1, or fpr (the false-positive rate below)."""
    fpr: float = 0.05
    share: float = 0.5
    """The calibration split's share of the texts."""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give either examples=FILE to calibrate, or apply=FILE to apply."
        self.require((self.examples is None) != (self.apply is None), "apply", remedy)


def decide(stage: ThresholdStage) -> None:
    """Calibrate thresholds and save them, or apply saved ones."""
    check_file("out", stage.out)
    table, made_of = read_scores(Path(stage.scores))
    print("".join(f"{line}\n" for line in said(counted(table))), end="")
    out = Path(stage.out).expanduser()
    if stage.apply is not None:
        saved = Calibration.read(Path(stage.apply))
        methods = set(zip(table["method"], table["variant"], strict=True))
        saved.check(made_of, methods, stage.override)
        decided = apply(table, saved.thresholds)
        with output_file(out) as part:
            write_csv(part, decided)
        print("\n".join(_called(decided)))
    else:
        examples = _scored_texts(stage, table, made_of.inputs)
        made = _calibration(stage, table, examples, made_of)
        made.write(out)
        print(_shown(made, made_of))
    print(f"wrote {out}")


def _scored_texts(
    stage: ThresholdStage, table: pd.DataFrame, inputs: Mapping[str, str]
) -> Sequence[Text]:
    """The labelled texts.

    Raises:
        DataError: they are not those that were scored.
    """
    examples = open_examples(ExamplesConfig(str(stage.examples)))
    scored = set(table["example_id"])
    missing = [e.example_id for e in examples if e.example_id not in scored]
    if missing or inputs.get("examples", examples_digest(examples)) != examples_digest(examples):
        first = f"; the text {missing[0]!r} has no score" if missing else ""
        raise DataError(
            f"examples is {stage.examples!r}: these are not the texts of {stage.scores}{first}. "
            "Give the file that was scored, with the same ids and texts; its labels may be new."
        )
    return examples


def _calibration(
    stage: ThresholdStage, table: pd.DataFrame, examples: Sequence[Text], made_of: Origin
) -> Calibration:
    inputs = made_of.inputs
    fit, judge = halves(table, examples, stage.share, stage.seed)
    (members, nonmembers), (test_members, test_nonmembers) = map(_independent, (fit, judge))
    how = {name: getattr(stage, name) for name in ("rule", "fpr", "share", "seed")}
    return Calibration(
        models={role: inputs[role] for role in MODELS if role in inputs},
        prefix=inputs.get(PREFIX_TEXTS),
        settings=dict(made_of.settings),
        examples=labelled_digest(examples),
        members=members,
        nonmembers=nonmembers,
        test_members=test_members,
        test_nonmembers=test_nonmembers,
        thresholds=calibrate(table, examples, **how),
        **how,
    )


def _independent(texts: Sequence[Text]) -> tuple[int, int]:
    """How many members there are, and non-members; pieces of one thing are one."""
    things = {(e.label, e.benchmark, e.cluster or e.example_id) for e in texts}
    members = sum(label is True for label, *_ in things)
    return members, len(things) - members


def _called(decided: pd.DataFrame) -> Iterator[str]:
    """A line a method: how many are called members, and how many p-values are small."""
    for key, rows in decided[decided["ranked"]].groupby(["method", "variant"]):
        called, small = rows["member"].mean(), (rows["p_value"] <= 0.05).mean()
        yield f"{' '.join(key):46} {called:7.1%} called members, {small:7.1%} with p ≤ 0.05"


def _shown(made: Calibration, made_of: Origin) -> str:
    rows = [
        [
            *(t.method, t.variant, f"{t.value:.5g}"),
            *(f"{rate:.3f}" for rate in (t.accuracy, t.f1, t.tpr, t.fpr)),
            *(f"{t.auroc:.3f} [{t.auroc_low:.3f}, {t.auroc_high:.3f}]", f"{t.stability:.4g}"),
        ]
        for t in made.thresholds
    ]
    table = fit(SHOWN, rows, least=["stability", "F1", "accuracy"]).lines(left=2)
    note = (
        f"chosen on {made.members} members and {made.nonmembers} non-members, judged on "
        f"{made.test_members} and {made.test_nonmembers} others (pieces of one cluster count "
        "once); stability: the threshold's standard deviation over subsets"
    )
    methods = {(t.method, t.variant) for t in made.thresholds}
    found = [why for _, why in made.refusals(made_of, methods)]
    warned = [f"`apply` will refuse the file without an override: {why}." for why in found]
    return "\n".join([*table, note, *warned])
