"""Similarity of two texts: the cosine of their sentence embeddings, a judge's rating, and ROUGE-L.

An embedding is the mean of an encoder's last hidden states over a text's tokens. Shi et al. (2024)
use SimCSE (Gao et al. 2021). Any Hugging Face encoder works, but the cosines of an encoder that was
not trained on sentences are all high, so compare them with those of non-members. As a judge they
use GPT-4, which rates the similarity from 1 to 5 (section 7.1), and count ratings of 4 or more.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contamination.audits.unlearning.inputs import parse_model_node
from contamination.core.artifacts import path_part_of
from contamination.core.errors import ConfigError, ServerError
from contamination.core.models import load_pretrained, load_tokenizer, model_digest
from contamination.core.progress import progress_bar
from contamination.core.statistics.bootstrap import Scores
from contamination.detection.models.served.answer_store import AnswerStore
from contamination.detection.models.served.client import Client
from contamination.detection.models.served.completions import find_model
from contamination.detection.models.served.connections import run_in_parallel
from contamination.detection.models.served.responses import ChatCompletion

EMBEDDING_FIELD = "audit.embedding"
BATCH_TEXTS = 32
MAX_ENCODER_TOKENS = 512  # unless the model has a lower limit; longer texts are truncated


class Embedding:
    """An encoder of texts, loaded when it is first called.

    Args:
        path: a Hugging Face folder or a hub id.
        device: a value of `detection.device`.
    """

    def __init__(self, path: str, device: str) -> None:
        self.path, self.device = path, device
        self.digest = model_digest(EMBEDDING_FIELD, path)
        self._vectors: dict[str, np.ndarray] = {}
        self._model: Any = None

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Returns the cosine similarity of each pair; 0 if a text is blank or has no tokens."""
        texts = {text for pair in pairs for text in pair}
        self._compute_missing_vectors(sorted(texts - self._vectors.keys(), key=len))
        return np.array([float(self._vectors[a] @ self._vectors[b]) for a, b in pairs], np.float64)

    def _compute_missing_vectors(self, texts: Sequence[str]) -> None:
        bar = progress_bar(desc="embeddings", total=len(texts), unit="text")
        with bar:
            for start in range(0, len(texts), BATCH_TEXTS):
                batch = texts[start : start + BATCH_TEXTS]
                self._vectors.update(zip(batch, self._unit_vectors(batch), strict=True))
                bar.update(len(batch))

    def _unit_vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Returns a unit vector per text; zeros if blank or only special tokens."""
        import torch

        model, tokenizer, device = self._load_encoder()
        limits = {"truncation": True, "max_length": self._max_tokens()}
        encoded = tokenizer(list(texts), return_special_tokens_mask=True, **limits)
        rows, special = encoded["input_ids"], encoded["special_tokens_mask"]
        width = max(1, max(map(len, rows)))
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row)], mask[index, : len(row)] = torch.tensor(row), 1
        mask[mask.sum(1) == 0, 0] = 1  # attention needs a token; the vector is set to 0 below
        with torch.inference_mode():
            states = model(input_ids=ids.to(device), attention_mask=mask.to(device))
        weights = mask.to(device)[:, :, None].float()
        means = (states.last_hidden_state.float() * weights).sum(1) / weights.sum(1)
        vectors = torch.nn.functional.normalize(means, dim=1).cpu().numpy().astype(np.float64)
        pairs = zip(special, texts, strict=True)
        vectors[[all(row) or not text.strip() for row, text in pairs]] = 0
        return vectors

    def _max_tokens(self) -> int:
        model, tokenizer, _ = self._load_encoder()
        positions = getattr(model.config, "max_position_embeddings", None)
        return int(min(filter(None, [MAX_ENCODER_TOKENS, tokenizer.model_max_length, positions])))

    def _load_encoder(self) -> tuple[Any, Any, Any]:
        from contamination.detection.models.causal_lm import resolve_device  # it imports torch

        if self._model is None:
            self._model = *load_encoder(self.path), resolve_device(self.device)
            self._model[0].to(self._model[2])
        return self._model  # type: ignore[no-any-return]


def load_encoder(path: str) -> tuple[Any, Any]:
    """Loads an encoder and its tokenizer.

    Raises:
        ConfigError: the encoder can't be loaded, or weights are missing.
    """
    import torch
    from transformers import AutoModel

    options = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
    model, loaded = load_pretrained(AutoModel, EMBEDDING_FIELD, path, **options)
    # the pooler is not used
    missing_weights = [name for name in loaded["missing_keys"] if "pooler" not in name]
    if missing_weights:
        raise ConfigError(
            f"{EMBEDDING_FIELD} is {path!r}: its files lack {missing_weights[0]}, so its "
            "embeddings would be random. Give a complete Hugging Face folder."
        )
    return model.eval(), load_tokenizer(EMBEDDING_FIELD, path)


WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class RougeL:
    """ROUGE-L of a text and its reference, from the length L of their longest common subsequence.

    Attributes:
        recall: L divided by the number of words of the reference.
        precision: L divided by the number of words of the text.
    """

    recall: float
    precision: float

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision; 0 if both are 0."""
        total = self.recall + self.precision
        return 2 * self.recall * self.precision / total if total else 0.0


