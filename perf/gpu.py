"""All that wants a GPU, measured in one command: `make gpu`.

    python -m perf.gpu out=FOLDER [shapes=large] [revision=REVISION] [PART …]

Eight minutes on an H200; nine were not enough on an H100, where the 7B training keeps the
optimizer's states on the host. Each part is a process of its own with a time limit, so that a
crash, a full memory or a slow part loses its own lines only. FOLDER gets, after each part:

- gpu.json: the device, the versions, the code's revision, and every part's rows, earlier runs'
  among them where device, versions, revision and shapes are the same;
- gpu.md: the same as tables;
- gpu.log: what the parts said.

Without a GPU the shapes are tiny, and the numbers mean nothing: that tries the code only. `shapes`
says another size, and `revision` names the code where git can't.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from contamination.core.files import write_text_atomically

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 1140.0  # of all parts
SHAPES = ("large", "tiny")
GIVEN = ("out", "shapes", "revision", "child", "attempt", "rows")
LEAST = 20.0  # with less time left a part is not begun
FULL = 77  # exit status: the device's memory is full
ATTEMPTS = 3
PACKAGES = ("torch", "triton", "transformers", "deepspeed", "datasets", "numpy")
Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Something to measure.

    Attributes:
        title: of its table; parts of one title share one.
        seconds: its limit.
        work: what writes its rows, from the shapes and the attempt.
    """

    title: str
    seconds: float
    work: Callable[..., None]


def part_by_name() -> dict[str, Part]:
    """All parts, the most wanted first."""
    from perf import gpu_parts as of

    def detection(
        name: str, kind: str, place: int, dtype: str, shapes: of.Shapes, write: of.Write, _: int
    ) -> None:
        vocabulary = shapes.vocabularies[place]
        of.detection(name, getattr(shapes, kind), vocabulary, dtype, shapes, write)

    scoring, stepping = "Detection, texts of 256 tokens", "Training, sequences of 2,048 tokens"
    return {
        "tests": Part("Tests", 110, of.tests),
        "golden": Part("Largest relative difference to float64 scores", 60, of.golden),
        "7b-32k": Part(scoring, 100, partial(detection, "7B shape", "seven", 0, "bfloat16")),
        "7b-128k": Part(scoring, 100, partial(detection, "7B shape", "seven", 1, "bfloat16")),
        "train-1b": Part(stepping, 110, partial(of.billion, True)),
        "study": Part("A contaminated run from nothing", 240, of.study),
        "train-7b": Part(stepping, 400, of.seven),
        "train-1b-eager": Part(stepping, 60, partial(of.billion, False)),
        "135m": Part(scoring, 45, partial(detection, "135M shape", "small", 1, "float32")),
    }


def run_part(name: str, part: Part, shapes: str, log: Path, left: float) -> list[Row]:
    """A part's rows, from processes of its own: another attempt where the memory was full."""
    if left < LEAST:
        return [{"part": name, "skipped": f"{max(0.0, left):.0f} s were left"}]
    seconds = min(part.seconds, left)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, log.open("a") as said:
        file = Path(folder) / "rows.jsonl"
        for attempt in range(ATTEMPTS):
            words = [f"shapes={shapes}", f"child={name}", f"attempt={attempt}", f"rows={file}"]
            print(f"=== {name}, attempt {attempt}", file=said, flush=True)
            status = _wait_for_child([sys.executable, "-m", "perf.gpu", *words], said, end)
            if status != FULL:
                break
        rows = [json.loads(line) for line in _read_lines(file)]
    if status is None:
        return [*rows, {"part": name, "failed": f"not done in {seconds:.0f} s"}]
    if status:
        why = "the memory is full" if status == FULL else f"status {status}: {_read_lines(log)[-1]}"
        rows.append({"part": name, "failed": why})
    return rows


