"""Golden scores of the methods that no other implementation has scored: float64 loops.

`python -m tests.detection.golden_loops` writes tests/golden/loops.json, from the golden models in
float64 and the definitions in `tests.detection.naive`. It shares nothing with the package but the
reading of models. Token frequencies are those of tests/golden/corpus.txt.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cache
from typing import Any

import torch
from transformers import AutoTokenizer

from contamination.core.models import load_model
from tests.detection import golden, naive

FILE = golden.GOLDEN / "loops.json"
CORPUS = golden.GOLDEN / "corpus.txt"
METHODS = ("dc_pdd", "ez_mia", "grad_norm", "info_rmia", "lt_mia", "wbc")


@cache
def models() -> dict[str, Any]:
    return {
        role: load_model(f"{role}.path", str(golden.GOLDEN / role)).double()
        for role in ("target", "reference")
    }


def population(ids: list[int]) -> naive.Rows:
    """For each token after the first, the mean over the reference's own of the target's gain."""
    with torch.no_grad():
        target, reference = (
            torch.log_softmax(models()[role](input_ids=torch.tensor([ids])).logits[0], dim=-1)
            for role in ("target", "reference")
        )
    return [
        {"logprob": math.fsum((reference[t].exp() * (target[t] - reference[t])).tolist())}
        for t in range(len(ids) - 1)
    ]


def gradient_norm(ids: list[int]) -> float:
    """The root of the sum of the squares, parameter by parameter."""
    model = models()["target"]
    model.zero_grad()
    logits = model(input_ids=torch.tensor([ids])).logits[0]
    picked = [torch.log_softmax(logits[t], dim=-1)[ids[t + 1]] for t in range(len(ids) - 1)]
    (-torch.stack(picked).mean()).backward()
    return math.sqrt(math.fsum(float((p.grad**2).sum()) for p in model.parameters()))


@cache
def log_frequencies() -> list[float]:
    """Each count and 1, of all and the vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(golden.GOLDEN / "target")
    lines = CORPUS.read_text().splitlines(keepends=True)
    counts = Counter(
        id_ for line in lines for id_ in tokenizer(line, add_special_tokens=False)["input_ids"]
    )
    entries = models()["target"].config.vocab_size
    return [math.log((counts[id_] + 1) / (counts.total() + entries)) for id_ in range(entries)]


def frequencies(ids: list[int]) -> naive.Rows:
    return [
        {"logprob": 0.0 if ids[t] in ids[1:t] else log_frequencies()[ids[t]]}
        for t in range(1, len(ids))
    ]


def scores(ids: list[int]) -> dict[str, float]:
    """The golden scores of one text."""
    views = {
        "target/original": [naive.token_rows(models()["target"], ids)],
        "reference/original": [naive.token_rows(models()["reference"], ids)],
        "target/population": [population(ids)],
        "target/unigram?": [frequencies(ids)],
    }
    return {
        "dc_pdd": naive.dc_pdd(views, "", corpus="", characters=0, limit=0.01),
        "ez_mia": naive.ez_mia(views, ""),
        "grad_norm": -gradient_norm(ids),
        "info_rmia": naive.info_rmia(views, ""),
        "lt_mia": naive.lt_mia(views, ""),
        "wbc": naive.wbc(views, ""),
    }


if __name__ == "__main__":
    made = [scores(example["token_ids"]) for example in golden.examples()]
    FILE.write_text(json.dumps(made, indent=0) + "\n")
