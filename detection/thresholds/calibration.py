"""A file of thresholds: what they were chosen on, and what it may be applied to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.stored import MOST_BYTES, parse_json, typed
from core.user_files import open_to_read, output_file
from detection.examples import lines_digest
from detection.resources import PREFIX_TEXTS
from detection.scores import RECORDED, Origin
from detection.texts import Text
from detection.thresholds.choose import Threshold

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
