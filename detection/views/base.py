"""The base class of views: which versions of a text are read, and the work that this takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from contamination.data.texts import longest_extension_indices
from contamination.detection.forward.reader import Reader, Tokens, ViewWork
from contamination.detection.passes import Copies, Pass
from contamination.detection.workers import Task


@dataclass(frozen=True)
class View:
    """A kind of pass: how texts are changed, and how a model reads the result.

    This class reads each version by itself, in one forward. A subclass may describe other work.

    Attributes:
        make: makes the versions of each text, in order, from the texts, the resources and the
            pass's parameters. It receives all texts at once, for views that run their own model.
        needs: the resources that it uses: `seed`, `masked_lm`, `prefix` or `neighbors`.
        rewords: whether its versions are rewordings of the text, each read by itself.
        covers_text: whether a text's first statistics cover all of the text's own tokens, so that
            they show how many are scored.
        required_abilities: what the model must provide (`ModelHandle.provides`).
        min_tokens: the minimum number of tokens of a version; the first token is not scored.
        limited_to_context: whether a version longer than the context is truncated, or read in
            windows.
        shares_beginnings: whether a token's statistics are the same in every text with the same
            beginning, so that only the longest of such texts is read.
    """

    make: Callable[..., list[Sequence[str]]]
    needs: tuple[str, ...] = ()
    rewords: bool = True
    covers_text: bool = False
    required_abilities: frozenset[str] = frozenset()
    min_tokens: int = 2
    limited_to_context: bool = True
    shares_beginnings: bool = False

    def covering_pass(self, wanted: Pass, others: Iterable[Pass]) -> Pass:
        """Returns the pass, among those of this view and model, that contains `wanted`."""
        return wanted

    def copies_per_text(self, wanted: Pass) -> int:
        """Returns roughly how many statistics the pass has per token of a text."""
        return int(dict(wanted.parameters).get("n", 1))

    def max_tokens_read(self, wanted: Pass, tokens: int) -> int:
        """Returns the maximum number of tokens the model reads for a text of `tokens` tokens.

        This is the cost of the pass.
        """
        return tokens * self.copies_per_text(wanted)

    def window_task(self, wanted: Pass, batch_tokens: int) -> Task[Copies]:
        """Returns what each process does with the token sequences of texts, or of windows."""
        from contamination.detection.forward.batches import run_single_copies  # it imports torch

        return partial(run_single_copies, batch_tokens=batch_tokens)

    def describe_work(self, reader: Reader, wanted: Pass, tokens: Sequence[Tokens]) -> ViewWork:
        """Describes what the model does for these versions, none of them windowed.

        Args:
            reader: the model's tokenizer, context, settings and resources.
            wanted: a pass of this view.
            tokens: the versions.
        """
        task = self.window_task(wanted, reader.settings.batch_tokens)
        if not (self.shares_beginnings and reader.source.ignores_later_tokens):
            return ViewWork(task, tokens)
        longest_index = longest_extension_indices([t.ids for t in tokens])
        indices_read = sorted(set(longest_index))

        def beginnings(copies_read: Sequence[Copies]) -> list[Copies]:
            copies = dict(zip(indices_read, copies_read, strict=True))
            return [
                self.stats_of_beginning(copies[index], len(t.ids))
                for index, t in zip(longest_index, tokens, strict=True)
            ]

        return ViewWork(task, [tokens[index] for index in indices_read], to_copies=beginnings)

    def stats_of_beginning(self, copies: Copies, tokens: int) -> Copies:
        """Returns the statistics of a text's first `tokens` tokens, from those of the text."""
        return tuple(stats[: max(0, tokens - 1)] for stats in copies)

    def stats_of_ending(self, copies: Copies, tokens: int) -> Copies:
        """Returns the statistics after a text's first `tokens` tokens, from those of the text."""
        return tuple(stats[max(0, tokens - 1) :] for stats in copies)

    def check_works_in_windows(self, wanted: Pass, context: int, texts: str) -> None:
        """Raises a ConfigError, or warns, if the view does not work in windows.

        `texts` says how many texts are affected, for the message.
        """
