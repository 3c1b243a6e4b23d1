"""Controlled contamination experiments for language models.

The public functions are imported from here; a package is loaded when its name is first used:

    from contamination import inject, train, score, evaluate, audit_benchmark, analyse

`inject`, `train` and `analyse` run a stage with the overrides of the command line and return its
result. `score`, `evaluate` and `audit_benchmark` take texts and a model (docs/python.md).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
if (_ROOT / "core").is_dir():
    __path__.append(str(_ROOT))  # a checkout: `contamination.core` is its folder `core`

_EXPORTS = {
    "inject": "injection",
    "open_corpus": "injection",
    "train": "training",
    "open_checkpoint": "training",
    "score": "detection",
    "evaluate": "detection",
    "open_scores": "detection",
    "audit_benchmark": "audits",
    "analyse": "analysis",
    "open_report": "analysis",
}
"""Public name → the package that defines it."""

__all__ = [*_EXPORTS, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("contamination-testbed")
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
