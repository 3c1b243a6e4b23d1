"""The range of a configuration field, declared beside its default."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from core.errors import require


@dataclass(frozen=True)
class Range:
    """Which values a field may have, and the remedy where it has another."""

    holds: Callable[[Any], bool]
    remedy: str


FRACTION = Range(lambda value: 0 < value <= 1, "give a fraction above 0 and at most 1.")
PART = Range(lambda value: 0 < value < 1, "give a share above 0 and below 1.")
SHARE = Range(lambda value: 0 <= value <= 1, "give a share between 0 and 1.")
POSITIVE = Range(lambda value: 0 < value < math.inf, "give a number above 0.")
DEVICE = Range(
    lambda name: name in ("auto", "cpu") or name.startswith("cuda"),
    "give auto, cpu, cuda or cuda:<n>.",
)


def at_least(low: float) -> Range:
    """A finite number from `low` on."""
    return Range(lambda value: low <= value < math.inf, f"give {low} or more.")


def between(low: float, high: float) -> Range:
    """A number from `low` to `high`, both included."""
    return Range(lambda value: low <= value <= high, f"give {low:,} to {high:,}.")


def one_of(names: Iterable[str]) -> Range:
    """One of these words."""
    known = tuple(names)
    return Range(lambda value: value in known, f"choose from {', '.join(known)}.")


def limited(default: Any, range_: Range | None, **metadata: Any) -> Any:
    """A dataclass field with a default and a range; a list is copied for each object."""
    metadata["range"] = range_
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


class Ranged:
    """A dataclass of `limited` fields; one out of its range raises a ConfigError.

    A field that may be None is not checked where it is None.

    Args:
        node: the config node that holds the fields, for the error.
    """

    node: ClassVar[str] = ""

    def __init_subclass__(cls, node: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.node = cls.node if node is None else node

    def __post_init__(self) -> None:
        for own in fields(self):  # type: ignore[arg-type]  # a subclass is a dataclass
            value, range_ = getattr(self, own.name), own.metadata.get("range")
            optional = "None" in str(own.type)
            if range_ and not (optional and value is None):
                remedy = range_.remedy.removesuffix(".") + (", or null." if optional else ".")
                self.require(range_.holds(value), own.name, remedy)

    def require(self, condition: bool, name: str, remedy: str) -> None:
        """Raise a ConfigError that names the field, its value and the remedy unless it holds."""
        require(condition, f"{self.node}.{name}".lstrip("."), getattr(self, name), remedy)