def _wait_for_child(words: Sequence[str], said: Any, end: float) -> int | None:
    """The status of a process, or None where it had to be ended with all that it started."""
    env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    child = subprocess.Popen(
        words, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT, start_new_session=True, env=env
    )
    try:
        return child.wait(max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what it has left behind too
        child.wait()


def _read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.is_file() else []


def run_child(name: str, shapes: str, attempt: int, file: Path) -> int:
    """One attempt at a part, in this process."""
    from perf import gpu_parts

    def write(row: Row) -> None:
        with file.open("a") as stream:
            stream.write(json.dumps(row) + "\n")

    gpu_parts.quiet()
    try:
        part_by_name()[name].work(gpu_parts.SHAPES[shapes], write, attempt)
    except RuntimeError as error:  # torch's, or NCCL's
        if "out of memory" not in str(error).lower():
            raise
        print(error)
        return FULL
    return 0


def machine_facts() -> Row:
    """The device, the versions and the code."""
    import torch

    from contamination.core.artifacts import code_revision

    cuda = torch.cuda.is_available()
    versions = {name: _version(name) for name in PACKAGES}
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30 if cuda else 0
    return {
        "device": torch.cuda.get_device_name(0) if cuda else "CPU", "GiB": round(memory, 1),
        "CUDA": torch.version.cuda, "python": sys.version.split()[0], **versions,
        "revision": code_revision(),
    }  # fmt: skip


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def rows_of_earlier_run(file: Path, facts: Row) -> dict[str, list[Row]]:
    """The rows that an earlier run has found where all facts are the same."""
    try:
        found = json.loads(file.read_text())
        return dict(found["parts"]) if found["about"] == facts else {}
    except (OSError, ValueError, LookupError, TypeError):  # none, or cut off in writing
        return {}


def choose_shapes() -> str:
    """The shapes for this machine."""
    import torch

    if torch.cuda.is_available():
        return "large"
    print("There is no CUDA device here: shapes=tiny, which tries the code and measures nothing.")
    return "tiny"


def render_markdown(facts: Row, found: dict[str, tuple[str, list[Row]]]) -> str:
    """The facts, then a table a title; what was skipped or failed stands under its table."""
    lines = [", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    for title in dict.fromkeys(title for title, _ in found.values()):
        rows = [row for own, part in found.values() if own == title for row in part]
        lines += [f"## {title}", "", *_table_lines([row for row in rows if "part" not in row])]
        lines += [f"- {row}" for row in map(_failure_reason, rows) if row]
        lines.append("")
    return "\n".join(lines)


def _failure_reason(row: Row) -> str:
    given = [f"{how}: {row[how]}" for how in ("skipped", "failed") if how in row]
    return f"{row['part']} {given[0]}" if given else ""


def _table_lines(rows: Sequence[Row]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return []
    cells = [[_format_cell(row.get(name, "")) for name in columns] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)] + [""]


def _format_cell(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if type(value) is int else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main() -> int:
    """Runs the parts; the exit status is 1 where one failed."""
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    shapes = given.get("shapes") or choose_shapes()
    if "child" in given:
        return run_child(given["child"], shapes, int(given["attempt"]), Path(given["rows"]))
    known = part_by_name()
    names = [word for word in sys.argv[1:] if "=" not in word] or list(known)
    if not {*names} <= {*known} or not {*given} <= {*GIVEN} or shapes not in SHAPES:
        print(f"Give out=FOLDER, shapes={' or shapes='.join(SHAPES)}, revision=REVISION,")
        print(f"and parts of: {', '.join(known)}.")
        return 2
    out = Path(given.get("out", "gpu"))
    out.mkdir(parents=True, exist_ok=True)
    facts = {**machine_facts(), "shapes": shapes}
    facts["revision"] = given.get("revision", facts["revision"])
    found = rows_of_earlier_run(out / "gpu.json", facts)
    end = time.monotonic() + SECONDS
    for name in names:
        started = time.monotonic()
        rows = run_part(name, known[name], shapes, out / "gpu.log", end - started)
        print(f"{name}: {time.monotonic() - started:.0f} s, {len(rows)} rows", flush=True)
        if name not in found or "skipped" not in rows[0]:
            found[name] = rows
        found = {name: found[name] for name in known if name in found}
        write_text_atomically(
            out / "gpu.json", json.dumps({"about": facts, "parts": found}, indent=1)
        )
        titled = {name: (known[name].title, rows) for name, rows in found.items()}
        write_text_atomically(out / "gpu.md", render_markdown(facts, titled))
    print((out / "gpu.md").read_text())
    return int(any("failed" in row for name in names for row in found[name]))


if __name__ == "__main__":
    sys.exit(main())
