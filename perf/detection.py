"""What the methods cost over a bare forward: `python perf/detection.py [MODEL_FOLDER]`.

For several models, on the same texts of 256 tokens, in one run, with the repeats interleaved and
medians taken. In multiples of `bare`, the model's own forward over the padded batches with its
logits thrown away:

- pass: the same batches through the runner, to the five statistics of each token (with its goal);
- 4 methods: the pass, and loss, zlib, min_k, min_k_plus_plus scored;
- apart: the same four as four attacks that each run the model;
- by text: the four methods together, a text at a time.

In multiples of the four methods:

- 12: twelve methods that read the text once (with DC-PDD's look-up of token frequencies);
- 12 ref.: twelve of which four compare with a reference as large, whose forward is included: 2 by
  itself, so that its goal is met only to within what a repeat varies by.

In multiples of the ordinary pass (the forward and its statistics). At 128 and 256 wide that takes a
sixth less than when these goals were set. There pac, neighbor and m=1 miss theirs by up to 14%; in
seconds they take what they took, or up to 10% less:

- lengths: the pass over each text at 32, 64, 128 and 256 tokens, which reads the longest alone;
- pac, neighbor: the passes over 6 and 26 versions of each text, here as repeats of the texts; the
  masked language model's own time is left out;
- m=1, m=5: the infilling pass;
- grad: the forward and backward passes of GradNorm, a text at a time, in multiples of the ordinary
  pass a text at a time;
- loop: one ordinary pass for each token, as the published code runs it, as a multiple of the
  infilling pass. It is estimated: a few positions are timed, and multiplied to the text's length;
- peak: MiB above what is held before, by the ordinary pass of all texts at once and the m=5 pass.

A model that is given, and one of 128,256 tokens, gets two of the texts and three repeats: one of
135M parameters takes minutes on two cores. On a CPU; `perf.gpu` is for a GPU.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from contamination.core.models import load_model, load_tokenizer
from contamination.data.texts import longest_extension_indices
from contamination.detection.forward.batches import run_batches, run_sequences, run_single_copies
from contamination.detection.forward.gradients import run_gradient_norms
from contamination.detection.forward.infilling import run_branches, supports_branches
from contamination.detection.methods.base import Method
from contamination.detection.methods.dc_pdd import DcPdd
from contamination.detection.methods.ez_mia import EzMia
from contamination.detection.methods.gap_k import GapK
from contamination.detection.methods.infilling import Infilling
from contamination.detection.methods.loss import Loss
from contamination.detection.methods.lt_mia import LtMia
from contamination.detection.methods.max_k import MaxK
from contamination.detection.methods.mean_only import MeanOnly
from contamination.detection.methods.min_k import MinK
from contamination.detection.methods.min_k_plus_plus import MinKPlusPlus
from contamination.detection.methods.polarized_distance import PolarizedDistance
from contamination.detection.methods.reference import Reference
from contamination.detection.methods.std_only import StdOnly
from contamination.detection.methods.surp import Surp
from contamination.detection.methods.wbc import Wbc
from contamination.detection.methods.zlib import Zlib
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.passes import Copies, Example, Pass
from contamination.detection.views.unigram import look_up_first_occurrences
from perf.timing import median_seconds, peak_memory

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line sets it
sys.path.insert(0, str(Path(__file__).parents[1]))  # else this file hides the package

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
METHODS: list[Method] = [Loss(), Zlib(), MinK(), MinKPlusPlus()]
NINE = [*METHODS, MaxK(), MeanOnly(), GapK(), Surp(), PolarizedDistance()]
TWELVE = [*NINE, StdOnly(), Infilling(m=0), DcPdd(corpus=__file__)]
TWELVE_WITH_REFERENCE = [*NINE[1:], Reference(), EzMia(), Wbc(), LtMia()]
TEXTS, TOKENS = 16, 256
BATCH_TOKENS = 8192
POSITIONS = 4  # of the loop that are timed
GOALS = {
    "pass": "", "goal": "", "4 methods": "", "apart": "≥ 3.45", "by text": "≥ 1.15",
    "12": "≤ 1.1", "12 ref.": "≤ 2", "grad": "≤ 3.2",
    "lengths": "≤ 1.15", "pac": "≤ 6.5", "neighbor": "≤ 27", "m=1": "≤ 2.3", "m=5": "≤ 7.5",
    "loop/m=1": "≥ 100", "loop/m=5": "≥ 35",
}  # fmt: skip


def main() -> None:
    """Measures and prints one line a model."""
    print(f"{torch.get_num_threads()} threads; {TEXTS} texts of {TOKENS} tokens")
    heads = "".join(f"{name:>10}" for name in GOALS)
    print(f"{'model':18}{'bare ms':>9}{heads}  peak MiB (m=5)")
    for name, folder, hf, goal, texts, repeats in iter_models():
        model, rows = CausalLM(hf), sequences_of(folder)[:texts]
        bare, once, *others = measure_seconds(model, rows, repeats)
        ratios = [once, goal, *others]
        memory = peak_memory_text(model, rows)
        print(f"{name:18}{bare * 1e3:9.1f}{''.join(f'{r:10.2f}' for r in ratios)}  {memory}")
        del model, hf
    print(f"{'goal':27}{''.join(f'{goal:>10}' for goal in GOALS.values())}")


def iter_models() -> Any:
    """Name, tokenizer's folder and model: the golden one, random ones, and those given.

    Then the goal of its pass, how many texts it gets, and how often.
    """
    golden = GOLDEN / "target"
    yield "golden, 64 wide", golden, load_model("model.path", str(golden)), 1.25, TEXTS, 7
    for width, goal in ((128, 1.12), (256, 1.08)):
        yield f"random, {width} wide", golden, random_llama(width), goal, TEXTS, 7
    yield "same, 128,256 ids", golden, random_llama(256, 128_256), 1.25, 2, 3
    for given in sys.argv[1:]:
        yield Path(given).name[:17], Path(given), load_model("model.path", given), 1.03, 2, 3


def random_llama(width: int, vocabulary: int = 4096) -> Any:
    """Four layers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=width * 8 // 3,
        num_hidden_layers=4, num_attention_heads=width // 32, num_key_value_heads=width // 64,
        max_position_embeddings=512,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def sequences_of(tokenizer_folder: Path) -> list[list[int]]:
    """The golden file's real texts, one after the other, cut to pieces of one length."""
    examples = json.loads((GOLDEN / "scores.json").read_text())["examples"]
    tokenizer = load_tokenizer("model.path", str(tokenizer_folder))
    row = tokenizer("\n".join(e["text"] for e in examples), verbose=False)["input_ids"]
    row = (row * (TEXTS * TOKENS // len(row) + 1))[: TEXTS * TOKENS]
    return [row[i : i + TOKENS] for i in range(0, len(row), TOKENS)]


def measure_seconds(model: CausalLM, rows: Sequence[Sequence[int]], repeats: int) -> list[float]:
    """Seconds of the bare forward, then the columns."""
    batches = padded_batches(model, rows)
    bare, *ways = median_seconds(
        lambda: run_forward(model.hf, batches),
        lambda: time_versions(model, rows, 1),
        lambda: score_methods(model, rows, METHODS),
        lambda: [score_methods(model, rows, [method]) for method in METHODS],
        lambda: [score_methods(model, [row], METHODS) for row in rows],
        repeats=repeats,
    )
    _, twelve, with_reference = median_seconds(
        lambda: score_methods(model, rows, METHODS),
        lambda: score_methods(model, rows, TWELVE),
        lambda: score_methods(model, rows, TWELVE_WITH_REFERENCE),
        repeats=repeats,
    )
    _, gradient = median_seconds(
        lambda: run_sequences(model, rows, [""] * len(rows), TOKENS),
        lambda: run_gradient_norms(model, rows, [""] * len(rows)),
        repeats=repeats,
    )
    if not supports_branches(model):
        sys.exit(f"{type(model.hf).__name__} takes no branches, so infilling is the loop.")
    _, lengths, pac, neighbor, one, five, few = median_seconds(
        lambda: time_versions(model, rows, 1),
        lambda: time_cut_sequences(model, rows),
        lambda: time_versions(model, rows, 6),
        lambda: time_versions(model, rows, 26),
        lambda: time_infilling(model, rows, 1),
        lambda: time_infilling(model, rows, 5),
        lambda: loop_over_prefixes(model, rows[0]),
        repeats=repeats,
    )
    whole = few * (TOKENS - 1) / POSITIONS * len(rows)
    more = [twelve, with_reference, gradient]
    return [bare, *ways, *more, lengths, pac, neighbor, one, five, whole / one, whole / five]


def peak_memory_text(model: CausalLM, rows: Sequence[Sequence[int]]) -> str:
    """The peaks of the ordinary and of the infilling pass."""
    plain, five = (lambda: model.score(rows)), (lambda: time_infilling(model, rows, 5))
    return f"{peak_memory(plain):.0f} ({peak_memory(five):.0f})"


def padded_batches(model: CausalLM, sequences: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """The runner's own batches, on the model's device."""
    batches: list[torch.Tensor] = []

    def pad(batch: Sequence[Sequence[int]], names: Sequence[str], *_: Any, **__: Any) -> Any:
        rows = [torch.tensor(sequence) for sequence in batch]
        batches.append(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device))
        return names

    run_batches(sequences, [""] * len(sequences), BATCH_TOKENS, pad)
    return batches


@torch.inference_mode()
def run_forward(model: Any, batches: Sequence[torch.Tensor]) -> None:
    """Nothing but the model."""
    for ids in batches:
        model(input_ids=ids, use_cache=False)


def score_methods(
    model: CausalLM, rows: Sequence[Sequence[int]], methods: Sequence[Method]
) -> list[list[float]]:
    """From token ids to the scores of each method, with one forward per model that they read."""
    names = [str(i) for i in range(len(rows))]
    stats: dict[Pass, Sequence[Copies]] = {}
    for wanted in {p for method in methods for p in method.passes}:
        if wanted.view == "unigram":
            log_frequencies = np.full(model.vocabulary, -8, np.float32)
            stats[wanted] = look_up_first_occurrences(
                model, rows, names, log_frequencies=log_frequencies
            )
        else:
            stats[wanted] = run_single_copies(model, rows, names, BATCH_TOKENS)
    examples = [
        Example(name, "a text", {wanted: copies[i] for wanted, copies in stats.items()})
        for i, name in enumerate(names)
    ]
    return [[method.score(example) for example in examples] for method in methods]


def time_versions(model: CausalLM, rows: Sequence[Sequence[int]], n: int) -> None:
    """The ordinary pass over so many versions of each text."""
    run_sequences(model, [*rows] * n, [""] * n * len(rows), BATCH_TOKENS)


def time_cut_sequences(model: CausalLM, rows: Sequence[Sequence[int]]) -> None:
    """The pass over each text at four lengths: each is the beginning of the next."""
    sequences = [row[:n] for row in rows for n in (32, 64, 128, 256)]
    read = sorted({*longest_extension_indices(sequences)})
    run_sequences(model, [sequences[i] for i in read], [""] * len(read), BATCH_TOKENS)


def time_infilling(model: CausalLM, rows: Sequence[Sequence[int]], m: int) -> None:
    """The infilling pass of some texts."""
    run_branches(model, rows, [""] * len(rows), BATCH_TOKENS, m)


def loop_over_prefixes(model: CausalLM, ids: Sequence[int]) -> None:
    """The ordinary pass over the text with one token replaced, for a few tokens."""
    for place in np.linspace(1, len(ids) - 1, POSITIONS).astype(int):
        other = [*ids[:place], (ids[place] + 1) % model.vocabulary, *ids[place + 1 :]]
        model.score([other])


if __name__ == "__main__":
    main()
