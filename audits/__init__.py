"""Audits of a model with your own texts: `python -m audits audit=NAME …`.

An audit is a subclass of `base.Audit` (a module or a package here, or an entry point of another
package) and a file of `conf/audit` that names it. It checks its input and returns the content of a
report; `run` stores that in the same way for all audits.
"""

from contamination.core.startup import check_import_name

check_import_name(__name__)
