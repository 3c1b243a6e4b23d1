"""Building a benchmark from a dump against `mwxml` reading it alone, and overlap by characters.

    python -m perf.building [megabytes of XML, default 80]

The dump is made here of embedded texts (`tests.dumps`): pages of some 9 KB, in .xml.bz2. The peer
walks all pages and revisions with mwxml and drops them. Ours is the whole build: hashes, reading,
the texts of the pages that are taken, near-duplicates; and, in a line of its own, the blind rows of
the datasheet, which cost the same for any dump. Medians of three, taken in turn.
"""

from __future__ import annotations

import bz2
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from contamination.core.cli import compose_stage
from contamination.core.task_runner import TaskRunner
from contamination.detection.building import datasheet
from contamination.detection.building.overlap_selection import NgramSearch
from contamination.detection.building.run import run
from contamination.detection.config import BuildStage
from perf.timing import peak_memory
from tests.dumps import drawn_dates, embedded, repeated, wikipedia

PAGE_BYTES = 9_000
LINE = ("build.members_before=2016-01-01", "build.nonmembers_from=2019-01-01")


def run_peer(dump: Path) -> int:
    """The characters of all revisions' texts."""
    import mwxml

    with bz2.open(dump) as stream:
        pages = mwxml.Dump.from_file(stream).pages
        return sum(len(revision.text or "") for page in pages for revision in page)


def run_ours(dump: Path, number: int, blind: bool) -> Path:
    """Builds a benchmark of so many texts a side."""
    with tempfile.TemporaryDirectory() as runs:
        own = ("source=wikipedia", f"source.paths={dump}", f"build.number={number}", f"runs={runs}")
        stage = compose_stage("build", [*own, *LINE], BuildStage)
        if blind:
            return run(stage).path
        with patch.object(datasheet, "blind_obstacle", lambda *_: "it is not timed"):
            return run(stage).path


def measure_seconds(way: Callable[[], object]) -> float:
    """Processor time of a call."""
    begun = time.process_time()
    way()
    return time.process_time() - begun


def write_dump(folder: Path, megabytes: float) -> Path:
    """A dump of about so much XML."""
    pages = int(megabytes * 1e6 / PAGE_BYTES)
    texts = repeated(embedded(400, 850), pages)
    return wikipedia(folder / f"enwiki-{pages}.xml.bz2", texts, drawn_dates(pages))


def time_reading(folder: Path, megabytes: float) -> None:
    """The build's table."""
    some, dump = write_dump(folder, megabytes / 4), write_dump(folder, megabytes)
    for each in (some, dump):
        own = peak_memory(partial(run_ours, each, 100, False))
        print(f"{each.stat().st_size:,} bytes of .bz2, 100 a side: {own:.0f} MiB")
    ways = {
        "mwxml alone": lambda: run_peer(dump),
        "build, 100 a side": lambda: run_ours(dump, 100, blind=False),
        "build, 1000 a side": lambda: run_ours(dump, 1000, blind=False),
    }
    print(f"{run_peer(dump) / 1e6:.0f}M characters")
    times = [[measure_seconds(way) for way in ways.values()] for _ in range(3)]
    for place, name in enumerate(ways):
        took = statistics.median(row[place] for row in times)
        ratio = statistics.median(row[place] / row[0] for row in times)
        print(f"{name:24} {took:6.1f} s {ratio:6.2f}")
    more = measure_seconds(lambda: run_ours(dump, 1000, blind=True)) - statistics.median(
        t[2] for t in times
    )
    print(f"{'four blind rows, 1000':24} {more:6.1f} s")


def time_overlap_search(folder: Path) -> None:
    """Characters a second, against 1,000 candidates of 256 words, half of them in the corpus."""
    corpus = embedded(6_000)
    texts = [" ".join(text.split()[:256]) for text in corpus]
    inside, outside = texts[::12], (" ".join(reversed(t.split())) for t in texts[::12])
    for number, ngram in enumerate((7, 13)):
        place = folder / str(number)
        place.mkdir()
        search = NgramSearch([*inside, *outside], ngram, _Texts(corpus), place)
        size = sum(map(len, corpus))
        _ = search._index
        begun = time.process_time()
        TaskRunner(place).run("overlap", search)
        rate = size / (time.process_time() - begun)
        print(f"{ngram:2}-grams {size / 1e6:6.1f}M characters {rate / 1e6:6.1f}M characters/s")


@dataclass(frozen=True)
class _Texts:
    own: Sequence[str]

    def __len__(self) -> int:
        return 1

    def texts(self, piece: int, ngram: int) -> Iterator[str]:
        return iter(self.own)


def main() -> None:
    """All measurements."""
    with tempfile.TemporaryDirectory() as folder:
        time_overlap_search(Path(folder))
        time_reading(Path(folder), float(sys.argv[1]) if len(sys.argv) > 1 else 80)


if __name__ == "__main__":
    main()
