"""The stages in order, on this machine or on a cluster."""

import contamination.core.startup  # noqa: F401 (signals are answered from here on)
