"""The stages in order, on this machine or on a cluster."""

import core.early  # noqa: F401 (signals are answered from here on)
