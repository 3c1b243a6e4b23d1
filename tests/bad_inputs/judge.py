"""What is wrong with what a row did."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bad_inputs.row import Row
from tests.bad_inputs.server import Done

SECONDS = 5.0
MANIFEST, PASSES = "manifest.json", "/passes/"


def complaints(row: Row, done: Done) -> Iterator[str]:
    """One for each rule that the row broke: none, where all is well."""
    lines = done.stderr.strip().splitlines() or [""]
    paragraph = lines[-1].rpartition("\r")[2]
    if done.status != 2:
        yield f"it ended with {done.status}, not 2"
    if "Traceback" in done.stdout + done.stderr:
        yield "a traceback"
    if not paragraph.startswith("error: ") or (len(lines) > 1 and not row.late):
        yield "not one paragraph"
    for word in row.words:
        if word not in paragraph:
            yield f"the message lacks {word!r}"
    if done.seconds > SECONDS and not row.late:
        yield f"{done.seconds:.1f} s of processor time"
    left = [n for n in done.changed if not row.late or (n.endswith(MANIFEST) and PASSES not in n)]
    if left:
        yield f"it wrote {left}"
