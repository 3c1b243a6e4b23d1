"""Good files and folders, which rows use or spoil: small, and made by the stages themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
WORDS = ("river", "bridge", "orchard", "ladder", "heron", "market", "window", "letter", "winter")


def sentence(number: int) -> str:
    """A text that differs from any other number's."""
    picked = [WORDS[(number // len(WORDS) ** i) % len(WORDS)] for i in range(3)]
    return f"Story {number} is about the {picked[0]} and the {picked[1]}, near an old {picked[2]}."


def jsonl(rows) -> str:
    """The rows as lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def texts(number: int = 24) -> str:
    """Labelled texts to score."""
    return jsonl({"text": sentence(i), "label": i % 2} for i in range(number))


def make(folder: Path) -> None:
    """All of it."""
    folder.mkdir()
    shutil.copytree(GOLDEN / "target", folder / "hf")
    (folder / "texts.jsonl").write_text(texts())
    documents = ({"text": " ".join(sentence(100 * n + i) for i in range(9))} for n in range(80))
    (folder / "documents.jsonl").write_text(jsonl(documents))
    rows = ({"question": f"{sentence(i)} Who?", "answer": f"Nobody {i}"} for i in range(40))
    (folder / "user.jsonl").write_text(jsonl(rows))
    for place, role in enumerate(("positives", "negatives", "suspects")):
        (folder / f"{role}.jsonl").write_text(jsonl(book(10 * place + n) for n in range(5)))
    corpus = _corpus(folder)
    shutil.copytree(corpus, folder / "corpus")
    _model(folder)
    _scores(folder, "scores", "texts.jsonl", "hf")
    _scores(folder, "clean", "corpus", "hf")
    _scores(folder, "contaminated", "corpus", "model")


def book(number: int) -> dict[str, str]:
    """A line of a file of books."""
    words = np.random.default_rng(number).integers(0, 10**6, 60)
    return {"title": f"Book {number}", "text": " ".join(map(str, words))}


def _corpus(folder: Path) -> Path:
    from hydra import compose, initialize_config_dir

    from contamination.core.config import CONF, convert_config
    from contamination.injection.config import InjectionStage
    from contamination.injection.run import run
    from tests.bad_inputs.row import OWN, M

    words = [word.replace(M, str(folder)) for word in OWN]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("injection", [*words, f"runs={folder}/runs"])
    return run(convert_config(config, InjectionStage)).path


def _model(folder: Path) -> None:
    """A model's folder as a training leaves it, of weights that no training made."""
    from contamination.core.artifacts import WrittenFiles, build_or_open, open_artifact
    from contamination.training.config import TrainingStage

    corpus = open_artifact(folder / "corpus", "corpus")

    def made(place: Path) -> WrittenFiles:
        shutil.copytree(folder / "hf", place / "hf")
        files = sorted(str(path.relative_to(place)) for path in (place / "hf").iterdir())
        steps = pd.DataFrame({"step": [1, 2, 3]})
        steps.to_parquet(place / "exposures.parquet")
        line = '{"step": 3, "loss": 2.0, "tokens": 2048, "tokens_per_second": 1024}\n'
        (place / "metrics.jsonl").write_text(line)
        counts = {"steps": 3, "tokens": 2048}
        return WrittenFiles([*files, "exposures.parquet"], counts, ["metrics.jsonl"])

    stage = TrainingStage(corpus_folder=str(corpus.path))
    built = build_or_open(folder / "runs" / "model" / "toy", stage, {"corpus": corpus.digest}, made)
    shutil.copytree(built.path, folder / "model")


def _scores(folder: Path, name: str, examples: str, model: str) -> None:
    from contamination.data.config import ExamplesConfig
    from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
    from contamination.detection.run import run

    stage = DetectionStage(
        runs=str(folder / "runs"),
        examples=ExamplesConfig(str(folder / examples)),
        model=ScoredModelConfig(str(folder / model)),
        method={"loss": {"_target_": "contamination.detection.methods.loss.Loss"}},
        detection=DetectionConfig(device="cpu"),
    )
    shutil.copytree(run(stage).path, folder / name)