def rouge_l(written: str, reference: str) -> RougeL:
    """Returns ROUGE-L (Lin 2004, equations 2 and 3); 0 if either text has no word.

    Words are runs of letters and digits in lower case. In English these are the words of the
    package rouge-score without its stemmer.
    """
    written_words, reference_words = split_into_words(written), split_into_words(reference)
    common = longest_common_length(written_words, reference_words)
    return RougeL(common / max(1, len(reference_words)), common / max(1, len(written_words)))


def split_into_words(text: str) -> list[str]:
    """Returns the words of a text, in lower case."""
    return WORD.findall(text.lower())


def longest_common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence (Hyyrö 2004, bit-parallel)."""
    position_bits_by_word: dict[str, int] = {}  # with a bit per position in `first`
    for position, word in enumerate(first):
        position_bits_by_word[word] = position_bits_by_word.get(word, 0) | 1 << position
    all_bits = (1 << len(first)) - 1
    unmatched_bits = all_bits
    for word in second:
        matches = unmatched_bits & position_bits_by_word.get(word, 0)
        unmatched_bits = (unmatched_bits + matches | unmatched_bits - matches) & all_bits
    return len(first) - unmatched_bits.bit_count()


JUDGE_FIELD, KIND = "audit.judge", "judge"
MIN_ALIKE = 4
"""The minimum rating of texts that count as alike."""
MAX_ANSWER_TOKENS = 16
"""The maximum length of an answer."""
MAX_QUOTED_CHARACTERS = 60
"""The maximum length of the quotation of an answer without a rating."""
QUESTION = """How similar are these two continuations of one text, in what they say? Answer with a
single number from 1 to 5: 1 = nothing in common, 2 = the same topic, 3 = some of the same content,
4 = mostly the same content, 5 = the same content.

Continuation A:
{true}

Continuation B:
{written}

Number:"""
RATING = re.compile(r"(?<![\d.])[1-5](?![\d.]*\d)")
SCALE = re.compile("1 = .*2 = ", re.DOTALL)
"""Matches answers that repeat the question, as those of models that are too weak to judge."""


log = logging.getLogger(__name__)


class Judge:
    """A chat model that rates pairs of texts. Its answers are stored, so no pair is sent twice.

    Args:
        server: `url`, and optionally other fields of `ScoredModelConfig`, such as `name`.
        runs: the folder of all artefacts.

    Raises:
        ConfigError: the server or the model does not exist.
    """

    def __init__(self, server: Mapping[str, Any], runs: Path) -> None:
        self._client = Client(JUDGE_FIELD, parse_model_node(JUDGE_FIELD, server))
        self.name = find_model(self._client, self._client.server.name).id
        identity = f"{self._client.url}\n{self.name}\n{QUESTION}"
        self.digest = hashlib.sha256(identity.encode()).hexdigest()
        self._answers = AnswerStore(runs / KIND / f"{path_part_of(self.name)}-{self.digest[:12]}")

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Returns 1 for pairs that are alike, 0 for others, and NaN for pairs without a rating.

        Raises:
            ServerError: the server fails, or rates no pair at all.
        """
        questions = [QUESTION.format(written=pair[0], true=pair[1]) for pair in pairs]
        keys = [hashlib.sha256(question.encode()).hexdigest()[:32] for question in questions]
        unanswered = {
            key: question
            for key, question in zip(keys, questions, strict=True)
            if key not in self._answers
        }
        unanswered_keys, requests = list(unanswered), self._client.server.requests
        bar = progress_bar(desc=KIND, total=len(unanswered), unit="pair")
        with bar:
            for index, answer in run_in_parallel(
                self._ask_judge, list(unanswered.values()), requests
            ):
                self._answers[unanswered_keys[index]] = answer
                bar.update()
        answers = [self._answers[key] for key in keys]
        alike = np.array([_alike_as_number(answer) for answer in answers], np.float64)
        self._check_ratings(alike, answers)
        return alike

    def _check_ratings(self, alike: Scores, answers: Sequence[str]) -> None:
        unrated = np.flatnonzero(np.isnan(alike))
        if not len(unrated):
            return
        first = self._client.without_key(answers[unrated[0]])[:MAX_QUOTED_CHARACTERS]
        problem = (
            f"{self.name} gave no rating from 1 to 5 for {len(unrated)} of {len(alike)} pairs; its "
            f"answer for the first of them is {first!r}"
        )
        if len(unrated) == len(alike):
            raise ServerError(
                f"{JUDGE_FIELD}.url is {self._client.server.url!r}: {problem}. Give "
                "a model that answers with a number, or leave the judge out."
            )
        log.warning("%s. They are left out.", problem)

    def _ask_judge(self, question: str) -> str:
        message = {"role": "user", "content": question}
        body = {
            "model": self.name,
            "messages": [message],
            "max_tokens": MAX_ANSWER_TOKENS,
            "temperature": 0,
        }
        answer = self._client.post("chat/completions", body, ChatCompletion)
        return answer.choices[0].written if answer.failure is None else ""


def parse_rating(answer: str) -> int | None:
    """Returns the first number from 1 to 5; None if there is none or the scale is repeated."""
    match = RATING.search(answer)
    return int(match[0]) if match and not SCALE.search(answer) else None


def _alike_as_number(answer: str) -> float:
    number = parse_rating(answer)
    return np.nan if number is None else float(number >= MIN_ALIKE)
