"""CoDeC: how many texts of a set become less likely after other texts of the set.

Contamination Detection via Context (Zawalski et al. 2025, arXiv 2510.27055). For each text x of a
set, with C_x other texts of the set drawn by the seed,

    drop(x) = mean log p(x) of a token − mean log p(x | C_x) of a token, in nats

and the set's share is that of its texts with a drop above 0. The text is tokenised once, so both
means are over the same tokens. A model that knows a set gains nothing from examples of it, and
examples of a new kind of text help.

It measures whether the model knows the set's *distribution* as much as whether it has seen the
texts: held-out texts of a benchmark whose other texts were trained on have the members' share
(measured in docs/detection.md). It is no `Method`, because a text's drop depends on the rest of
its set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.errors import DataError, require
from contamination.core.seeds import derive_seed
from contamination.data.texts import Text
from contamination.detection.forward.batches import run_by_key
from contamination.detection.forward.prefix import Shots, run_after_shots
from contamination.detection.forward.reader import Reader, Tokens
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.methods._shared import mean_logprob
from contamination.detection.models.base import LanguageModel
from contamination.detection.passes import ORIGINAL, Copies

COLUMNS = ("example_id", "benchmark", "label", "context", "drop")


@dataclass(frozen=True)
class ContextDrops:
    """The drop of each text, and the share of each set.

    Attributes:
        texts: one row per text: example_id, benchmark, label, context (the number of texts before
            it) and drop.
    """

    texts: pd.DataFrame

    def shares(self, by: Sequence[str] = ("benchmark",)) -> pd.DataFrame:
        """Returns the share of texts with a drop above 0, and the number of texts, of each group.

        Texts before which no other had room are left out.

        Args:
            by: the columns that name a group, such as benchmark and label.
        """
        known = self.texts[self.texts["context"] > 0]
        groups = known.assign(share=known["drop"] > 0).groupby(list(by), dropna=False)["share"]
        return groups.agg(["mean", "size"]).set_axis(["share", "texts"], axis=1).reset_index()


def context_drops(
    texts: Sequence[Text], model: LoadedModel, shots: int = 3, seed: int = 0
) -> ContextDrops:
    """Returns the drop of each text after up to `shots` others of its benchmark.

    Args:
        texts: the texts; those of one benchmark are one set.
        model: the model, whose settings say how long texts are read. They can't be windows.
        shots: the other texts before each text, or as many of them as the context has room for.
        seed: the seed of the draw, which depends on nothing else but the set's texts.

    Raises:
        ConfigError: `shots` is below 1.
        DataError: a set has a single text, or a text is too long.
    """
    require(shots >= 1, "shots", shots, "give 1 or more.")
    contexts = draw_contexts(texts, shots, seed)
    tokens = model.tokenize(ORIGINAL, texts)
    alone = model.run(ORIGINAL, texts)
    after = _run_after_contexts(model, tokens, contexts)
    rows = [
        (
            text.example_id,
            text.benchmark,
            text.label,
            used,
            mean_logprob(row.stats) - mean_logprob(copies[0]),
        )
        for text, row, (used, copies) in zip(texts, alone, after, strict=True)
    ]
    return ContextDrops(pd.DataFrame(rows, columns=[*COLUMNS]))


def draw_contexts(texts: Sequence[Text], shots: int, seed: int) -> list[list[str]]:
    """Returns for each text up to `shots` others of its benchmark, drawn at random without repeats.

    The draw depends on the seed and the text, not on the order of the texts.

    Raises:
        DataError: a benchmark has no two different texts.
    """
    sets: dict[str, dict[str, str]] = {}
    for text in sorted(texts, key=lambda text: text.sha256):
        sets.setdefault(text.benchmark, {})[text.sha256] = text.text
    contexts = []
    for text in texts:
        others = [sha256 for sha256 in sets[text.benchmark] if sha256 != text.sha256]
        if not others:
            raise DataError(
                f"the set {text.benchmark!r} has only the text {text.example_id}: no other text "
                "can stand before it. Give a set of several texts."
            )
        rng = np.random.default_rng(derive_seed(seed, "context", text.benchmark, text.sha256))
        drawn = rng.permutation(len(others))[:shots]
        contexts.append([sets[text.benchmark][others[index]] for index in drawn])
    return contexts


def _run_after_contexts(
    model: Reader, tokens: Sequence[Tokens], contexts: Sequence[Sequence[str]]
) -> list[tuple[int, Copies]]:
    prefixes = [Shots(model.tokenizer, context) for context in contexts]
    context = model.source.context
    used = [p.count_fitting(len(t.ids), context) for p, t in zip(prefixes, tokens, strict=True)]
    task = partial(
        run_after_own_contexts,
        prefixes=prefixes,
        batch_tokens=model.settings.batch_tokens,
        context=context,
    )
    places = list(range(len(tokens)))
    copies = model.run_in_processes(task, "context", tokens, places)
    return list(zip(used, copies, strict=True))


def run_after_own_contexts(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    names: Sequence[str],
    places: Sequence[int],
    *,
    prefixes: Sequence[Shots],
    batch_tokens: int,
    context: int | None,
    progress: Any = None,
) -> list[Copies]:
    """Returns the statistics of each sequence after `prefixes[places[i]]`."""

    def run(place: int, rows: list[int]) -> list[Copies]:
        given = [sequences[i] for i in rows], [names[i] for i in rows]
        stats = run_after_shots(model, prefixes[place], *given, batch_tokens, context, None)
        return [(text_stats,) for text_stats in stats]

    return run_by_key(places, run)
