"""Checks of the one-run bound: against another implementation, without a leak, and with DP-SGD.

    python -m perf.one_run jax
    python -m perf.one_run clean RUNS [draws, 200]
    python -m perf.one_run dp RUNS [draws, 20] [ε, 4]

jax-privacy (for *jax*) and opacus (for *dp*) are no requirements of this project: add them to an
environment of their own. RUNS has a report of experiment=reference_attack.

*jax*: p-values and ε of 3,000 random counts, compared with jax-privacy's one-run audit.

*clean*: the model before the contaminated training, which saw no example. Coins are drawn anew.
Wanted: ε = 0 in at least 95% of the draws.

*dp*: the same model is trained further by DP-SGD: on each member as a sequence of its own, by a new
coin each time, and on as many sequences of the corpus as there are examples. Opacus clips each
sequence's gradient, adds noise and samples by Poisson's rule, so the training is (ε, δ)-private for
a sequence, and a coin moves one sequence. Wanted: no bound above ε. The same training without noise
and clipping shows what the attack can find.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contamination.audits.one_run_bound.guesses import (
    AttackScores,
    GuessRule,
    OneRunBound,
    bound,
)
from contamination.audits.one_run_bound.one_run_epsilon import one_run_epsilon, one_run_p_value

if TYPE_CHECKING:
    import torch

    from contamination.audits.cells import AuditedCell

Numbers = NDArray[Any]
CONFIDENCE, DELTA, SHARE = 0.95, 1e-5, 0.25
BATCH, STEPS, RATE, CLIP = 64, 60, 4e-3, 1.0
TOKENS = 96


def jax(trials: str = "3000") -> None:
    """Print how far p-values and ε are from jax-privacy's."""
    from jax_privacy import auditing

    rng = np.random.default_rng(0)
    differing, farthest, of_epsilon = 0, 0.0, 0.0
    for _ in range(int(trials)):
        examples = int(rng.integers(2, 2000))
        guesses = int(rng.integers(0, examples + 1))
        correct = int(rng.integers(0, guesses + 1))
        epsilon, delta = float(rng.exponential(1.5)), float(10 ** -rng.uniform(2, 9))
        counts = examples, guesses, correct
        ours = one_run_p_value(*counts, epsilon, delta)
        theirs = auditing._one_run_p_value(*counts, epsilon, delta)
        differing += ours != theirs
        farthest = max(farthest, abs(ours - theirs))
        bound = one_run_epsilon(*counts, delta, CONFIDENCE)
        other = auditing._epsilon_one_run(0.0, *counts, 1 - CONFIDENCE, delta)
        of_epsilon = max(of_epsilon, abs(bound - other))
    print(f"{trials} p-values: {differing} differ, by {farthest:g} at most")
    print(f"{trials} bounds on ε: they differ by {of_epsilon:.2g} at most")


def clean(runs: str, draws: str = "200") -> None:
    """Print in how many draws of the coins the clean model has a bound above 0."""
    from contamination.analysis.cells import CLEAN

    cell = _first_cell(runs).cell
    benchmarks = cell.examples["benchmark"].to_numpy(str)
    print("| attack | guessed | draws | ε = 0 | largest ε | mean p |\n|---|---|---|---|---|---|")
    for method, variant in cell.scores[CLEAN]:
        for share in (0.1, SHARE, 1.0):
            rng, name = np.random.default_rng(0), f"{method} {variant}".strip()
            scores = AttackScores(name, cell.scores[CLEAN][method, variant].to_numpy(), benchmarks)
            bounds = [
                bound(GuessRule(name, share), scores, rng.random(len(benchmarks)) < 0.5, DELTA,
                      CONFIDENCE)
                for _ in range(int(draws))
            ]  # fmt: skip
            zero = sum(lower_bound.epsilon == 0 for lower_bound in bounds)
            largest = max(lower_bound.epsilon for lower_bound in bounds)
            mean = np.mean([lower_bound.p_value for lower_bound in bounds])
            print(f"| {name} | {share:.0%} | {draws} | {zero} ({zero / int(draws):.1%}) "
                  f"| {largest:.3f} | {mean:.2f} |", flush=True)  # fmt: skip


