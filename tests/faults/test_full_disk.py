"""A full disk is one paragraph at any stage; with space again the same command ends the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.started import ENVIRONMENT
from tests.small import SMALL, contents

pytestmark = pytest.mark.slow
HERE = Path(__file__).parents[2]
AMPLE = 64 * 1024
LATER = {  # what there is not yet when a stage has ended
    "": ("*",),
    "inject": ("launches", "model", "passes", "scores", "report"),
    "train": ("launches", "passes", "scores", "report"),
    "detect": ("launches", "report"),
}

FULL = [  # the last stage that was made before, and the KiB that are then left
    ("", 0),  # for nothing
    ("", 400),  # the code
    ("", 1724),  # the cell's records
    ("", 1900),  # the tokenizer and tokens of the base corpus
    ("", 5000),  # its sequences
    ("inject", 0),
    ("inject", 1500),  # a checkpoint of the base model
    ("inject", 4000),
    ("inject", 5500),  # the study's
    ("train", 60),  # a pass
    ("train", 160),  # scores
    ("detect", 0),
    ("detect", 200),  # the report's tables
    ("detect", 4000),  # its charts
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The runs folder of a cell that had space."""
    runs = tmp_path_factory.mktemp("whole") / "runs"
    subprocess.run(command(runs), env=ENVIRONMENT, cwd=HERE, check=True)
    return runs


def command(runs, *more):
    return [sys.executable, "-m", "launch", *SMALL, "wandb.mode=disabled", f"runs={runs}", *more]


class Disk:
    """A small file system that this test alone has: of a mount namespace, which ends with it."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        mount = 'mount -t tmpfs -o size="$1"k tmpfs "$2" && echo mounted && exec sleep 3600'
        self._holder = subprocess.Popen(
            ["unshare", "-m", "bash", "-c", mount, "-", str(AMPLE), str(place)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.place = place
        if self._holder.stdout.readline() != "mounted\n":
            pytest.skip(f"no file system can be mounted: {self._holder.communicate()[1]}")

    @property
    def seen(self) -> Path:
        """The folder from outside."""
        return Path(f"/proc/{self._holder.pid}/root{self.place}")

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """A command for which the file system is there."""
        return subprocess.run(
            ["nsenter", f"--target={self._holder.pid}", "--mount", f"--wd={HERE}", *words],
            capture_output=True, text=True, env=ENVIRONMENT, timeout=600,
        )  # fmt: skip

    def leave(self, kib: int | None) -> None:
        """Leave that much space; None: ample."""
        used = shutil.disk_usage(self.seen).used // 1024
        size = AMPLE if kib is None else max(4, used + kib)  # 0 would be no limit
        done = self.run(["mount", "-o", f"remount,size={size}k", str(self.place)])
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def disk(tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    found = Disk(tmp_path / "disk")
    yield found
    found.close()


@pytest.mark.parametrize(("stage", "kib"), FULL)
def test_a_full_disk_is_one_paragraph_and_nothing_is_lost(whole, disk, stage, kib):
    runs = disk.place / "runs"
    shutil.copytree(whole, disk.seen / "runs", ignore=shutil.ignore_patterns(*LATER[stage]))
    disk.leave(kib)
    full = disk.run(command(runs))
    print(full.stdout, full.stderr)
    assert full.returncode == 2
    (error,) = [line for line in full.stderr.splitlines() if line.startswith("error: ")]
    assert "No space" in error
    assert str(runs) in error
    assert full.stderr.endswith(f"{error}\n")
    assert "Traceback" not in full.stderr
    assert "Exception" not in full.stderr
    disk.leave(None)
    again = disk.run(command(runs))
    assert again.returncode == 0, again.stderr[-4000:]
    assert contents(disk.seen / "runs") == contents(whole)
