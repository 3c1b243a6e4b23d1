"""The file of a trained attack: the network's numbers, and the data sheet of its training.

It is JSON, read as plain data within the limits of `core.stored_files`; nothing in it selects code.
The checksum covers everything else in the file, so that damage is noticed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from contamination.core.errors import ConfigError
from contamination.core.stored_files import parse_json, parse_typed, read_text
from contamination.core.tensors import tensors_digest
from contamination.core.user_files import atomic_output_file
from contamination.data.texts import Texts
from contamination.data.words import normalise_text
from contamination.detection.models.base import ModelHandle

SHIPPED = Path(__file__).resolve().parent / "methods" / "lt_mia.json"
KIND = "lt_mia 2"
MAX_BYTES = 2**23
MAX_WEIGHT = 1e6
"""The largest absolute value of a number of the network, so that no score overflows."""
PREFIX_BYTES = 6
"""Bytes of a text's SHA-256 that are stored: a text is one of 10,000 by chance once in 10¹⁰."""
MAX_UNITS = 1_024
DIGITS = 6
"""Significant digits of a stored weight."""


@dataclass(frozen=True)
class Network:
    """The numbers of the network; see `methods.lt_mia.membership_logit`.

    Attributes:
        features: the names of the F inputs.
        center, scale: the mean and standard deviation of each input in the training data (F).
        first, first_bias: the first layer (F×H, H).
        second, second_bias: the second layer (H×H, H).
        attention: the direction that decides how much a token counts (H).
        output, output_bias: the last layer, of the weighted and of the plain mean (2H, a number).
    """

    features: list[str]
    center: list[float]
    scale: list[float]
    first: list[list[float]]
    first_bias: list[float]
    second: list[list[float]]
    second_bias: list[float]
    attention: list[float]
    output: list[float]
    output_bias: float

    @cached_property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The arrays by name, in float64.

        Raises:
            ValueError: a shape does not fit, or a number is not finite.
        """
        inputs, units = len(self.features), len(self.first_bias)
        shapes: dict[str, tuple[int, ...]] = {
            **{"center": (inputs,), "scale": (inputs,), "first": (inputs, units)},
            **{"first_bias": (units,), "second": (units, units), "second_bias": (units,)},
            **{"attention": (units,), "output": (2 * units,), "output_bias": ()},
        }
        if not 1 <= units <= MAX_UNITS:
            raise ValueError(f"network.first_bias has {units} numbers, not 1 to {MAX_UNITS}")
        arrays = {}
        for name, shape in shapes.items():
            try:
                array = np.array(getattr(self, name), np.float64)
            except (ValueError, OverflowError) as error:
                raise ValueError(f"network.{name} is no array") from error
            if array.shape != shape:
                raise ValueError(f"network.{name} has the shape {array.shape}, not {shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"network.{name} has a number that is not finite")
            if np.abs(array).max(initial=0) > MAX_WEIGHT:
                raise ValueError(f"network.{name} has a number beyond ±{MAX_WEIGHT:,.0f}")
            arrays[name] = array
        return arrays

    def check(self) -> None:
        """Raises a ValueError if the arrays do not fit together, or a scale is not above 0."""
        if (self.arrays["scale"] <= 0).any():
            raise ValueError("network.scale has a number that is not above 0")
        if (self.arrays["scale"] < 1 / MAX_WEIGHT).any():
            raise ValueError(f"network.scale has a number below {1 / MAX_WEIGHT}")


@dataclass(frozen=True)
class CellRecord:
    """A cell: a model whose members are known.

    Attributes:
        name: the model's folder.
        seed: the experiment's seed.
        model, reference: the digests of the two models' folders.
        examples: the digest of the texts.
        weights: the `tensors_digest` of the model; empty: only the folder's digest is known.
        weight_bytes: the size of the model's tensors, 0 if `weights` is empty.
    """

    name: str
    seed: int
    model: str
    reference: str
    examples: str
    weights: str
    weight_bytes: int

    def is_of(self, model: ModelHandle) -> bool:
        """Returns whether the cell's model is this one, in whatever folder."""
        if self.model == model.digest:
            return True
        tensors = model.tensors() if self.weights else []
        if sum(tensor.size for tensor in tensors) != self.weight_bytes:
            return False  # large models are not read
        return bool(tensors) and tensors_digest(tensors) == self.weights


