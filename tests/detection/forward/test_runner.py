"""Forward passes: batches, order and equality with a float64 loop."""

import math

import numpy as np
import pytest
import torch

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.detection.forward.batches import run_sequences
from contamination.detection.models import causal_lm, token_statistics
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.token_statistics import rows_per_chunk, statistics
from contamination.detection.passes import NUMBERS
from tests.detection import golden, naive
from tests.detection.conftest import tiny_llama
from tests.rounding import FORWARD

SEQUENCES = [e["token_ids"] for e in golden.untied()]
NAMES = [str(i) for i in range(len(SEQUENCES))]


def run(decoder, sequences=SEQUENCES, batch_tokens=8192):
    return run_sequences(decoder, sequences, NAMES[: len(sequences)], batch_tokens)


def assert_close(found, expected, rtol=1e-5):
    for one, other in zip(found, expected, strict=True):
        for field in NUMBERS:
            np.testing.assert_allclose(
                getattr(one, field), getattr(other, field), rtol=rtol, atol=FORWARD
            )


@pytest.fixture(scope="module")
def alone(decoder):
    """Every sequence by itself: no padding at all."""
    return [decoder.score([sequence])[0] for sequence in SEQUENCES]


@pytest.mark.parametrize("batch_tokens", [1, 700, 8192])
def test_batches_change_nothing(decoder, alone, batch_tokens):
    assert_close(run(decoder, batch_tokens=batch_tokens), alone)


def test_order_changes_nothing(decoder, alone):
    order = np.random.default_rng(0).permutation(len(SEQUENCES))
    shuffled = run(decoder, [SEQUENCES[i] for i in order])
    assert_close([shuffled[i] for i in np.argsort(order)], alone)


def test_equals_a_float64_loop(model, alone):
    double = load_model("model.path", str(golden.GOLDEN / "target")).double()
    for sequence, stats in list(zip(SEQUENCES, alone, strict=True))[:6]:
        rows = naive.token_rows(double, sequence)
        assert len(stats) == len(sequence) - 1
        for field in NUMBERS:
            np.testing.assert_allclose(getattr(stats, field), [r[field] for r in rows], rtol=1e-4,
                                       atol=FORWARD)  # fmt: skip


def test_statistics_are_float32_and_ids_int32(alone):
    kinds = {field: getattr(alone[0], field).dtype for field in NUMBERS}
    assert kinds == {f: np.dtype(np.int32 if f == "top_id" else np.float32) for f in NUMBERS}


def test_a_model_that_is_no_known_head_is_scored_from_its_own_logits(model, alone, monkeypatch):
    class Capped(torch.nn.Module):
        """Soft-capped logits, as Gemma 2 has."""

        def __init__(self, inner):
            super().__init__()
            self.inner, self.config = inner, inner.config
            self.base_model = inner.base_model

        def get_output_embeddings(self):
            return self.inner.get_output_embeddings()

        def forward(self, input_ids, use_cache):
            output = self.inner(input_ids=input_ids, use_cache=use_cache)
            output.logits = 5 * torch.tanh(output.logits / 5)
            return output

        __call__ = torch.nn.Module.__call__

    plain, capped = CausalLM(model), CausalLM(Capped(model))
    assert plain.head is not None
    assert capped.head is None
    rows = naive.token_rows(capped.hf, SEQUENCES[0])
    (stats,) = capped.score([SEQUENCES[0]])
    np.testing.assert_allclose(stats.logprob, [r["logprob"] for r in rows], rtol=1e-4, atol=FORWARD)
    monkeypatch.setattr(causal_lm, "find_verified_head", lambda *_: None)
    assert_close(run(CausalLM(model)), alone)


def test_a_vocabulary_that_no_block_divides():
    net = tiny_llama()
    net.resize_token_embeddings(997)
    net.eval()
    (stats,) = CausalLM(net).score([[1, 5, 996, 3]])
    rows = naive.token_rows(net.double(), [1, 5, 996, 3])
    np.testing.assert_allclose(stats.mean, [r["mean"] for r in rows], rtol=1e-4)
    assert stats.top_id.tolist() == [r["top_id"] for r in rows]


