"""Audits of a model with your own texts: `python -m audits audit=NAME …`.

An audit is a subclass of `base.Audit` (a module or a package here, or an entry point of another
package) and a file of `conf/audit` that names it. The class checks its input and returns the
content of a report, which `run` stores in the same way for all audits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contamination.core.process_startup import lazy_exports

if TYPE_CHECKING:
    from contamination.audits.benchmark.api import audit_benchmark

__all__ = ["audit_benchmark"]
__getattr__ = lazy_exports(__name__, {"audit_benchmark": "benchmark.api"})
