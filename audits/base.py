"""What an audit is, and what every audit is given."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from contamination.audits.findings import Findings
from contamination.core.artifacts import Artifact
from contamination.core.cli import CONF
from contamination.core.config import Ranged
from contamination.core.errors import require
from contamination.core.stored_files import read_yaml
from contamination.data.config import ExamplesConfig
from contamination.data.texts import Texts
from contamination.detection.config import (
    DetectionConfig,
    DetectionStage,
    MaskedLMConfig,
    PrefixConfig,
    ReferenceConfig,
    ScoredModelConfig,
)


@dataclass(frozen=True)
class AuditStage:
    """Everything that one audit needs; the nodes are those of `DetectionStage`."""

    audit: dict[str, Any]
    """`_target_`, a class below `Audit`, and its fields."""

    name: str = "run"
    seed: int = 0
    """Every other seed is derived from it by name."""
    runs: str = "runs"
    """The folder of all artefacts."""
    model: ScoredModelConfig = field(default_factory=ScoredModelConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    masked_lm: MaskedLMConfig = field(default_factory=MaskedLMConfig)
    prefix: PrefixConfig = field(default_factory=PrefixConfig)
    method: dict[str, Any] = field(default_factory=dict)
    detection: DetectionConfig = field(default_factory=DetectionConfig)

    def scores(self, texts: Texts, what: str, model: ScoredModelConfig | None = None) -> Artifact:
        """The texts scored by `method`, as `python -m detection` does it, or found scored.

        Args:
            texts: of which each has an id of its own.
            what: what they are, for the scores' config.yaml, where a path would stand.
            model: what is scored; None: `model`.
        """
        from contamination.detection.run import run

        return run(self._stage(what, model), examples=texts)

    def scores_place(self, texts: Texts, what: str, model: ScoredModelConfig | None = None) -> Path:
        """The folder of these `scores`, whose name tells all that can change them."""
        from contamination.detection.run import place

        return place(self._stage(what, model), texts)

    def _stage(self, what: str, model: ScoredModelConfig | None) -> DetectionStage:
        return DetectionStage(
            name=self.name,
            seed=self.seed,
            runs=self.runs,
            examples=ExamplesConfig(f"({what})"),
            model=model or self.model,
            reference=self.reference,
            masked_lm=self.masked_lm,
            prefix=self.prefix,
            method=self.method,
            detection=self.detection,
        )


@dataclass(frozen=True)
class Prepared:
    """An audit whose input is read and good.

    Attributes:
        slug: what its folder is called, beside the audit's own name: the model, say.
        inputs: the digests of all that it reads, by name.
        find: does the work; it is given the audit's folder, which is unfinished by then.
        settings: what else can change the findings, beside the audit's own fields and the seed.
    """

    slug: str
    inputs: Mapping[str, str]
    find: Callable[[Path], Findings]
    settings: Mapping[str, Any] = field(default_factory=dict)


class Audit(Ranged, ABC, node="audit"):
    """One kind of audit: a frozen dataclass whose fields are those of its file in conf/audit.

    A field that names files is declared with `core.config.runtime`: their content names the folder
    (`Prepared.inputs`), wherever they are. Fields have ranges (`core.config.limited`).
    """

    kind: ClassVar[str]
    """What its folders begin with."""

    needed: ClassVar[Sequence[str]] = ()
    """Fields, None by default, that must be given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.needed:
            self.require(getattr(self, name) is not None, name, "give a file or a folder.")

    @abstractmethod
    def prepare(self, stage: AuditStage) -> Prepared:
        """Read and check all input.

        Raises:
            UserError: what can't be used.
        """


def audit_of(made: Any, node: Mapping[str, Any]) -> Audit:
    """What the node `audit` made, if it is an audit."""
    remedy = "give a class below contamination.audits.base.Audit; see conf/audit."
    require(isinstance(made, Audit), "audit._target_", node["_target_"], remedy)
    found: Audit = made
    return found


CHOICE = re.compile(r"audit=([\w/]+)")


def spelled_out(words: Sequence[str]) -> list[str]:
    """`positives=DIR` as `audit.positives=DIR`, where the chosen audit has such a field.

    A field that has the name of a node of the stage, such as `model`, keeps its prefix.
    """
    chosen = [found[1] for found in map(CHOICE.fullmatch, words) if found]
    file = CONF / "audit" / f"{chosen[-1]}.yaml" if chosen else None
    if file is None or not file.is_file():
        return [*words]
    own = {*read_yaml(file)} - {field.name for field in fields(AuditStage)}
    short = re.compile(rf"(\+*)({'|'.join(map(re.escape, sorted(own)))})(?=[.=])")
    return [
        short.sub(r"\1audit.\2", word, count=1) if short.match(word) else word for word in words
    ]
