"""CoDeC: how many texts of a set become less likely after other texts of the set.

Contamination Detection via Context (Zawalski et al. 2025, arXiv 2510.27055). For each text x of a
set, with C_x other texts of the set drawn by the seed,

    drop(x) = mean log p(x) of a token − mean log p(x | C_x) of a token, in nats

and the set's share is that of its texts with a drop above 0. The text is tokenised once, so both
means are over the same tokens. A model that knows a set gains nothing from examples of it, and
examples of a new kind of text help.

The means leave out the first `skip_tokens` scored tokens, 10 as in the authors' notebook: any
context helps with a text's beginning, so that few texts drop if it counts. The notebook also leaves
out the last token (its range ends at −1) and joins texts with an empty line, here with a newline.

It measures whether the model knows the set's *distribution* as much as whether it has seen the
texts: held-out texts of a benchmark whose other texts were trained on have the members' share
(measured in docs/detection.md). It is no `Method`, because a text's drop depends on the rest of
its set.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from contamination.core.errors import DataError, require
from contamination.core.output_paths import check_writable_folder
from contamination.core.seeds import derive_seed
from contamination.core.statistics.bootstrap import draw_counts
from contamination.core.statistics.samples import estimate_mean
from contamination.core.terminal import fit_columns
from contamination.data.texts import Text
from contamination.detection.examples import open_examples
from contamination.detection.flags import SIDES
from contamination.detection.forward.reader import Reader, Tokens
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models import open_model
from contamination.detection.models.base import LanguageModel
from contamination.detection.passes import ORIGINAL, Copies, TokenStats
from contamination.detection.summary import format_estimate
from contamination.detection.tasks.config import CodecConfig, CodecStage

if TYPE_CHECKING:
    from contamination.detection.forward.prefix import Shots

log = logging.getLogger(__name__)
COLUMNS = ("example_id", "benchmark", "label", "context", "drop")
DRAWS = 1_000


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

        Texts before which no other had room, and those without a token that counts, are left out.

        Args:
            by: the columns that name a group, such as benchmark and label.
        """
        groups = self.compared.groupby(list(by), dropna=False)["dropped"]
        return groups.agg(["mean", "size"]).set_axis(["share", "texts"], axis=1).reset_index()

    @property
    def compared(self) -> pd.DataFrame:
        """The texts that count, with the column `dropped`: whether the drop is above 0."""
        texts = self.texts[(self.texts["context"] > 0) & self.texts["drop"].notna()]
        return texts.assign(dropped=(texts["drop"] > 0).astype(float))

    def summary(self) -> str:
        """Returns a line per set, and per side if there are labels, with Wilson's intervals."""
        rows = []
        by = ["benchmark", *(["label"] if self.texts["label"].notna().any() else [])]
        for group, texts in self.compared.groupby(by, dropna=False):
            name, *label = group if isinstance(group, tuple) else (group,)
            side = [SIDES[None if pd.isna(one) else bool(one)] for one in label]
            drawn = draw_counts(len(texts), DRAWS, derive_seed(0, "codec", str(group)))
            share = estimate_mean(texts["dropped"].to_numpy(), drawn, rate=True)
            rows.append(
                [str(name) or "all texts", *side, format_estimate(share), f"{len(texts):,}"]
            )
        header = ["set", *by[1:], "share of texts with a drop [95%]", "texts"]
        lines = [*fit_columns(header, rows).lines(len(by))] if rows else []
        left_out = len(self.texts) - len(self.compared)
        if not rows:
            lines.append(
                "no text could be compared: give longer texts, a smaller codec.skip_tokens, or a "
                "model with a longer context"
            )
        if left_out:
            lines.append(
                f"left out: {left_out} of {len(self.texts)} texts, which are too short or leave no "
                "room for another one before them"
            )
        return "\n".join(lines)


def run(stage: CodecStage) -> ContextDrops:
    """Returns the drop of each text of a stage.

    Raises:
        ConfigError: texts would be read in windows or in part.
        DataError: see `context_drops`.
    """
    if stage.out is not None:
        check_writable_folder("out", stage.out)
    stage.detection.require_whole_texts("whole texts are compared")
    long_texts = stage.detection.long_texts
    remedy = "a text and others before it have to fit into the context: give truncate or error."
    stage.detection.require(long_texts != "windowed", "long_texts", remedy)
    texts = open_examples(stage.examples)
    model = LoadedModel(open_model("model", stage.model, stage.runs), stage.detection)
    return context_drops(texts, model, stage.codec.shots, stage.codec.skip_tokens, stage.seed)


def context_drops(
    texts: Sequence[Text],
    model: LoadedModel,
    shots: int = CodecConfig.shots,
    skip_tokens: int = CodecConfig.skip_tokens,
    seed: int = 0,
) -> ContextDrops:
    """Returns the drop of each text after up to `shots` others of its benchmark.

    Args:
        texts: the texts; those of one benchmark are one set.
        model: the model, whose settings say how long texts are read. They can't be windows.
        shots: the other texts before each text, or as many of them as the context has room for.
        skip_tokens: the number of scored tokens at a text's beginning that do not count.
        seed: the seed of the draw, which depends on nothing else but the set's texts.

    Raises:
        ConfigError: `shots` is below 1, or `skip_tokens` below 0.
        DataError: a set has a single text, or a text is too long.
    """
    require(shots >= 1, "shots", shots, "give 1 or more.")
    require(skip_tokens >= 0, "skip_tokens", skip_tokens, "give 0 or more.")
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
            _mean_after(skip_tokens, row.stats) - _mean_after(skip_tokens, copies[0]),
        )
        for text, row, (used, copies) in zip(texts, alone, after, strict=True)
    ]
    return ContextDrops(pd.DataFrame(rows, columns=[*COLUMNS]))


def _mean_after(skip_tokens: int, stats: TokenStats) -> float:
    """Returns the mean log p of the tokens that count; NaN without any."""
    counted = stats.logprob[skip_tokens:]
    return float(counted.mean(dtype=np.float64)) if len(counted) else float("nan")


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
    from contamination.detection.forward.prefix import Shots  # it imports torch

    prefixes = [Shots(model.tokenizer, context) for context in contexts]
    context = model.source.context
    used = [p.count_fitting(len(t.ids), context) for p, t in zip(prefixes, tokens, strict=True)]
    _warn_of_little_room(used, contexts)
    task = partial(
        run_after_own_contexts,
        prefixes=prefixes,
        batch_tokens=model.settings.batch_tokens,
        context=context,
    )
    places = list(range(len(tokens)))
    copies = model.run_in_processes(task, "context", tokens, places)
    return list(zip(used, copies, strict=True))


def _warn_of_little_room(used: Sequence[int], contexts: Sequence[Sequence[str]]) -> None:
    """Warns once of the texts before which not all drawn texts have room."""
    short = [n for n, context in zip(used, contexts, strict=True) if n < len(context)]
    if short:
        log.warning(
            "codec: %d of %d texts leave no room in the model's context for all of the texts that "
            "were drawn to stand before them, and %d of these for none, so that they are left out. "
            "Give shorter texts, a smaller codec.shots, or a model with a longer context.",
            *(len(short), len(used), short.count(0)),
        )


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
    from contamination.detection.forward.batches import run_by_key
    from contamination.detection.forward.prefix import run_after_shots

    def run(place: int, rows: list[int]) -> list[Copies]:
        given = [sequences[i] for i in rows], [names[i] for i in rows]
        stats = run_after_shots(model, prefixes[place], *given, batch_tokens, context, warn=False)
        return [(text_stats,) for text_stats in stats]

    return run_by_key(places, run)
