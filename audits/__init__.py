"""Audits of a model and texts of one's own: `python -m audits audit=NAME …`.

An audit is a class below `base.Audit` (a file or a package here) and a file of `conf/audit` that
names it. It checks what it is given, then returns `Findings`: sentences, tables and charts. What
they are written to is the same for all of them (`run`, `page`, `markdown`).
"""

import contamination.core.startup  # noqa: F401 (signals are answered from here on)
