"""A causal language model of transformers: its hidden states, and the statistics of chosen rows.

Shapes: B texts, T tokens (padded), N rows that are real tokens, X hidden units (or the vocabulary),
V vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.detection.config import DetectionConfig
from contamination.detection.models.base import LanguageModel, Prompt, Tell, tell_nobody
from contamination.detection.models.head import HALF, head_of
from contamination.detection.models.kernel import statistics_of
from contamination.detection.passes import TokenStats


class Draw(LogitsProcessor):  # type: ignore[misc]
    """Leaves each row the token that its uniform number draws, at a temperature above 0."""

    def __init__(self, prompts: Sequence[Prompt], temperature: float) -> None:
        drawn = [np.random.default_rng(each.seed).random(each.tokens) for each in prompts]
        self.uniform_BL = torch.from_numpy(np.stack(drawn))
        self.start, self.temperature = len(prompts[0].ids), temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The logits (B, V): 0 for the drawn token, −∞ for every other."""
        step = input_ids.shape[1] - self.start
        total_BV = (scores.double() / self.temperature).softmax(-1).cumsum(-1)
        u_B1 = self.uniform_BL[:, step, None].to(scores.device) * total_BV[:, -1:]
        token_B1 = torch.searchsorted(total_BV, u_B1, right=True)
        token_B1 = token_B1.clamp_max(scores.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(1, token_B1, 0.0)


class Finite(LogitsProcessor):  # type: ignore[misc]
    """Raises a DataError where no token has a probability."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The logits (B, V) as they are."""
        if not scores.logsumexp(-1).isfinite().all():
            raise DataError(
                "the model's logits are NaN or infinite, so it can't write. Check the model's "
                "weights, or use detection.dtype=float32."
            )
        return scores


@torch.inference_mode()
def written(
    hf: Any, device: torch.device, prompts: Sequence[Prompt], temperature: float
) -> list[list[int]]:
    """See `LanguageModel.write`; all prompts have one length and want as many tokens.

    Raises:
        ConfigError: the model's class has no `generate`.
        DataError: the model's logits are not finite.
    """
    if not getattr(hf, "can_generate", bool)():
        raise ConfigError(
            f"the model's class, {type(hf).__name__}, has no `generate`, so it writes nothing: "
            "leave out the methods for which a model writes, such as samia and cdd."
        )
    ids_BP = torch.tensor([list(prompt.ids) for prompt in prompts], device=device)
    own, ends = hf.generation_config, end_tokens(hf)
    steps = [Finite(), *([Draw(prompts, temperature)] if temperature else [])]
    hf.generation_config = GenerationConfig(  # its own may repeat less, or cut the vocabulary
        max_new_tokens=prompts[0].tokens,
        do_sample=False,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
    )
    try:
        found = hf.generate(
            ids_BP,
            attention_mask=torch.ones_like(ids_BP),
            logits_processor=LogitsProcessorList(steps),
        )
    finally:
        hf.generation_config = own
    rows = found[:, ids_BP.shape[1] :].tolist()
    return [row[: min((row.index(e) for e in ends if e in row), default=None)] for row in rows]


def end_tokens(hf: Any) -> list[int]:
    """The tokens that end a text, by the model's own settings."""
    config = hf.config.get_text_config(decoder=True)
    given = hf.generation_config.eos_token_id
    given = config.eos_token_id if given is None else given
    return [] if given is None else [given] if isinstance(given, int) else list(given)


log = logging.getLogger(__name__)


class CausalLM(LanguageModel):
    """Runs a model without ever holding more float32 logits than asked for.

    Nearly every model is a body and a head (`head_of`). Where this one is not, its logits take the
    hidden state's place, whole. On a GPU one kernel makes the statistics of a head's hidden states
    (`statistics_of`).

    A model spread over devices moves its inputs itself: the hidden states, and the logits, may be
    on another device than `device`, where the token ids go.
    """

    def __init__(self, hf: Any, kernel: str = "auto") -> None:
        """Args: the model; `detection.kernel`."""
        self.hf = hf
        devices = (p.device for p in hf.parameters() if not p.is_meta)  # meta: kept on disk
        self.device = next(devices, torch.device("cpu"))  # of the first layer, for the token ids
        config = hf.config.get_text_config(decoder=True)
        self.vocabulary: int = config.vocab_size
        ids = torch.arange(min(8, self.vocabulary), device=self.device)[None]
        self.head = head_of(hf, ids)
        self.statistics = statistics_of(self.head, self.vocabulary, kernel)
        half = {str(p.dtype) for p in hf.parameters() if p.dtype in HALF}
        if half and (self.head is None or not self.head.is_linear):
            log.warning("%s makes its logits itself, in %s.", type(hf).__name__, *half)

    @torch.inference_mode()
    def stats(
        self,
        sequences: Sequence[Sequence[int]],
        tell: Tell = tell_nobody,
        hidden: Callable[[Tensor], Tensor] | None = None,
    ) -> list[TokenStats]:
        """One forward over sequences padded on the right, which a causal model's rows never see.

        Args:
            sequences: token ids, at least 2 each.
            tell: is told nothing: a batch is one forward.
            hidden: what gives the hidden states instead of the method of this name.
        """
        rows = [torch.tensor(sequence) for sequence in sequences]
        ids_BT = pad_sequence(rows, batch_first=True).to(self.device)
        each = zip((hidden or self.hidden)(ids_BT), rows, strict=True)
        hidden_NX = torch.cat([states[: len(row) - 1] for states, row in each])
        return self.stats_of(hidden_NX, [np.array(sequence[1:]) for sequence in sequences])

    def write(
        self, prompts: Sequence[Prompt], temperature: float, tell: Tell = tell_nobody
    ) -> list[list[int]]:
        """What follows each prompt; those of one length are run together, without padding."""
        shapes = [(len(prompt.ids), prompt.tokens) for prompt in prompts]
        found = dict[int, list[int]]()
        for shape in sorted(set(shapes)):
            places = [i for i, other in enumerate(shapes) if other == shape]
            rows = written(self.hf, self.device, [prompts[i] for i in places], temperature)
            found.update(zip(places, rows, strict=True))
        return [found[i] for i in range(len(prompts))]

    def stats_of(self, hidden_NX: Tensor, targets: Sequence[NDArray[np.int64]]) -> list[TokenStats]:
        """Each text's statistics of its `targets`, from the states before them, all in a row."""
        targets_N = torch.from_numpy(np.concatenate(targets)).to(self.device)
        ends = np.cumsum([len(tokens) for tokens in targets])[:-1]
        pieces = [np.split(column, ends) for column in self.columns(hidden_NX, targets_N)]
        return [TokenStats(*each) for each in zip(*pieces, strict=True)]

    def columns(self, hidden_NX: Tensor, targets_N: Tensor) -> list[NDArray[Any]]:
        """The five statistics (N,)."""
        found = self.statistics(hidden_NX, targets_N)
        *floats, top_id = (column.cpu().numpy() for column in found)
        return [*floats, top_id.astype(np.int32)]

    def hidden(self, ids_BT: Tensor) -> Tensor:
        """The last hidden states (B, T, X); no mask, so the padding must be on the right.

        A causal model's row never reads what stands to its right.
        """
        return self.states(input_ids=ids_BT, use_cache=False)[0]

    def states(self, **inputs: Any) -> tuple[Tensor, Any]:
        """The last hidden states of a forward on these inputs, and its keys and values."""
        output = (self.hf.base_model if self.head else self.hf)(**inputs)
        states: Tensor = output[0] if self.head else output.logits
        return states, getattr(output, "past_key_values", None)


def load_causal_lm(
    field: str, path: str, settings: DetectionConfig, *, trust_remote_code: bool
) -> CausalLM:
    """The model on its device, or on all devices as `detection.device_map` says."""
    load = partial(load_model, field, path, settings.dtype, trust_remote_code=trust_remote_code)
    if settings.device_map is not None:
        return CausalLM(load(device_map=settings.device_map), settings.kernel)
    return CausalLM(load().to(chosen_device(settings.device)), settings.kernel)


def chosen_device(name: str) -> torch.device:
    """The device of this name (`detection.device`)."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"detection.device is {name!r}: torch sees no CUDA device. Give cpu.")
    return torch.device(name)
