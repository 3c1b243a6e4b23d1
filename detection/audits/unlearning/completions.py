"""What a model writes behind each chunk's first words, beside what really follows.

Shi et al. (2024, section 7.1): 20 continuations of a 200-word prompt, drawn at random, compared
with the true one by a sentence embedding and by a judge. Here also by ROUGE-L, and beside a
control: the same continuations compared with what follows in another chunk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from core.halves import halves
from core.metrics import Scores
from detection.audits.unlearning.given import AuditedModel
from detection.audits.unlearning.rouge import rouge_l
from detection.collect import Collector
from detection.config import DetectionConfig
from detection.passes import Continuation, Pass
from detection.resources import Resources
from detection.texts import Text, Texts

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
