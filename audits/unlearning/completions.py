"""What a model writes behind each chunk's first words, beside what really follows.

Shi et al. (2024, section 7.1): 20 continuations of a 200-word prompt, drawn at random, compared
with the true one by a sentence embedding and by a judge. Here also by ROUGE-L, and beside a
control: the same continuations compared with what follows in another chunk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.inputs import AuditedModel, texts_at
from contamination.audits.unlearning.text_similarity import rouge_l
from contamination.core.artifacts import is_complete
from contamination.core.statistics.bootstrap import Scores
from contamination.data.examples import make_text
from contamination.data.text import halves
from contamination.data.texts import Text, Texts
from contamination.detection.collect import Collector
from contamination.detection.config import DetectionConfig
from contamination.detection.passes import ORIGINAL, Continuation, Pass
from contamination.detection.resources import Resources
from contamination.injection.corpus import open_corpus

Compare = Callable[[Sequence[tuple[str, str]]], Scores]
"""(written, true) → how alike they are, higher = more; NaN where that can't be told."""
ROUGE, OTHER, EMBEDDING, JUDGE = "rouge_l", "rouge_l_other", "similarity", "judged_alike"
TITLES = {
    ROUGE: "ROUGE-L",
    OTHER: "ROUGE-L with another chunk",
    EMBEDDING: "similarity",
    JUDGE: "judged alike",
}


@dataclass(frozen=True)
class Prompts:
    """How chunks are completed.

    Attributes:
        number: continuations of a chunk.
        words: of the prompt, at most.
        share: of a chunk's words that are the prompt, at most.
        tokens: of a continuation, at most; no more than the rest has.
        temperature: of the draws.
    """

    number: int
    words: int
    share: float
    tokens: int
    temperature: float

    @property
    def wanted(self) -> Pass:
        """The pass that writes them."""
        given = {"share": self.share, "words": self.words, "tokens": self.tokens}
        return Pass("target", "sampled", n=self.number, temperature=self.temperature, **given)

    def rest(self, text: str) -> str:
        """What really follows the prompt; empty where nothing does."""
        return halves(text, self.share, self.words)[1].strip()


def truths(model: AuditedModel, texts: Sequence[Text], prompts: Prompts) -> dict[str, str]:
    """What follows each chunk's prompt, as many tokens as the model may write, by SHA-256."""
    context = model.source.context
    most = min(prompts.tokens, sys.maxsize if context is None else context // 2)
    tokenizer, rests = model.source.tokenizer(), [prompts.rest(text.text) for text in texts]
    rows = tokenizer(rests, add_special_tokens=False, verbose=False)["input_ids"]
    cut = [
        rest if len(ids) <= most else tokenizer.decode(ids[:most])
        for rest, ids in zip(rests, rows, strict=True)
    ]
    return {text.sha256: rest for text, rest in zip(texts, cut, strict=True)}


def written(
    model: AuditedModel,
    texts: Texts,
    prompts: Prompts,
    runs: Path,
    settings: DetectionConfig,
    seed: int,
) -> dict[str, tuple[str, ...]]:
    """The continuations of each chunk by its SHA-256; the pass is kept, so nothing is lost."""
    resources = Resources(seed=seed)
    collector = Collector(runs, {"target": model.source}, texts, settings, resources)
    found = collector.collect([prompts.wanted])[prompts.wanted]
    return {
        sha256: tuple(one.text for one in copies if isinstance(one, Continuation))
        for sha256, copies in found.items()
    }


def compared(
    texts: Sequence[Text],
    found: Mapping[str, Sequence[str]],
    true: Mapping[str, str],
    compare: Mapping[str, Compare],
) -> pd.DataFrame:
    """A row a continuation: chunk, number, written, and how alike it is in each way.

    Args:
        texts: the chunks.
        found: their continuations.
        true: what really follows.
        compare: further ways by name.
    """
    other = _others([true[text.sha256] for text in texts])
    rows = [
        (text.example_id, number, one, true[text.sha256], another)
        for text, another in zip(texts, other, strict=True)
        for number, one in enumerate(found[text.sha256])
    ]
    table = pd.DataFrame(rows, columns=["chunk", "number", "written", "true", "other"])
    pairs = list(zip(table["written"], table["true"], strict=True))
    table[ROUGE] = rouge(pairs)
    table[OTHER] = rouge(list(zip(table["written"], table["other"], strict=True)))
    for name, way in compare.items():
        table[name] = way(pairs)
    return table.drop(columns=["true", "other"])


def rouge(pairs: Sequence[tuple[str, str]]) -> Scores:
    """ROUGE-L's F1 of each pair."""
    return np.array([rouge_l(*pair).f1 for pair in pairs], np.float64)


def _others(true: Sequence[str]) -> list[str]:
    """For each chunk what follows in another: the next longer one, so that lengths are near."""
    order = sorted(range(len(true)), key=lambda place: (len(true[place]), true[place]))
    after = dict(zip(order, [*order[1:], *order[:1]], strict=True))
    return [true[after[place]] for place in range(len(true))]


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
