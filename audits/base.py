"""The base class of audits, their configuration and their result.

Audits of other packages are installed as entry points of the group `contamination.audits`, as
`NAME = "package.module:Class"`, and chosen by `audit=NAME` like those of `conf/audit`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hydra.core.config_store import ConfigStore

from contamination.core.artifacts import Artifact
from contamination.core.commands import Command, read_commands
from contamination.core.config import CONF, Ranged, runtime_field
from contamination.core.errors import ConfigError, near_names, require
from contamination.core.field_docs import describe_dataclass
from contamination.core.stored_files import read_yaml
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionStage, ScoredModelConfig, ScoringNodes
from contamination.training.config import WandbConfig

if TYPE_CHECKING:
    from contamination.core.report.document import ReportContent
    from contamination.data.texts import Texts


@dataclass(frozen=True, kw_only=True)
class AuditStage(ScoringNodes):
    """The configuration of one audit."""

    audit: dict[str, Any]
    """`_target_`, which names a subclass of `Audit`, and its fields."""
    wandb: WandbConfig = runtime_field(WandbConfig(mode="disabled"))
    """Where the audit's numbers, tables and page are logged as a run of the type `audit`."""

    def score_texts(
        self, texts: Texts, description: str, model: ScoredModelConfig | None = None
    ) -> Artifact:
        """Scores texts as `python -m detection` does; existing scores are reused.

        Args:
            texts: the texts, with unique ids.
            description: what the texts are, recorded in config.yaml in place of a path.
            model: the model to score with; by default `self.model`.

        Returns:
            The folder of scores.
        """
        from contamination.detection.run import run

        return run(self._detection_stage(description, model), examples=texts)

    def scores_folder(
        self, texts: Texts, description: str, model: ScoredModelConfig | None = None
    ) -> Path:
        """Returns the folder that `score_texts` would make or reuse, without scoring."""
        from contamination.detection.run import scores_folder

        return scores_folder(self._detection_stage(description, model), texts)

    def _detection_stage(self, description: str, model: ScoredModelConfig | None) -> DetectionStage:
        nodes = {field.name: getattr(self, field.name) for field in fields(ScoringNodes)}
        nodes["model"] = model or self.model
        return DetectionStage(**nodes, examples=ExamplesConfig(f"({description})"))


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        content: the content of its Markdown file and of its page.
        counts: numbers to record in the manifest.
        files: names of further files that the audit has written into its folder.
    """

    content: ReportContent
    counts: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()


@dataclass(frozen=True)
class PreparedAudit:
    """An audit whose input has been read and checked.

    Attributes:
        slug: the audited model's part of the folder's name.
        inputs: the digests of everything that the audit reads, by name.
        conduct: runs the audit; called with the audit's unfinished folder.
        settings: further settings that can change the result, besides the audit's own fields and
            the seed.
    """

    slug: str
    inputs: Mapping[str, str]
    conduct: Callable[[Path], AuditResult]
    settings: Mapping[str, Any] = field(default_factory=dict)


class Audit(Ranged, ABC, node="audit"):
    """One kind of audit: a frozen dataclass whose fields are those of its file in conf/audit.

    A field that names files is declared with `core.config.runtime_field`: the folder's name depends
    on the files' content (`PreparedAudit.inputs`) and not on their paths. Other fields are declared
    with a range (`core.config.ranged_field`).
    """

    kind: ClassVar[str]
    """The first part of the names of its run folders."""

    needed: ClassVar[Sequence[str]] = ()
    """The names of fields that are required, although their default is None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field_name in self.needed:
            self.require(
                getattr(self, field_name) is not None, field_name, "give a file or a folder."
            )

    @abstractmethod
    def prepare(self, stage: AuditStage) -> PreparedAudit:
        """Reads and checks all input; returns the audit ready to be conducted.

        Raises:
            UserError: the input can't be used.
        """


def check_audit(instance: Any, node: Mapping[str, Any]) -> Audit:
    """Returns the instance that the node `audit` describes, if it is an audit.

    Raises:
        ConfigError: it is not.
    """
    remedy = "give a subclass of contamination.audits.base.Audit; see conf/audit."
    require(isinstance(instance, Audit), "audit._target_", node["_target_"], remedy)
    audit: Audit = instance
    return audit


ENTRY_POINTS = "contamination.audits"
"""The entry point group of audits that other packages install."""
CHOICE = re.compile(r"audit=([\w/]+)")


