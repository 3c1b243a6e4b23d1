"""The online setting (Zhang et al. 2024, appendix C): which part of a stream leaked?

Texts that join a non-member and a member are scored once. Each method then sees windows of the
tokens' statistics (32 tokens in the paper), so that windows are detected instead of texts. Rows
that are already joined, with labels of a few words each (`examples.label_words`), stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.errors import ConfigError, DataError, require
from contamination.core.output_paths import check_writable_folder
from contamination.core.seeds import derive_seed
from contamination.data.benchmark_parts import WORD_SEPARATOR
from contamination.data.examples import make_text
from contamination.data.texts import Text
from contamination.detection.examples import open_examples
from contamination.detection.flags import reason_unranked
from contamination.detection.methods.base import Method
from contamination.detection.methods.registry import build_methods
from contamination.detection.models import open_model
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import ORIGINAL, Example, TokenStats
from contamination.detection.requirements import choose_servable_methods
from contamination.detection.scores import score_and_flag
from contamination.detection.tasks.config import OnlineStage

SEPARATOR = "\n\n"


@dataclass(frozen=True)
class JoinedText:
    """Several texts as one, and the (start, end) characters of its members."""

    text: Text
    members: Sequence[tuple[int, int]]


def run(stage: OnlineStage) -> tuple[pd.DataFrame, list[Text]]:
    """Scores every window.

    Returns:
        A table with the columns example_id (text/window), method, variant, score, flag and
        ranked; and the windows.

    Raises:
        ConfigError: a method needs more than the original text's pass, or numbers that the model
            does not provide.
        DataError: the examples lack members or non-members.
    """
    if stage.out is not None:
        check_writable_folder("out", stage.out)
    stage.detection.require_whole_texts("windows of whole texts are scored")
    methods = build_methods(stage.method)
    multi_pass = [name for (name, _), m in methods.items() if tuple(m.passes) != (ORIGINAL,)]
    if multi_pass:
        raise ConfigError(
            f"method: {', '.join(multi_pass)} read more than one pass over the text, which windows "
            "do not have: choose single-pass methods, such as method=[loss,min_k,min_k_plus_plus]."
        )
    target = open_model("model", stage.model, stage.runs)
    methods = dict(choose_servable_methods(stage.method, methods, {"target": target}))
    texts = open_examples(stage.examples)
    are_pieces = bool(stage.examples.label_words)
    joined = [*(join_pieces(texts) if are_pieces else join_random_pairs(texts, stage.seed))]
    joined_texts = [stream.text for stream in joined]
    collector = Collector(Path(stage.runs), {"target": target}, joined_texts, stage.detection)
    stats = dict(collector.collect([ORIGINAL])[ORIGINAL])
    tokenizer, window_tokens = target.tokenizer(), stage.online.window_tokens
    windows: list[tuple[Text, TokenStats]] = []
    for stream in joined:
        windows += _iter_windows(stream, stats[stream.text.sha256][0], tokenizer, window_tokens)
    remedy = "every joined text is shorter: lower it, or give longer texts."
    require(bool(windows), "online.window_tokens", window_tokens, remedy)
    return _score_table(methods, windows), [text for text, _ in windows]


def join_pieces(pieces: Sequence[Text]) -> Iterator[JoinedText]:
    """Yields the texts whose pieces are given (`Text.cluster`), joined in their order."""
    pieces_by_stream: dict[tuple[str, str], list[Text]] = {}
    for piece in pieces:
        pieces_by_stream.setdefault((piece.benchmark, piece.cluster), []).append(piece)
    for (benchmark, name), stream in pieces_by_stream.items():
        text = make_text(name, WORD_SEPARATOR.join(piece.text for piece in stream), None, benchmark)
        ends = np.cumsum([len(piece.text) + len(WORD_SEPARATOR) for piece in stream])
        starts = [0, *map(int, ends)]
        spans = [(s, s + len(p.text)) for s, p in zip(starts, stream, strict=False) if p.label]
        yield JoinedText(text, spans)


def join_random_pairs(examples: Sequence[Text], seed: int) -> Iterator[JoinedText]:
    """Yields each non-member joined with a random member, which comes first in half of them.

    Raises:
        DataError: the examples lack members or non-members.
    """
    members = [example for example in examples if example.label is True]
    nonmembers = [example for example in examples if example.label is False]
    if not members or not nonmembers:
        raise DataError(
            f"examples.path has {len(members)} members and {len(nonmembers)} non-members: the "
            "online setting joins one of each, so give texts with labels 1 and 0."
        )
    rng = np.random.default_rng(derive_seed(seed, "online"))
    order = rng.permutation(len(members))
    for index, nonmember in enumerate(nonmembers):
        member = members[order[index % len(members)]]
        first, second = (member, nonmember) if rng.random() < 0.5 else (nonmember, member)
        joined_id = f"{nonmember.example_id}+{member.example_id}"
        text = first.text + SEPARATOR + second.text
        start = 0 if first is member else len(first.text) + len(SEPARATOR)
        joined = make_text(joined_id, text, None, nonmember.benchmark)
        yield JoinedText(joined, [(start, start + len(member.text))])


def _iter_windows(
    joined: JoinedText, stats: TokenStats, tokenizer: Any, window_tokens: int
) -> Iterator[tuple[Text, TokenStats]]:
    """Yields each window as a text; it is a member if most of its characters are of members.

    The windows of one text are a cluster, so that intervals resample whole texts.
    """
    text = joined.text.text
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:]
    for window_number in range(len(stats) // window_tokens):
        tokens = slice(window_number * window_tokens, (window_number + 1) * window_tokens)
        start, end = offsets[tokens][0][0], offsets[tokens][-1][1]
        overlaps = (min(end, last) - max(start, first) for first, last in joined.members)
        member_characters = sum(max(0, overlap) for overlap in overlaps)
        window_id = f"{joined.text.example_id}/{window_number}"
        label = member_characters > (end - start) / 2
        window = make_text(window_id, text[start:end], label, joined.text.benchmark)
        yield replace(window, cluster=joined.text.example_id), stats[tokens]


def _score_table(
    methods: Mapping[tuple[str, str], Method], windows: Sequence[tuple[Text, TokenStats]]
) -> pd.DataFrame:
    rows = []
    for (name, variant), method in methods.items():
        for text, stats in windows:
            example = Example(text.example_id, text.text, {ORIGINAL: (stats,)})
            reason = reason_unranked(text.text, len(stats), 1)
            score, flag = score_and_flag(method, example, reason)
            rows.append([text.example_id, name, variant, score, flag, not reason])
    columns = ["example_id", "method", "variant", "score", "flag", "ranked"]
    return pd.DataFrame(rows, columns=columns)