@pytest.mark.parametrize("block", [64, 80, 192])
def test_statistics_of_ties_and_of_nearly_certain_tokens_are_a_loops(block, monkeypatch):
    """Of equal logits the first is the top token; σ is floored where float32 sees none at all."""
    torch.manual_seed(0)
    rows = torch.zeros(10, 192).double()
    rows[0, [70, 71, 130]] = 9.0  # within a block of 64 and across two
    rows[1, [3, 190]] = 5.0
    rows[2, 100] = 15.0
    rows[3, 7] = 25.0
    rows[4, 7] = 1e4
    rows[5:] = (3 * torch.randn(5, 192)).float()  # no block is without a share
    targets = torch.tensor([71, 3, 100, 8, 7, 0, 63, 64, 80, 191])  # the blocks' edges among them
    monkeypatch.setattr(token_statistics, "BLOCK", block)
    found = statistics([part.float().split(block, 1) for part in rows.split(4)], targets)
    for t, (row, target) in enumerate(zip(rows.tolist(), targets.tolist(), strict=True)):
        total = math.log(math.fsum(math.exp(v - max(row)) for v in row)) + max(row)
        logp = [v - total for v in row]
        p = [math.exp(v) for v in logp]
        mean = math.fsum(a * b for a, b in zip(p, logp, strict=True))
        std = math.sqrt(math.fsum(a * (b - mean) ** 2 for a, b in zip(p, logp, strict=True)))
        expected = [logp[target], mean, max(std, 1e-6), max(logp), row.index(max(row))]
        assert [float(part[t]) for part in found] == pytest.approx(expected, rel=1e-3, abs=2e-6)
    assert float(found[2][4]) == pytest.approx(1e-6, rel=1e-3)
    assert 1e-6 < float(found[2][3]) < 1e-2 < float(found[2][2])


@pytest.mark.parametrize(
    ("device", "vocabulary", "rows"),
    [("cpu", 511, 4104), ("cpu", 4096, 512), ("cpu", 100_003, 512), ("cuda", 100_003, 32_768)],
)
def test_rows_fill_the_memory_that_they_may_take(device, vocabulary, rows):
    """Of float32 8 MiB on a CPU, 512 MiB on an accelerator."""
    assert rows_per_chunk(vocabulary, torch.device(device)) == rows


def test_a_certain_distribution_has_a_std_above_zero():
    net = tiny_llama().eval()
    with torch.no_grad():
        net.lm_head.weight.mul_(1e6)
    (stats,) = CausalLM(net).score([[1, 5, 7, 9]])
    assert (stats.std > 0).all()
    assert np.isfinite((stats.logprob - stats.mean) / stats.std).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_name_the_text(value):
    net = tiny_llama().eval()
    with torch.no_grad():
        net.lm_head.weight[3] = value
    with pytest.raises(DataError, match="text bad.*NaN or infinite"):
        run_sequences(CausalLM(net), [[1, 5, 7]], ["bad"], 64)


def test_out_of_memory_halves_the_batches_and_changes_nothing(decoder, alone, monkeypatch):
    sizes, stats = [], CausalLM.score

    def small(model, sequences, on_progress=None):
        sizes.append(len(sequences) * len(sequences[0]))
        if sizes[-1] > 1000:
            raise torch.cuda.OutOfMemoryError("no memory")
        return stats(model, sequences)

    monkeypatch.setattr(CausalLM, "score", small)
    assert_close(run(decoder), alone)
    assert sizes[0] > 4000
    assert all(size <= 1000 for size in sizes[4:])


def test_a_text_that_does_not_fit_alone_is_named(decoder, monkeypatch):
    def never(model, sequences, on_progress=None):
        raise torch.cuda.OutOfMemoryError("no memory")

    monkeypatch.setattr(CausalLM, "score", never)
    with pytest.raises(ConfigError, match="text 0 of 3 tokens does not fit"):
        run(decoder, [[1, 2, 3]])


def test_bfloat16_is_close(golden_folder, alone):
    half = CausalLM(load_model("model.path", str(golden_folder), "bfloat16"))
    found = half.score(SEQUENCES[:2])
    assert abs(found[0].logprob.mean() - alone[0].logprob.mean()) < 0.02
