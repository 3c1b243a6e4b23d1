"""The stages in order, on this machine or on a cluster."""

from contamination.core.process_startup import check_import_name

check_import_name(__name__)

DAMAGE_REMEDY = "python -m launch check runs={runs} lists all damaged folders."
"""The remedy that this package's commands add to the errors of damaged folders."""
