"""The golden file and how far the package is from it.

`largest_relative_errors()` is what a report may quote: `python -m tests.detection.golden`, or with
another type of the weights, `python -m tests.detection.golden bfloat16`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contamination.data.texts import Text
from contamination.detection.config import DetectionConfig
from contamination.detection.methods.base import Method
from contamination.detection.methods.gap_k import GapK
from contamination.detection.methods.infilling import Infilling
from contamination.detection.methods.loss import Loss
from contamination.detection.methods.lowercase import Lowercase
from contamination.detection.methods.min_k import MinK
from contamination.detection.methods.min_k_plus_plus import MinKPlusPlus
from contamination.detection.methods.pac import Pac
from contamination.detection.methods.polarized_distance import PolarizedDistance
from contamination.detection.methods.reference import Reference
from contamination.detection.methods.surp import Surp
from contamination.detection.methods.zlib import Zlib
from contamination.detection.models.base import ModelHandle
from contamination.detection.models.hf_model import HFModel
from contamination.detection.pass_collector import Collector
from contamination.detection.pass_store import StatsByText
from contamination.detection.passes import ORIGINAL
from tests.scoring import score_text

GOLDEN = Path(__file__).parents[1] / "golden"
FRACTIONS = (0.1, 0.2, 0.3, 0.5, 1.0)
METHODS: dict[str, Method] = {
    "loss": Loss(),
    "zlib": Zlib(),
    **{f"min_k_{k}": MinK(k=k) for k in FRACTIONS},
    **{f"min_k_plus_plus_{k}": MinKPlusPlus(k=k) for k in FRACTIONS},
    **{f"infilling_m{m}_k0.2": Infilling(m=m) for m in (0, 1, 5, 10)},
    "lowercase": Lowercase(),
    "ref": Reference(),
    "pac": Pac(),
    "polarized_distance": PolarizedDistance(),
    "gap_k_0.2_window3": GapK(),
    "surp_k0.4_entropy2": Surp(),
}
SWAPS = Pac().versions_pass
TIED = 25
"""At one place of this example the two likeliest tokens are 5e-7 nats apart: rounding decides."""
TIED_SCORES = {"infilling_m5_k0.2": -1.7197030963791267, "infilling_m10_k0.2": -1.6863742139061917}
"""Its scores, in float64, with the other of the two in the token's place."""
NEGATED = ("polarized_distance",)  # the file has the raw distance, which is smaller for members


@cache
def examples() -> list[dict[str, Any]]:
    """The file's 32 examples."""
    found: list[dict[str, Any]] = json.loads((GOLDEN / "scores.json").read_text())["examples"]
    return found


def texts() -> list[Text]:
    """Their texts, with their places as ids."""
    return [text_of(str(place), e["text"]) for place, e in enumerate(examples())]


def untied() -> list[dict[str, Any]]:
    """The examples in which the likeliest tokens are so on every processor."""
    return [e for place, e in enumerate(examples()) if place != TIED]


def text_of(name: str, text: str) -> Text:
    """A text with its hash."""
    return Text(name, text, hashlib.sha256(text.encode()).hexdigest())


def scores(settings: DetectionConfig) -> dict[str, list[float]]:
    """Each golden method's scores by the package, in the file's order."""
    models = {
        "target": HFModel.from_path("model.path", str(GOLDEN / "target")),
        "reference": HFModel.from_path("reference.path", str(GOLDEN / "reference")),
    }
    with TemporaryDirectory() as runs:
        collector = Collector(Path(runs), models, texts(), settings)
        wanted = {p for m in METHODS.values() for p in m.passes} - {SWAPS}
        passes = {**collector.collect(wanted), SWAPS: _swaps(Path(runs), models, settings)}
        return {name: [score_text(m, t, passes) for t in texts()] for name, m in METHODS.items()}


def _swaps(runs: Path, models: Mapping[str, ModelHandle], settings: DetectionConfig) -> StatsByText:
    """The file's own augmented versions in place of those that the package would draw."""
    versions = {
        t.sha256: [text_of(f"{t.example_id}/{i}", a) for i, a in enumerate(e["augmentations"])]
        for t, e in zip(texts(), examples(), strict=True)
    }
    given = [text for row in versions.values() for text in row]
    stats = Collector(runs, models, given, settings).collect([ORIGINAL])[ORIGINAL]
    return {
        sha256: tuple(stats[text.sha256][0] for text in row) for sha256, row in versions.items()
    }


def largest_relative_errors(settings: DetectionConfig | None = None) -> dict[str, float]:
    """For each golden method the largest |score − golden| / |golden| over the 32 texts."""
    return {
        name: max(relative_error(name, place, score) for place, score in enumerate(found))
        for name, found in scores(settings or DetectionConfig(device="cpu")).items()
    }


def relative_error(name: str, place: int, score: float) -> float:
    """|score − golden| / |golden| of one example, of the nearer golden score where it has two."""
    golden = [(-1 if name in NEGATED else 1) * examples()[place]["scores"][name]]
    if place == TIED and name in TIED_SCORES:
        golden.append(TIED_SCORES[name])
    return min(abs(score - each) / abs(each) for each in golden)


if __name__ == "__main__":
    chosen = DetectionConfig(device="cpu", dtype=(sys.argv[1:] or ["float32"])[0])
    for method, error in largest_relative_errors(chosen).items():
        print(f"{method:24} {error:.1e}")