def dp(runs: str, draws: str = "20", epsilon: str = "4") -> None:
    """Print the bound of each draw, with DP-SGD and without noise."""
    audited = _first_cell(runs)
    start = _start_model(audited.paths.model)
    texts = audited.cell.examples["text"].tolist()
    tokenizer, corpus = audited.corpus.tokenizer, audited.corpus
    sequences = [tokenizer.encode(text)[:TOKENS] for text in texts]
    blocks = np.concatenate([*corpus.iter_blocks()])[: len(texts), :TOKENS]
    clean = [block.tolist() for block in blocks]
    benchmarks = audited.cell.examples["benchmark"].to_numpy(str)
    print(
        f"δ = {DELTA:g}; {len(texts)} coins; batches of {BATCH}, {STEPS} steps; one sequence each"
    )
    print(
        "| training | draw | ε of the training | bound | right of guesses |\n|---|---|---|---|---|"
    )
    for target in (float(epsilon), None):
        over = 0
        for draw in range(int(draws) if target else 3):
            member = np.random.default_rng(draw).random(len(texts)) < 0.5
            chosen = [s for s, is_in in zip(sequences, member, strict=True) if is_in]
            spent, before, after = _train(start, [*chosen, *clean], sequences, target, draw)
            lower_bound = _bound(after - before, benchmarks, member)
            over += lower_bound.epsilon > spent
            name, right = (
                "DP-SGD" if target else "no noise",
                f"{lower_bound.correct} of {lower_bound.guesses}",
            )
            print(
                f"| {name} | {draw} | {spent:.2f} | {lower_bound.epsilon:.2f} | {right} |",
                flush=True,
            )
        print(f"bounds above the ε of the training: {over}")


def _bound(scores: Numbers, benchmarks: Numbers, member: Numbers) -> OneRunBound:
    name = "loss less the start's"
    return bound(
        GuessRule(name, SHARE), AttackScores(name, scores, benchmarks), member, DELTA, CONFIDENCE
    )


def _first_cell(runs: str) -> AuditedCell:
    from contamination.audits.cells import open_cells

    report = sorted(Path(runs).glob("report/reference-attack-*"))[-1]
    return open_cells("cells", str(report))[0]


def _start_model(path: str) -> str:
    """Returns the folder of the model from which the cell's training started."""
    from contamination.training.trained_model import open_checkpoint

    return str(open_checkpoint(open_checkpoint(path).config["model"]["path"]).hf)


def _train(
    start: str,
    data: Sequence[list[int]],
    scored: Sequence[list[int]],
    epsilon: float | None,
    seed: int,
) -> tuple[float, Numbers, Numbers]:
    """Returns the training's ε, and the texts' mean log-probabilities before and after it."""
    import torch
    from opacus import PrivacyEngine
    from opacus.accountants.utils import get_noise_multiplier
    from transformers import AutoModelForCausalLM

    warnings.filterwarnings("ignore")
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(start, attn_implementation="eager")
    before = _log_probabilities(model, scored)
    model.train()
    dataset = torch.utils.data.TensorDataset(_padded(data))
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH)
    rate = 1 / len(loader)
    noise = 0.0 if epsilon is None else get_noise_multiplier(
        target_epsilon=epsilon, target_delta=DELTA, sample_rate=rate, steps=STEPS, accountant="prv"
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    engine = PrivacyEngine(accountant="prv")
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=noise,
        max_grad_norm=CLIP if epsilon else 1e6, poisson_sampling=True,
    )  # fmt: skip
    step = 0
    while step < STEPS:
        for (ids,) in loader:
            if step == STEPS:
                break
            optimizer.zero_grad()
            if len(ids):
                loss = _mean_losses(private, ids).mean()
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1
    spent = float("inf") if epsilon is None else engine.get_epsilon(DELTA)
    return spent, before, _log_probabilities(model, scored)


def _padded(sequences: Sequence[list[int]]) -> torch.Tensor:
    """Returns the sequences as one tensor, with −1 after their ends."""
    import torch

    ids = torch.full((len(sequences), TOKENS), -1)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence)
    return ids


def _mean_losses(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Returns the mean loss of each sequence (nats per token)."""
    import torch

    logits = model(input_ids=ids.clamp(min=0), use_cache=False).logits[:, :-1]
    targets = ids[:, 1:]
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), targets, ignore_index=-1, reduction="none"
    )
    return losses.sum(dim=1) / (targets >= 0).sum(dim=1).clamp(min=1)


def _log_probabilities(model: Any, sequences: Sequence[list[int]]) -> Numbers:
    import torch

    model.eval()
    with torch.no_grad():
        parts = [_mean_losses(model, ids) for ids in torch.split(_padded(sequences), 200)]
    return -torch.cat(parts).double().numpy()


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"jax": jax, "clean": clean, "dp": dp}
    commands[sys.argv[1]](*sys.argv[2:])
