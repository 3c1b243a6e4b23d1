"""Proxies and certificates that the environment names for connections, where they can't be used."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.request import getproxies

from contamination.core import secrets
from contamination.core.errors import said

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The environment variables that name certificates of authorities."""


def lacks_certificates() -> bool:
    """Whether the environment names certificates that are not there."""
    return any(not Path(os.environ[name]).exists() for name in CERTIFICATES if os.environ.get(name))


def environment_fault(error: Exception) -> str:
    """Why no connection can be made, and the remedy; a proxy's address may hold a password."""
    if isinstance(error, OSError):
        named = [f"{name}={os.environ[name]!r}" for name in CERTIFICATES if os.environ.get(name)]
        remedy = f"Correct or unset {' and '.join(named)}." if named else "Install certifi again."
        return f"the certificates can't be read ({said(error)}). {remedy}"
    proxies = " or ".join(f"{scheme}_proxy".upper() for scheme in sorted(getproxies()))
    remedy = f"Correct or unset {proxies}. {secrets.UNSAID}"
    if isinstance(error, ImportError):
        remedy = f"Run pip install 'httpx[socks]', or unset {proxies}."
        return f"the environment names a SOCKS proxy, which needs another package. {remedy}"
    return f"the environment names a proxy that can't be used. {remedy}"
