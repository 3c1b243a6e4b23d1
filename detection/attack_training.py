"""Trains the network of LT-MIA on texts whose membership is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from contamination.core.seeds import derive_seed
from contamination.detection.attack_file import Network, round_weights
from contamination.detection.methods.lt_mia import FEATURES, membership_logit
from contamination.detection.tasks.config import FitConfig

Features = NDArray[np.float64]


def fit_network(
    texts: Sequence[Features], member: NDArray[np.bool_], config: FitConfig, seed: int
) -> Network:
    """Trains a network by the cross-entropy of the labels; equal arguments give equal numbers.

    Args:
        texts: the numbers of each text's tokens, each of shape (tokens, FEATURES).
        member: whether each text is a member.
        config: how it is trained.
        seed: the seed of the first weights and of the order of the texts.
    """
    import torch  # here, since --help reads FitConfig
    from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

    rng = np.random.default_rng(derive_seed(seed, "LT-MIA"))
    tokens = np.concatenate(texts)
    center, scale = tokens.mean(axis=0), tokens.std(axis=0)
    inputs = {"center": center, "scale": np.where(scale > 0, scale, 1.0)}
    fixed = {name: torch.tensor(array, dtype=torch.float32) for name, array in inputs.items()}
    weights = {
        name: torch.tensor(array, dtype=torch.float32, requires_grad=True)
        for name, array in _initial_weights(len(FEATURES), config.hidden, rng).items()
    }
    optimizer = torch.optim.AdamW(
        weights.values(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    steps = config.epochs * -(-len(texts) // config.batch_texts)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    labels = np.where(member, 1 - config.smoothing / 2, config.smoothing / 2).astype(np.float32)
    for _ in range(config.epochs):
        for rows in _batches(rng.permutation(len(texts)), config.batch_texts):
            features, mask = map(torch.from_numpy, _pad([texts[row] for row in rows]))
            logits = membership_logit({**weights, **fixed}, features, mask, torch)
            optimizer.zero_grad()
            loss = cross_entropy(logits, torch.from_numpy(labels[rows]))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    learned = {name: weight.detach().double().numpy() for name, weight in weights.items()}
    rounded = {name: round_weights(array) for name, array in {**learned, **inputs}.items()}
    return Network(features=[*FEATURES], **rounded)


def _initial_weights(
    inputs: int, hidden: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Returns normal weights of variance 1 / inputs of the layer, and biases of 0."""
    shapes: dict[str, tuple[int, ...]] = {
        **{"first": (inputs, hidden), "first_bias": (hidden,), "second": (hidden, hidden)},
        **{"second_bias": (hidden,), "attention": (hidden,), "output": (2 * hidden,)},
        "output_bias": (),
    }
    return {
        name: np.zeros(shape) if name.endswith("bias") else rng.normal(0, shape[0] ** -0.5, shape)
        for name, shape in shapes.items()
    }


def _batches(order: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _pad(texts: Sequence[Features]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the texts of a batch as (texts, tokens, features), and the mask of their tokens."""
    longest = max(map(len, texts))
    features = np.zeros((len(texts), longest, len(FEATURES)), np.float32)
    mask = np.zeros((len(texts), longest), np.float32)
    for row, text in enumerate(texts):
        features[row, : len(text)] = text
        mask[row, : len(text)] = 1
    return features, mask
