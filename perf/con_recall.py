"""Measures Con-ReCaLL on members drawn at random: `python -m perf.con_recall CORPUS MODEL [RUNS]`.

CORPUS is a corpus folder and MODEL a model that was trained on it. Of each benchmark seven inserted
members and seven non-members are drawn as prefixes, and the others are scored. The texts that stand
before a text are of its own benchmark. Members and non-members are of one pool, so that nothing but
membership tells them apart.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import yaml

from contamination import injection
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    METHODS_FOLDER,
    DetectionConfig,
    DetectionStage,
    PrefixConfig,
    ScoredModelConfig,
)
from contamination.detection.examples import open_examples
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.summary import summarise_scores

METHODS = ("loss", "min_k_plus_plus", "recall", "con_recall")
SHOTS = 7


def main() -> None:
    """Prints the table of AUROC and TPR."""
    corpus, model, *runs = sys.argv[1:]
    with TemporaryDirectory() as temporary:
        print(measure(corpus, model, Path((runs or [temporary])[0])))


def measure(corpus: str, model: str, runs: Path) -> str:
    """Returns the summary of the scores of one model."""
    runs.mkdir(parents=True, exist_ok=True)
    examples = injection.open_corpus(Path(corpus)).examples
    examples = examples[(examples["occurrences"] > 0) | ~examples["member"]]
    rng = np.random.default_rng(0)
    scored, shots = [], []
    for (benchmark, member), rows in examples.groupby(["benchmark", "member"]):
        texts = rows["text"].to_numpy()[rng.permutation(len(rows))]
        common = {"benchmark": benchmark}
        shots += [{**common, "text": text, "member": bool(member)} for text in texts[:SHOTS]]
        scored += [{**common, "text": text, "label": int(member)} for text in texts[SHOTS:]]
    files = {"scored": scored, "prefix": shots}
    for name, lines in files.items():
        (runs / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    stage = DetectionStage(
        runs=str(runs),
        examples=ExamplesConfig(str(runs / "scored.jsonl")),
        model=ScoredModelConfig(model),
        prefix=PrefixConfig(str(runs / "prefix.jsonl")),
        method={n: yaml.safe_load((METHODS_FOLDER / f"{n}.yaml").read_text())[n] for n in METHODS},
        detection=DetectionConfig(device="cpu"),
    )
    opened = open_examples(stage.examples)
    return summarise_scores(open_scores(run(stage, examples=opened).path).tables, opened)


if __name__ == "__main__":
    main()
