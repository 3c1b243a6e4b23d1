"""Which examples are shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.errors import ConfigError
from core.seeds import derive
from detection.texts import Text, Texts

KINDS = {True: "member", False: "non-member", None: "no label"}


def chosen(examples: Texts, count: int, ids: Sequence[str] | None, seed: int) -> list[Text]:
    """Those of the ids, in their order, or up to `count` of each kind, drawn at random.

    A draw does not depend on the order of the examples, and a larger one holds the smaller. It is
    sorted by kind, benchmark and id.

    Raises:
        ConfigError: an id that no example has.
    """
    if ids is None:
        ordered = examples.take(examples.order("example_id"))
        return [text for label in KINDS for text in _drawn(ordered, label, count, seed)]
    place_of = {name: i for i, name in enumerate(examples.column("example_id").to_pylist())}
    for name in ids:
        if name not in place_of:
            raise ConfigError(
                f"view.ids names {name!r}, which is no example's id. The ids are such as "
                f"{', '.join(list(place_of)[:3])}."
            )
    return [examples[place_of[name]] for name in ids]


def _drawn(examples: Texts, label: bool | None, count: int, seed: int) -> list[Text]:
    labels = examples.column("label").to_pylist()
    places = [place for place, own in enumerate(labels) if own is label]
    rng = np.random.default_rng(derive(seed, "view", KINDS[label]))
    drawn = [examples[place] for place in rng.permutation(places)[:count]]
    return sorted(drawn, key=lambda text: (text.benchmark, text.example_id))
