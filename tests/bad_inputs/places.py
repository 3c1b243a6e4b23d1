"""What can be wrong with a disk: done to the working directory of a child, before its command."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
READ_ONLY, REMOUNT, BIND, PRIVATE, RECURSIVE = 1, 32, 4096, 1 << 18, 16384


def _call(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        raise OSError(ctypes.get_errno(), f"{function}{arguments}")


def _alone() -> None:
    """Mounts of this process's own."""
    _call("unshare", NEW_MOUNTS if os.geteuid() == 0 else NEW_MOUNTS | NEW_USER)
    _call("mount", None, b"/", None, PRIVATE | RECURSIVE, None)


def read_only() -> None:
    """The working directory, on a disk that can't be written."""
    _alone()
    here = os.getcwd().encode()
    _call("mount", here, here, None, BIND, None)
    _call("mount", None, here, None, BIND | REMOUNT | READ_ONLY, None)
    os.chdir(here)


def full() -> None:
    """The folder `runs`, on a disk of 16 KiB."""
    _alone()
    os.makedirs("runs", exist_ok=True)
    _call("mount", b"tmpfs", os.path.abspath("runs").encode(), b"tmpfs", 0, b"size=16k")


PLACES: Mapping[str, Callable[[], None]] = {"read-only": read_only, "full": full}


def permitted() -> bool:
    """Whether this process may mount anything."""
    pid = os.fork()
    if pid == 0:
        try:
            _alone()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
