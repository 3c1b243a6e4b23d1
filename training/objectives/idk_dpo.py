"""Preference optimisation with "I don't know" answers (Maini et al. 2024, "TOFU").

Direct preference optimisation (Rafailov et al. 2023, their loss L_DPO): the preferred output of a
prompt x is an answer a such as "I don't know.", the other is the output y of the forget set, and
the reference is the model that training starts from:

    −(2/β) E log σ(β log π_θ(a|x) / π_ref(a|x) − β log π_θ(y|x) / π_ref(y|x))

Rafailov et al. have no factor before the mean, and Zhang et al. (2024, "NPO") 1/β; open-unlearning
has 2/β, and so does this module. Without the preferred answer it is then NPO's loss.

open-unlearning draws an answer whenever it reads a text; here training.order_seed draws one for
each text, once. What follows an output (an end-of-text token, or the tokens with which a chat
template closes a message) also follows the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contamination.core.distributed import World
from contamination.core.errors import ConfigError
from contamination.core.seeds import derive_seed
from contamination.injection.corpus import FinetuningSet, PackedCorpus
from contamination.injection.finetuning.config import FinetuningConfig
from contamination.injection.finetuning.prompts import EncodedText, PromptedText, encode_text
from contamination.training.config import OUTPUT_TOKENS, TrainingConfig
from contamination.training.data import Batch, Rows, count_texts, positions_in_texts
from contamination.training.objectives.base import MAYBE, Objective, iter_micro_batches
from contamination.training.objectives.npo import Numbers, text_logprobs

if TYPE_CHECKING:
    import torch

FIELD = "training.idk_answers"
NO_TEXT = -1


@dataclass(frozen=True)
class IdkDPO(Objective):
    """The mean over texts.

    Attributes:
        beta: β.
        answers: each prompt with its answer, by the text's number.
        reference: log π_ref of each text, then of each answer, shape (2 × texts,).
    """

    beta: float = 0.1
    answers: Sequence[EncodedText] = field(default=(), repr=False)
    reference: Numbers | None = None

    retains: ClassVar[str] = MAYBE
    readings: ClassVar[int] = 2

    @classmethod
    def from_config(cls, config: TrainingConfig) -> IdkDPO:
        """Returns the objective with the configured β."""
        return cls(config.loss_on, config.compile, config.idk_beta)

    def with_inputs(self, corpus: PackedCorpus, config: TrainingConfig) -> IdkDPO:
        """Returns the objective with each prompt's answer.

        Raises:
            ConfigError: there are no answers, or a text of the forget set has no prompt.
        """
        answers = read_answers(str(config.idk_answers))
        drawn = np.random.default_rng(derive_seed(config.order_seed or 0, "idk"))
        finetuning = FinetuningConfig(**corpus.config["finetuning"])
        end = reversed_end(corpus.tokenizer.hf.all_special_tokens)
        encoded = [
            encode_text(
                _with_answer(text, answers[drawn.integers(len(answers))], end),
                finetuning,
                corpus.tokenizer,
            )
            for text in iter_prompted_texts(corpus)
        ]
        return replace(self, answers=encoded)

    def prepare_from_start(
        self, engine: Any, sequences: Any, config: TrainingConfig, world: World
    ) -> IdkDPO:
        """Returns the objective with all log-probabilities by the starting model.

        Raises:
            ConfigError: an answer with its prompt is longer than the sequences of the forget set.
        """
        import torch

        width, longest = len(sequences[0]["input_ids"]), max(len(a.ids) for a in self.answers)
        if longest > width:
            raise ConfigError(
                f"{FIELD} is {config.idk_answers!r}: a prompt with its answer has {longest} "
                f"tokens, more than the forget set's sequences ({width}). Give shorter answers, or "
                "make the set with a larger finetuning.sequence_tokens."
            )
        reference = torch.zeros(2 * len(self.answers), dtype=torch.float64, device=world.device)
        with torch.no_grad():
            for batch in iter_micro_batches(engine, sequences, self.loss_on, config, world):
                numbers, logprobs = text_logprobs(engine, self._with_answers(batch))
                reference[numbers] = logprobs.double()
        return replace(self, reference=world.sum(reference).cpu().numpy())

    def loss_sum(self, model: Any, batch: Batch) -> torch.Tensor:
        """Returns the sum over the batch's texts."""
        import torch
        from torch.nn import functional as F  # noqa: N812

        assert self.reference is not None, "prepare_from_start() fills it in"
        numbers, logprobs = text_logprobs(model, self._with_answers(batch), compiled=self.compiled)
        ratios = logprobs - torch.from_numpy(self.reference)[numbers.cpu()].to(logprobs)
        text_ratios_T, answer_ratios_T = ratios.chunk(2) if len(ratios) else (ratios, ratios)
        margins_T = answer_ratios_T - text_ratios_T
        return (-2 / self.beta * F.logsigmoid(self.beta * margins_T)).sum()

    def count_terms(self, sequences: Any, rows: Rows) -> int:
        """Returns the number of texts in the rows."""
        return count_texts(sequences, rows)

    def _with_answers(self, batch: Batch) -> Batch:
        """Returns the batch with its texts' answers, whose numbers follow those of all texts.

        Both are read in one forward pass: ZeRO stage 3 reduces a gradient once per backward pass.
        """
        import torch

        text_numbers_BS, is_counted_BS = batch.text_numbers_BS[:, 1:], batch.loss_mask_BS > 0
        numbers = torch.unique(text_numbers_BS[is_counted_BS]).tolist()
        packed, width = batch.positions_BS is not None, batch.ids_BS.shape[1]
        rows = _rows_of_texts([len(self.answers[n].ids) for n in numbers], width, packed=packed)
        shape = len(rows), width
        ids_RS, output_RS = np.zeros(shape, np.int64), np.zeros(shape, bool)
        numbers_RS = np.full(shape, NO_TEXT, np.int64)
        for row, places in enumerate(rows):
            start = 0
            for number in (numbers[place] for place in places):
                answer = self.answers[number]
                part = slice(start, start := start + len(answer.ids))
                ids_RS[row, part], output_RS[row, part] = answer.ids, answer.output
                numbers_RS[row, part] = len(self.answers) + number
        answers = batch_of_texts(ids_RS, numbers_RS, output_RS, self.loss_on, packed=packed)
        return _joined(batch, answers.to(batch.ids_BS.device))