def installed_audits() -> EntryPoints:
    """Returns the audits that other packages install."""
    return entry_points(group=ENTRY_POINTS)


def register_installed_audits(overrides: Sequence[str]) -> None:
    """Adds the audits of other packages to Hydra's config store, as further files of conf/audit.

    Only the audit that the overrides choose is imported, for the defaults of its fields.

    Raises:
        ConfigError: the chosen audit can't be imported, or is not an audit.
    """
    chosen = chosen_audit_name(overrides)
    for entry_point in installed_audits():
        node: dict[str, Any] = {"_target_": entry_point.value.replace(":", ".")}
        if entry_point.name == chosen:
            node |= {field.name: _default_value(field) for field in _load_audit_fields(entry_point)}
        ConfigStore.instance().store(name=entry_point.name, node=node, group="audit")


def load_audit_class(entry_point: EntryPoint) -> type[Audit]:
    """Returns the class of an installed audit, which is a dataclass.

    Raises:
        ConfigError: it can't be imported, or is not an audit.
    """
    try:
        audit_class = entry_point.load()
    except Exception as error:  # another package's import may fail in any way
        raise ConfigError(
            f"audit is {entry_point.name!r}: {entry_point.value} can't be imported "
            f"({type(error).__name__}: {error}). Fix or remove the package that installs it."
        ) from error
    is_audit = isinstance(audit_class, type) and issubclass(audit_class, Audit)
    remedy = f"make {entry_point.value} a dataclass below contamination.audits.base.Audit."
    require(is_audit and is_dataclass(audit_class), "audit", entry_point.name, remedy)
    return audit_class  # type: ignore[no-any-return]


def _load_audit_fields(entry_point: EntryPoint) -> tuple[Field[Any], ...]:
    return fields(load_audit_class(entry_point))  # type: ignore[arg-type]


def _default_value(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return "???" if field.default is MISSING else field.default


def add_audit_prefixes(overrides: Sequence[str]) -> list[str]:
    """Returns the command line's overrides, with `positives=DIR` as `audit.positives=DIR`.

    A field of the chosen audit is recognised without its prefix, unless `AuditStage` has a field of
    the same name, such as `model`.
    """
    names = _audit_field_names(chosen_audit_name(overrides)) - {
        field.name for field in fields(AuditStage)
    }
    if not names:
        return [*overrides]
    alternatives = "|".join(map(re.escape, sorted(names)))
    unprefixed = re.compile(rf"^(\+*)({alternatives})(?=[.=])")
    return [unprefixed.sub(r"\1audit.\2", override) for override in overrides]


def chosen_audit_name(overrides: Sequence[str]) -> str | None:
    """Returns the audit that the overrides choose, by `audit=NAME`, or None."""
    choices = [match[1] for match in map(CHOICE.fullmatch, overrides) if match]
    return choices[-1] if choices else None


def _audit_field_names(audit_name: str | None) -> set[str]:
    """Returns the fields of a file of conf/audit or of an installed audit, or an empty set."""
    if audit_name is None:
        return set()
    file = CONF / "audit" / f"{audit_name}.yaml"
    if file.is_file():
        return {*read_yaml(file)}
    installed = entry_points(group=ENTRY_POINTS, name=audit_name)
    return {field.name for entry_point in installed for field in _load_audit_fields(entry_point)}


def find_audit_command(words: Sequence[str]) -> Command:
    """Returns the command of the audit that the words choose, or of all audits.

    Raises:
        ConfigError: there is no such audit, or an installed one can't be imported.
    """
    name = chosen_audit_name(words)
    commands = read_commands()
    command = commands.get("audit" if name is None else f"audit {name}")
    if command is not None:
        return command
    installed = {entry_point.name: entry_point for entry_point in installed_audits()}
    if name not in installed:
        own_audits = [c.removeprefix("audit ") for c in commands if c.startswith("audit ")]
        raise ConfigError(
            f"audit={name}: unknown audit. {near_names(str(name), [*own_audits, *installed])}"
        )
    audit_class = load_audit_class(installed[name])
    schema = describe_dataclass(audit_class)
    return Command(
        name=f"audit {name}",
        module=f"audits {name}",
        purpose=schema.text,
        example="model.path=DIR",
        docs=commands["audit"].docs,
        words={f"{f.name}={f.default or '(required)'}": f.text for f in schema.fields},
    )
