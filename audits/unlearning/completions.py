"""Continuations that models generate after each chunk's first words, and losses on other text.

Shi et al. (2024, section 7.1) sample 20 continuations of a 200-word prompt, and compare them with
the true one by a sentence embedding and by a judge. ROUGE-L is added here, and a control: the same
continuations, compared with the true continuation of another chunk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from contamination.audits.base import AuditStage
from contamination.audits.unlearning.inputs import AuditedModel, read_texts_of_field
from contamination.audits.unlearning.text_similarity import rouge_l
from contamination.core.artifacts import is_complete
from contamination.core.statistics.bootstrap import Scores
from contamination.data.examples import make_text
from contamination.data.texts import Text, Texts
from contamination.data.words import split_at_share
from contamination.detection.config import DetectionConfig
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import ORIGINAL, Continuation, Pass
from contamination.detection.view_resources import Resources
from contamination.injection.corpus import open_corpus

Similarity = Callable[[Sequence[tuple[str, str]]], Scores]
"""Returns the similarity of each pair of generated and true text; NaN if it is unknown."""
ROUGE, OTHER, EMBEDDING, JUDGE = "rouge_l", "rouge_l_other", "similarity", "judged_alike"
TITLES = {
    ROUGE: "ROUGE-L",
    OTHER: "ROUGE-L with another chunk",
    EMBEDDING: "similarity",
    JUDGE: "judged alike",
}


@dataclass(frozen=True)
class CompletionPlan:
    """How continuations of chunks are sampled.

    Attributes:
        number: the number of continuations per chunk.
        words: the maximum number of words of a prompt.
        share: the maximum share of a chunk's words in its prompt.
        tokens: the maximum number of tokens of a continuation, which is no longer than the true
            one.
        temperature: the sampling temperature.
    """

    number: int
    words: int
    share: float
    tokens: int
    temperature: float

    @property
    def sampling_pass(self) -> Pass:
        """The pass that samples the continuations."""
        return Pass(
            "target",
            "sampled",
            n=self.number,
            temperature=self.temperature,
            share=self.share,
            words=self.words,
            tokens=self.tokens,
        )

    def true_continuation(self, text: str) -> str:
        """Returns the text after the prompt; empty if there is none."""
        return split_at_share(text, self.share, self.words)[1].strip()


def true_continuation_by_sha256(
    model: AuditedModel, texts: Sequence[Text], plan: CompletionPlan
) -> dict[str, str]:
    """Returns the true continuation of each chunk's prompt, by the chunk's SHA-256.

    It is truncated to the maximum number of tokens that the model may generate.
    """
    context = model.source.context
    max_tokens = min(plan.tokens, sys.maxsize if context is None else context // 2)
    tokenizer = model.source.tokenizer()
    continuations = [plan.true_continuation(text.text) for text in texts]
    rows_of_ids = tokenizer(continuations, add_special_tokens=False, verbose=False)["input_ids"]
    return {
        text.sha256: continuation if len(ids) <= max_tokens else tokenizer.decode(ids[:max_tokens])
        for text, continuation, ids in zip(texts, continuations, rows_of_ids, strict=True)
    }


def sample_continuations_by_sha256(
    model: AuditedModel,
    texts: Texts,
    plan: CompletionPlan,
    runs: Path,
    settings: DetectionConfig,
    seed: int,
) -> dict[str, tuple[str, ...]]:
    """Returns sampled continuations of each chunk, by its SHA-256; the pass is stored."""
    resources = Resources(seed=seed)
    collector = Collector(runs, {"target": model.source}, texts, settings, resources)
    copies_by_text = collector.collect([plan.sampling_pass])[plan.sampling_pass]
    return {
        sha256: tuple(copy.text for copy in copies if isinstance(copy, Continuation))
        for sha256, copies in copies_by_text.items()
    }


def compare_continuations(
    texts: Sequence[Text],
    continuations: Mapping[str, Sequence[str]],
    true_continuations: Mapping[str, str],
    similarities: Mapping[str, Similarity],
) -> pd.DataFrame:
    """Returns the similarity of sampled continuations to the true ones.

    Args:
        texts: the chunks.
        continuations: the sampled continuations of each chunk, by its SHA-256.
        true_continuations: the true continuation of each chunk, by its SHA-256.
        similarities: further measures besides ROUGE-L, by name.

    Returns:
        One row per continuation: chunk, number, written, and each measure.
    """
    controls = _continuations_of_others([true_continuations[text.sha256] for text in texts])
    rows = [
        (text.example_id, number, continuation, true_continuations[text.sha256], control)
        for text, control in zip(texts, controls, strict=True)
        for number, continuation in enumerate(continuations[text.sha256])
    ]
    table = pd.DataFrame(rows, columns=["chunk", "number", "written", "true", "other"])
    written_and_true = list(zip(table["written"], table["true"], strict=True))
    table[ROUGE] = rouge_f1_scores(written_and_true)
    table[OTHER] = rouge_f1_scores(list(zip(table["written"], table["other"], strict=True)))
    for measure, similarity in similarities.items():
        table[measure] = similarity(written_and_true)
    return table.drop(columns=["true", "other"])


def rouge_f1_scores(pairs: Sequence[tuple[str, str]]) -> Scores:
    """Returns the F1 of ROUGE-L of each pair."""
    return np.array([rouge_l(*pair).f1 for pair in pairs], np.float64)


def _continuations_of_others(true_continuations: Sequence[str]) -> list[str]:
    """Returns for each the next longer continuation of another chunk, of a similar length."""
    order = sorted(
        range(len(true_continuations)),
        key=lambda index: (len(true_continuations[index]), true_continuations[index]),
    )
    next_longer_by_index = dict(zip(order, [*order[1:], *order[:1]], strict=True))
    return [
        true_continuations[next_longer_by_index[index]] for index in range(len(true_continuations))
    ]


MAX_SEQUENCES = 500
"""The maximum number of sequences of a packed corpus whose loss is measured."""


def read_validation_texts(path: str) -> Texts:
    """Reads the texts of a file, or up to MAX_SEQUENCES packed sequences of a corpus folder."""
    if not is_complete(Path(path).expanduser()):
        return read_texts_of_field("audit.validation", path)
    return Texts.of(_iter_sequence_texts(Path(path).expanduser()))


def _iter_sequence_texts(folder: Path) -> Iterator[Text]:
    corpus = open_corpus(folder)
    indices = np.linspace(0, len(corpus.sequences) - 1, min(MAX_SEQUENCES, len(corpus.sequences)))
    for index in sorted({*indices.astype(int).tolist()}):
        ids = corpus.sequences[index]["input_ids"]
        text = corpus.tokenizer.hf.decode(ids, skip_special_tokens=True)
        yield make_text(f"sequence {index}", text, None, "validation")


def mean_losses(stage: AuditStage, model: AuditedModel, texts: Texts) -> Scores:
    """Returns the mean loss per token of each text, in nats; long texts are truncated."""
    settings = replace(stage.detection, long_texts="truncate")
    collector = Collector(Path(stage.runs), {"target": model.source}, texts, settings)
    stats_by_text = collector.collect([ORIGINAL])[ORIGINAL]
    losses = {sha256: -float(stats.logprob.mean()) for sha256, (stats,) in stats_by_text.items()}
    return np.array([losses[text.sha256] for text in texts], np.float64)


def unlabelled_unit_table(texts: Texts) -> pd.DataFrame:
    """Returns the texts as units without labels, one row each: `unit` and `UNITS`."""
    ids = [text.example_id for text in texts]
    member = pd.array([None] * len(ids), "boolean")
    return pd.DataFrame({"unit": ids, "text_id": ids, "benchmark": "", "member": member})
