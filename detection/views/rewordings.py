"""A view's versions on disk, where a model makes them: once for all models that read them.

::

    runs/rewordings/<masked LM>-<hash>/
    ├── config.yaml       view, seed
    ├── versions.parquet  one row a version: text_sha256, copy, text
    └── manifest.json
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.artifacts import Built, build, locate
from core.parquet_files import write_parquet
from core.wholeness import parsing
from detection.examples import texts_digest
from detection.model.local_model import LocalModel
from detection.passes import Pass
from detection.texts import Text

KIND = "rewordings"
FILE = "versions.parquet"
Make = Callable[[Sequence[Text]], list[Sequence[str]]]


def made_once(
    runs: Path, wanted: Pass, seed: int, model: LocalModel, texts: Sequence[Text], make: Make
) -> list[Sequence[str]]:
    """The versions of each text, read where they are stored, else made by `make` and stored."""
    ordered = sorted({t.sha256: t for t in texts}.values(), key=lambda t: t.sha256)
    config = {"view": wanted.view_key, "seed": seed}
    inputs = {"masked_lm": model.digest, "texts": texts_digest(ordered)}

    def write(folder: Path) -> Built:
        versions = make(ordered)
        rows = [
            {"text_sha256": text.sha256, "copy": copy, "text": version}
            for text, own in zip(ordered, versions, strict=True)
            for copy, version in enumerate(own)
        ]
        write_parquet(folder / FILE, pa.Table.from_pylist(rows))
        return Built([FILE], {"texts": len(ordered), "versions": len(rows)})

    folder = locate(runs, KIND, f"{model.slug}-{wanted.view}", config, inputs)
    build(folder, config, inputs, write)
    found: dict[str, list[str]] = {}
    with parsing(folder / FILE):
        for row in pq.read_table(folder / FILE, page_checksum_verification=True).to_pylist():
            found.setdefault(row["text_sha256"], []).append(row["text"])
        return [found[text.sha256] for text in texts]
