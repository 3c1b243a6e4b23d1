"""Views with several versions of each text: random rewordings, or neighbours from a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from contamination.core.artifacts import WrittenFiles, build_or_open, run_folder
from contamination.core.integrity import errors_naming_file
from contamination.core.seeds import derive_seed
from contamination.core.table_files import write_parquet
from contamination.data.examples import texts_digest
from contamination.data.perturbation.base import Rewording
from contamination.data.perturbation.masked_lm import MaskedLM
from contamination.data.perturbation.word_edits import Delete, Swap
from contamination.data.texts import Text
from contamination.detection.models.hf_model import HFModel
from contamination.detection.passes import Pass
from contamination.detection.view_resources import Resources
from contamination.detection.views.base import View

KIND = "rewordings"
FILE = "versions.parquet"
Make = Callable[[Sequence[Text]], list[Sequence[str]]]


def read_or_make_versions(
    runs: Path, wanted: Pass, seed: int, model: HFModel, texts: Sequence[Text], make: Make
) -> list[Sequence[str]]:
    """Returns the versions of each text, from storage or else from `make`, and stores them."""
    ordered = sorted({t.sha256: t for t in texts}.values(), key=lambda t: t.sha256)
    config = {"view": wanted.view_key, "seed": seed}
    inputs = {"masked_lm": model.digest, "texts": texts_digest(ordered)}

    def write(folder: Path) -> WrittenFiles:
        versions = make(ordered)
        rows = [
            {"text_sha256": text.sha256, "copy": copy, "text": version}
            for text, text_versions in zip(ordered, versions, strict=True)
            for copy, version in enumerate(text_versions)
        ]
        write_parquet(folder / FILE, pa.Table.from_pylist(rows))
        return WrittenFiles([FILE], {"texts": len(ordered), "versions": len(rows)})

    folder = run_folder(runs, KIND, f"{model.slug}-{wanted.view}", config, inputs)
    build_or_open(folder, config, inputs, write, log_nearest=False)
    versions_by_text: dict[str, list[str]] = {}
    with errors_naming_file(folder / FILE):
        for row in pq.read_table(folder / FILE, page_checksum_verification=True).to_pylist():
            versions_by_text.setdefault(row["text_sha256"], []).append(row["text"])
        return [versions_by_text[text.sha256] for text in texts]


def swap(texts: Sequence[Text], resources: Resources, n: int, share: float) -> list[Sequence[str]]:
    """Makes `n` versions with ⌊share·words⌋ random swaps of two words (PAC, Ye et al. 2024)."""
    return _make_versions(Swap(share), texts, resources, n)


def delete(
    texts: Sequence[Text], resources: Resources, n: int, share: float
) -> list[Sequence[str]]:
    """Makes `n` versions without ⌊share·words⌋ random words."""
    return _make_versions(Delete(share), texts, resources, n)


def masked_lm(
    texts: Sequence[Text], resources: Resources, n: int, share: float
) -> list[Sequence[str]]:
    """Makes `n` neighbours, in which a masked language model replaces ⌊share·words⌋ words."""
    assert resources.masked_lm is not None
    filler = MaskedLM(str(resources.masked_lm.folder), share, device=resources.device)

    def make(texts: Sequence[Text]) -> list[Sequence[str]]:
        return _make_versions(filler, texts, resources, n)

    if resources.runs is None:
        return make(texts)
    wanted = Pass(view="masked_lm", n=n, share=share)
    return read_or_make_versions(
        resources.runs, wanted, resources.seed, resources.masked_lm, texts, make
    )


def benchmark_neighbors(texts: Sequence[Text], resources: Resources, n: int) -> list[Sequence[str]]:
    """Returns the first `n` neighbours of each text in the benchmark's own files."""
    assert resources.neighbors is not None
    return [resources.neighbors.of(text, n) for text in texts]


def _make_versions(
    rewording: Rewording, texts: Sequence[Text], resources: Resources, n: int
) -> list[Sequence[str]]:
    """Makes all versions in one call; each depends on the seed, its text and its number."""
    repeated = [text.text for text in texts for _ in range(n)]
    keys = [(text.sha256, copy) for text in texts for copy in range(n)]
    all_versions = rewording.reword(repeated, keys, derive_seed(resources.seed, "detection.views"))
    return [all_versions[i : i + n] for i in range(0, len(all_versions), n)]


VIEWS = {
    "swap": View(swap, ("seed",)),
    "delete": View(delete, ("seed",)),
    "masked_lm": View(masked_lm, ("seed", "masked_lm")),
    "given": View(benchmark_neighbors, ("neighbors",)),
}
