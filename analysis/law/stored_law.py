"""A run of `analyse law` on disk: the fitted law as JSON, read within limits and checked.

::

    runs/law/<name>-<hash>/
    ├── config.yaml            the resolved config
    ├── fit.json               the fitted law: all that predictions and the planner read
    ├── <table>.parquet, .csv  measurements, coefficients, within, calibration, held_out, errors,
    │                          predictions: those that there is something for
    ├── law.png, .svg, .pdf    measured and predicted
    ├── law.md                 the text
    └── manifest.json
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from contamination.analysis.law.fit import FACTORS, INTERCEPT, Law
from contamination.core.artifacts import open_artifact
from contamination.core.errors import ArtifactError
from contamination.core.files import hashed_json, read_verified_json, write_text_atomically
from contamination.core.stored_files import parse_typed

KIND = "law"
FIT = "fit.json"
MOST_PARAMETERS = 5_000


def write_law(folder: Path, law: Law) -> str:
    """Writes fit.json; returns its name."""
    write_text_atomically(folder / FIT, hashed_json(asdict(law)))
    return FIT


def open_law(field: str, path: Path | str) -> Law:
    """Returns the law in the folder of a finished run of `analyse law`.

    Args:
        field: the config field of `path`, for error messages.
        path: the folder.

    Raises:
        ArtifactError: it is missing, unfinished or damaged, or its fit.json is not a fitted law.
    """
    artifact = open_artifact(path, KIND)
    try:
        return parse_law(read_verified_json(artifact.path / FIT))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{field} is {path}: {FIT} can't be used: {error}. Run `contamination analyse law` "
            "again."
        ) from error


def parse_law(values: Any) -> Law:
    """Returns the law in plain data.

    Raises:
        ValueError: a field is missing, unknown or of another type, sizes differ, or a number is
            not finite or out of range.
    """
    law: Law = parse_typed(values, Law)
    number = len(law.names)
    square = len(law.covariance) == number and all(len(row) == number for row in law.covariance)
    if not 0 < number <= MOST_PARAMETERS or len(law.values) != number or not square:
        raise ValueError("names, values and covariance have different sizes")
    if not {*law.factors} <= {*FACTORS} or any(len(f) != 3 for f in law.factors.values()):
        raise ValueError("factors has an unknown factor, or not three numbers of one")
    if law.names[: 1 + len(law.factors)] != [INTERCEPT, *law.factors] or not law.benchmarks:
        raise ValueError("names does not begin with the factors, or has no benchmark")
    if {*law.growth} != {*law.methods}:
        raise ValueError("growth has not one number per method")
    covariance = np.array(law.covariance, float)
    numbers = [*law.values, *covariance.ravel(), *law.growth.values(), law.errors]
    if not np.isfinite(numbers).all() or (np.diag(covariance) < 0).any():
        raise ValueError("a value is not finite, or a variance is negative")
    positive = [x for f in law.factors.values() for x in f] + [law.recency_tokens]
    shares = [*law.within.values()]
    if not all(0 < x < np.inf for x in positive) or not all(0 <= x <= 1 for x in shares):
        raise ValueError("a factor, recency_tokens or within is out of range")
    if not all(0 <= x < np.inf for x in law.variances.values()) or law.freedom < 1:
        raise ValueError("variances or freedom is out of range")
    return law
