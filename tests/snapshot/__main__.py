"""Record what every command writes, and compare two records.

    python -m tests.snapshot record OUT [--checkout DIR]
    python -m tests.snapshot compare BEFORE AFTER [--strict]

`record` runs the commands of `commands.py` in one runs folder, `OUT/runs`, and writes what their
results say to `OUT/record`. It uses nothing of the project but its command line and the files that
it leaves, so the same harness records a checkout before and after a redesign. A record that was
stopped goes on with the first command that has not finished. `compare` needs `OUT/record` alone.

It prints a Markdown table of what is equal, differs, is missing or new, with the largest numeric
difference, then the differences, then the names that changed. The exit status is 1 where a number,
a digest or an exit status differs or is missing. See `contents.py` for what is compared and what is
left out, and `compare.py` for what counts as a change of name.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.snapshot.compare import compare
from tests.snapshot.record import write_record
from tests.snapshot.run import Recorder


def main() -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="tests.snapshot", description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="run the commands and record their results")
    recording.add_argument("out", type=Path)
    recording.add_argument("--checkout", type=Path, default=Path(__file__).parents[2])
    comparing = actions.add_parser("compare", help="compare two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--strict", action="store_true", help="pages and charts count as well")
    options = parser.parse_args()
    if options.action == "compare":
        report = compare(options.before / "record", options.after / "record")
        print(report.markdown())
        return 1 if report.differs(options.strict) else 0
    return record(options.out, options.checkout)


def record(out: Path, checkout: Path) -> int:
    """Run what has not been run, and write the record; 1 where a command failed."""
    began = time.monotonic()
    recorder = Recorder(out, checkout)
    failed = recorder.run()
    size = write_record(recorder)
    cpu_seconds = sum(result.cpu_seconds for result in recorder.results.values())
    print(
        f"{len(recorder.results)} commands, {cpu_seconds:.0f} CPU s in all; this call took "
        f"{time.monotonic() - began:.0f} s. {size / 2**20:.1f} MiB in {out / 'record'}."
    )
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
