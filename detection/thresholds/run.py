"""`python -m detection thresholds`: calibrate on labelled scores, or apply what was calibrated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from core.csv_files import write_csv
from core.disk import check_file
from core.errors import DataError
from core.ranges import Range, Ranged, limited
from core.terminal import fit
from core.user_files import output_file
from detection.config import ExamplesConfig
from detection.examples import examples_digest, open_examples
from detection.flags import counted, said
from detection.resources import PREFIX_TEXTS
from detection.scores import Origin, read_scores
from detection.texts import Text
from detection.thresholds.calibration import MODELS, REMEDIES, Calibration, labelled_digest
from detection.thresholds.choose import apply, calibrate, halves

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
