"""The augmented versions of a text that some methods compare it with."""

from __future__ import annotations

from detection.passes import Pass

AUGMENTATIONS = ("swap", "delete", "lowercase", "masked_lm", "given")


def augmented(augmentation: str, n: int, share: float) -> Pass:
    """The target's pass over `n` versions; lower case is one version, and draws nothing.

    `given` versions are those that a benchmark brings along.
    """
    if augmentation == "lowercase":
        return Pass(view="lowercase")
    if augmentation == "given":
        return Pass(view="given", n=n)
    return Pass(view=augmentation, n=n, share=share)
