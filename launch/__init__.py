"""The stages in order, on this machine or on a cluster."""

from contamination.core.startup import check_import_name

check_import_name(__name__)
