"""Errors for proxies and certificates in environment variables that can't be used."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.request import getproxies

from contamination.core import secrets
from contamination.core.errors import describe_error

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables with the certificates of certificate authorities."""


def names_missing_certificates() -> bool:
    """Returns whether an environment variable names certificates that do not exist."""
    return any(not Path(os.environ[name]).exists() for name in CERTIFICATES if os.environ.get(name))


def describe_environment_fault(error: Exception) -> str:
    """Returns the reason why no connection is possible, and a remedy.

    The address of a proxy is not quoted, since it may contain a password.
    """
    if isinstance(error, OSError):
        settings = [f"{name}={os.environ[name]!r}" for name in CERTIFICATES if os.environ.get(name)]
        remedy = "Install certifi again."
        if settings:
            remedy = f"Correct or unset {' and '.join(settings)}."
        return f"the certificates can't be read ({describe_error(error)}). {remedy}"
    proxies = " or ".join(f"{scheme}_proxy".upper() for scheme in sorted(getproxies()))
    remedy = f"Correct or unset {proxies}. {secrets.NOT_REPEATED}"
    if isinstance(error, ImportError):
        remedy = f"Run pip install 'httpx[socks]', or unset {proxies}."
        return f"the environment names a SOCKS proxy, which needs another package. {remedy}"
    return f"the environment names a proxy that can't be used. {remedy}"
