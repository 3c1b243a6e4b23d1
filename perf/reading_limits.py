"""What hostile books cost to read: `python -m perf.reading_limits [GIGABYTES]`.

Each EPUB is read in a process of its own. Printed are the processor seconds of reading, the peak
memory above that of the imports, and what was said.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from contamination.core.report.tables import markdown_table

PAGE = "page.xhtml"
CONTAINER = '<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>'
PACKAGE = (
    f'<package><manifest><item id="a" href="{PAGE}"/></manifest>'
    '<spine><itemref idref="a"/></spine></package>'
)
UNFINISHED = ("<!--", "<![CDATA[", "<a ", '<a "')
SIZES = (80_000, 800_000, 8_000_000)
BLOCK = b"a " * (1 << 19)


def write_epub(path: Path, piece: bytes, times: int) -> None:
    """An EPUB whose only page has a piece so many times."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("META-INF/container.xml", CONTAINER)
        book.writestr("b.opf", PACKAGE)
        with book.open(PAGE, "w", force_zip64=True) as page:
            for _ in range(times):
                page.write(piece)


def read_and_print_peak(path: str) -> None:
    """Reads it; prints seconds, MiB and what was said."""
    from contamination.audits.books.epub import LIMITS
    from contamination.audits.books.reading import READERS

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

    before, begin = peak(), time.process_time()
    try:
        ((_, text),) = READERS[".epub"](Path(path), LIMITS)
        said = f"read: {len(text):,} characters"
    except ValueError as error:
        said = f"refused: {error}"
    print(f"{time.process_time() - begin:.2f}\t{peak() - before}\t{said}")


def run_limited(path: Path) -> list[str]:
    """Seconds, MiB and what was said, by a process of its own."""
    command = [sys.executable, "-m", "perf.reading_limits", "--read", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n").split("\t")


def main(gigabytes: float) -> None:
    """Prints the table."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.epub"
        for piece in (*UNFINISHED, "<p>so</p>"):
            for size in SIZES:
                write_epub(path, (piece * (size // len(piece))).encode(), 1)
                lines.append(
                    [f"`{piece}` × {size // len(piece):,}", f"{size:,}", *run_limited(path)]
                )
        write_epub(path, BLOCK, int(gigabytes * 1e9 / len(BLOCK)))
        packed = path.stat().st_size
        lines.append([f"`a ` packed to {packed:,} bytes", f"{gigabytes:g}e9", *run_limited(path)])
    print(markdown_table(["page", "bytes", "seconds", "MiB", "result"], lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read_and_print_peak(sys.argv[2])
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 3)