@dataclass(frozen=True)
class Result:
    """A method's result on groups of cells and benchmarks, with 95% intervals.

    Attributes:
        cells, benchmarks: "held out" or "trained on".
        n_cells, n_benchmarks, members, nonmembers: how many there are.
        method, metric: what was measured, such as AUROC of `lt_mia`.
        value, low, high: the mean over cells of the mean over benchmarks, and its interval.
        difference, difference_low, difference_high: LT-MIA's value minus this method's, paired by
            cell; 0 for LT-MIA itself.
        left_out: the benchmarks with too few texts for the metric, which are not in the mean.
    """

    cells: str
    benchmarks: str
    n_cells: int
    n_benchmarks: int
    members: int
    nonmembers: int
    method: str
    metric: str
    value: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DataSheet:
    """What an attack was trained on and tested with.

    Attributes:
        date: when it was trained.
        licence: the licence of the weights.
        seed: the seed of the training.
        settings: the other settings of the training.
        cells, held_out_cells: the cells that it was trained on, and those that it was not.
        benchmarks: the names of the benchmarks that it was trained on, and digests of their texts.
        held_out_benchmarks: the benchmarks of the cells that it was not trained on.
        text_prefixes: the `text_prefix` of each text that it was trained on, sorted, in base64.
        results: the results on what was held out.
        limits: what the attack is not known to do.
    """

    date: str
    licence: str
    seed: int
    settings: dict[str, Any]
    cells: list[CellRecord]
    held_out_cells: list[CellRecord]
    benchmarks: dict[str, str]
    held_out_benchmarks: list[str]
    text_prefixes: str
    results: list[Result] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)

    @cached_property
    def _prefixes(self) -> frozenset[bytes]:
        content = base64.b64decode(self.text_prefixes, validate=True)
        if len(content) % PREFIX_BYTES:
            raise ValueError("sheet.text_prefixes is cut short")
        starts = range(0, len(content), PREFIX_BYTES)
        return frozenset(content[start : start + PREFIX_BYTES] for start in starts)

    def check(self) -> None:
        """Raises a ValueError if what identifies the training data can't be read."""
        if not self._prefixes or not self.cells or not self.benchmarks:
            raise ValueError("its sheet names no text, no cell or no benchmark")

    def has_trained_on(self, text: str) -> bool:
        """Returns whether the text is one of the training data."""
        return text_prefix(text) in self._prefixes

    def describe_overlap(self, texts: Texts, models: Mapping[str, ModelHandle]) -> str | None:
        """Returns how the training data include a model, these texts or their benchmarks.

        Models are recognised by their weights, benchmarks by name, whatever their texts, and texts
        by what `text_prefix` reads of them, whatever the name. Returns None if there is no overlap.
        """
        for role, model in models.items():
            if names := [cell.name for cell in self.cells if cell.is_of(model)]:
                subject = "model" if role == "target" else role
                return f"the {subject} is its training cell {names[0]}"
        benchmarks = sorted(
            {str(name) for name in pc.unique(texts.column("benchmark")).to_pylist()}
        )
        trained = {benchmark_key(name) for name in self.benchmarks}
        if shared := [name for name in benchmarks if benchmark_key(name) in trained]:
            return f"it was trained on the benchmark {', '.join(shared)}"
        distinct = pc.unique(texts.column("text")).to_pylist()
        count = sum(map(self.has_trained_on, distinct))
        return f"it was trained on {count:,} of these {len(distinct):,} texts" if count else None


@dataclass(frozen=True)
class TrainedAttack:
    """A network and its data sheet."""

    network: Network
    sheet: DataSheet

    @cached_property
    def checksum(self) -> str:
        """A hash of everything."""
        content = json.dumps(asdict(self), sort_keys=True, allow_nan=False)
        return hashlib.sha256(content.encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Writes the file atomically."""
        record = {"kind": KIND, "checksum": self.checksum, **asdict(self)}
        with atomic_output_file(path) as temporary:
            temporary.write_text(json.dumps(record, allow_nan=False) + "\n")


def pack_prefixes(prefixes: Iterable[bytes]) -> str:
    """Returns `DataSheet.text_prefixes` of these prefixes."""
    return base64.b64encode(b"".join(sorted(set(prefixes)))).decode()


def text_prefix(text: str) -> bytes:
    """Returns the first PREFIX_BYTES of a hash of the text without white space and punctuation.

    Case does not count either, so that a copy with another line end is still recognised. A text of
    nothing but punctuation is hashed as it is.
    """
    normalised = normalise_text(text)
    letters = "".join(c for c in normalised if unicodedata.category(c)[0] not in "PZ")
    return hashlib.sha256((letters or normalised).encode()).digest()[:PREFIX_BYTES]


def benchmark_key(name: str) -> str:
    """Returns a benchmark's name without case, `_`, `-` and spaces."""
    return "".join(c for c in name.casefold() if c not in "_- ")


def round_weights(array: NDArray[np.float64]) -> Any:
    """Returns the numbers with DIGITS significant digits, as nested lists."""
    return json.loads(json.dumps(array.tolist()), parse_float=lambda text: _rounded(float(text)))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def read_attack(name: str, path: Path, features: Sequence[str]) -> TrainedAttack:
    """Returns the attack in a file.

    Args:
        name: the config field that named the file, for errors.
        path: the file.
        features: the inputs that this version computes.

    Raises:
        ConfigError: there is no such file, it is damaged, or its network has other inputs.
    """
    try:
        record = parse_json(read_text(path, MAX_BYTES))
        if not isinstance(record, Mapping) or record.get("kind") != KIND:
            raise ValueError("it is not a file of train-lt-mia, or of another version")
        checksum = record.get("checksum")
        content = {key: value for key, value in record.items() if key not in ("kind", "checksum")}
        attack: TrainedAttack = parse_typed(content, TrainedAttack)
        if attack.checksum != checksum:
            raise ValueError("its checksum differs from its content")
        if list(features) != attack.network.features:
            raise ValueError("its network reads other numbers than this version computes")
        attack.network.check()
        attack.sheet.check()
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(
            f"{name} is {str(path)!r}, which can't be used: {problem}. Give a file that `python -m "
            "detection train-lt-mia` wrote, or null: the network that comes with the package."
        ) from error
    return attack
