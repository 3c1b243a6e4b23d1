"""What unlearning has cost: the loss on text that was never to be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from core.artifacts import is_complete
from core.metrics import Scores
from detection.audits.base import AuditStage
from detection.audits.unlearning.given import AuditedModel, texts_at
from detection.collect import Collector
from detection.examples import make_text
from detection.passes import ORIGINAL
from detection.texts import Text, Texts
from injection import open_corpus

MOST = 500  # sequences of a packed corpus: more than enough to tell losses apart


def validation_texts(path: str) -> Texts:
    """The texts of a file, or the packed sequences of a corpus folder, of which MOST at most."""
    if not is_complete(Path(path).expanduser()):
        return texts_at("audit.validation", path)
    return Texts.of(_sequences(Path(path).expanduser()))


def _sequences(folder: Path) -> Iterator[Text]:
    corpus = open_corpus(folder)
    places = np.linspace(0, len(corpus.sequences) - 1, min(MOST, len(corpus.sequences)))
    for place in sorted({*places.astype(int).tolist()}):
        ids = corpus.sequences[place]["input_ids"]
        text = corpus.tokenizer.hf.decode(ids, skip_special_tokens=True)
        yield make_text(f"sequence {place}", text, None, "validation")


def losses(stage: AuditStage, model: AuditedModel, texts: Texts) -> Scores:
    """The mean loss a token of each text, in nats; a longer text than the context is cut."""
    settings = replace(stage.detection, long_texts="truncate")
    collector = Collector(Path(stage.runs), {"target": model.source}, texts, settings)
    found = collector.collect([ORIGINAL])[ORIGINAL]
    means = {sha256: -float(stats.logprob.mean()) for sha256, (stats,) in found.items()}
    return np.array([means[text.sha256] for text in texts], np.float64)


def rows_of(texts: Texts) -> pd.DataFrame:
    """The texts as units."""
    ids = [text.example_id for text in texts]
    member = pd.array([None] * len(ids), "boolean")
    return pd.DataFrame({"unit": ids, "text_id": ids, "benchmark": "", "member": member})