def _rows_of_texts(lengths: Sequence[int], width: int, *, packed: bool) -> list[list[int]]:
    """Returns the places of each row's texts: as many as fit, or one if they are not packed."""
    rows: list[list[int]] = []
    left = 0
    for place, length in enumerate(lengths):
        if length > left:
            rows.append([])
            left = width
        rows[-1].append(place)
        left = left - length if packed else 0
    return rows


def batch_of_texts(
    ids_BS: Rows,  # noqa: N803
    numbers_BS: Rows,  # noqa: N803
    output_BS: np.ndarray[Any, Any],  # noqa: N803
    loss_on: str,
    *,
    packed: bool,
) -> Batch:
    """Returns a batch of rows that are all real.

    Args:
        ids_BS: the tokens.
        numbers_BS: the number of each token's text; NO_TEXT for padding.
        output_BS: whether each token is output.
        loss_on: which tokens' losses count: `all`, or those of the `output`.
        packed: whether a row may have several texts.
    """
    import torch

    counted_BS = (numbers_BS[:, 1:] == numbers_BS[:, :-1]) & (numbers_BS[:, 1:] != NO_TEXT)
    if loss_on == OUTPUT_TOKENS:
        counted_BS &= output_BS[:, 1:]
    return Batch(
        torch.from_numpy(ids_BS),
        torch.ones(len(ids_BS)),
        torch.zeros(len(ids_BS), dtype=torch.long),
        counted_BS=torch.from_numpy(counted_BS.astype(np.float32)),
        positions_BS=torch.from_numpy(positions_in_texts(numbers_BS)) if packed else None,
        texts_BS=torch.from_numpy(numbers_BS),
    )


def _joined(batch: Batch, other: Batch) -> Batch:
    import torch

    joined: dict[str, Any] = {
        name: values if values is None else torch.cat([values, getattr(other, name)])
        for name, values in vars(batch).items()
    }
    return Batch(**joined)


def read_answers(path: str) -> list[str]:
    """Returns the answers of a text file, one per line.

    Raises:
        ConfigError: there is no such file, or it has no answer.
    """
    remedy = 'give a text file with one answer per line, such as "I don\'t know.".'
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{FIELD} is {path!r}: it can't be read ({error}): {remedy}") from error
    answers = [line.strip() for line in lines if line.strip()]
    if not answers:
        raise ConfigError(f"{FIELD} is {path!r}: it has no answer: {remedy}")
    return answers


def iter_prompted_texts(corpus: PackedCorpus) -> Iterator[PromptedText]:
    """Yields the texts of a fine-tuning set by their numbers.

    Raises:
        ConfigError: the folder is no fine-tuning set, or a text has no prompt.
    """
    remedy = (
        "training.objective=idk_dpo answers prompts: give a fine-tuning set of prompts and outputs "
        "(python -m injection finetuning, finetuning.format=template or chat)."
    )
    folder = str(corpus.artifact.path)
    if not isinstance(corpus, FinetuningSet):
        raise ConfigError(f"corpus_folder is {folder!r}: it is a packed corpus, but {remedy}")
    clean = corpus.instructions
    examples = corpus.examples.set_index("example_id")
    copies = examples.loc[corpus.ledger["example_id"], ["text", "output_start"]].reset_index()
    for rows in (clean, copies):
        for row in rows.itertuples():
            if not row.output_start:
                raise ConfigError(
                    f"corpus_folder is {folder!r}: {row.example_id} has no prompt, but {remedy}"
                )
            yield PromptedText(row.example_id, "", row.text, int(row.output_start))


def reversed_end(special: Sequence[str]) -> re.Pattern[str]:
    """Returns a pattern of white space and special tokens, read backwards from a text's end.

    Forwards, each space in a text would be tried as the beginning of the end: quadratic time.
    """
    longest_first = sorted(filter(None, special), key=len, reverse=True)
    alternatives = [*(re.escape(token[::-1]) for token in longest_first), r"\s"]
    return re.compile(f"(?:{'|'.join(alternatives)})*")


def _with_answer(text: PromptedText, answer: str, end: re.Pattern[str]) -> PromptedText:
    """Returns the text with another output, which ends as the text's own does (`reversed_end`)."""
    prompt, output = text.text[: text.output_start], text.text[text.output_start :]
    close = end.match(output[::-1])
    assert close is not None, "the pattern also matches the empty end"
    return replace(text, text=f"{prompt}{answer}{close.group()[::-1]}")
