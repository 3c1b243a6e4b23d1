"""The head's logits and the fused kernel, against the model's own and a float64 loop."""

import logging
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from contamination.detection.models import head as heads
from contamination.detection.models import kernel, token_statistics
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.head import Head
from contamination.detection.models.kernel import CHECKED_ROWS, CheckedStatistics, choose_statistics
from contamination.detection.passes import NUMBERS
from tests.detection import naive
from tests.rounding import FORWARD

SIZES = {
    "vocab_size": 70, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0,
    "initializer_range": 1.0,
}  # fmt: skip
OWN = {
    "Gemma2": {"final_logit_softcapping": 4.0}, "Cohere": {"logit_scale": 0.3},
    "Granite": {"logits_scaling": 7.0}, "Llama": {}, "HyperCLOVAX": {"logits_scaling": 0.3},
    "RecurrentGemma": {"logits_soft_cap": 4.0, "lru_width": 16, "attention_window_size": 64},
}  # fmt: skip
ROWS = [[1, 2, 3, 60, 5], [7, 69, 9]]
ON_A_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """70 entries are three blocks of the vocabulary."""
    for module in (heads, kernel, token_statistics):
        monkeypatch.setattr(module, "BLOCK", 32)


def tiny(name):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **OWN[name])
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
@pytest.mark.parametrize("name", OWN)
def test_a_cap_and_a_scale_are_the_models_own(name, device):
    net = tiny(name)
    model = CausalLM(net.to(device))
    assert model.head.is_linear
    own = OWN[name]
    assert model.head.cap == own.get("final_logit_softcapping", own.get("logits_soft_cap"))
    assert (model.head.scale != 1) == (name in ("Cohere", "Granite", "HyperCLOVAX"))
    found = model.score(ROWS)
    double = net.cpu().double()
    for ids, stats in zip(ROWS, found, strict=True):
        for number in NUMBERS:
            expected = [row[number] for row in naive.token_rows(double, ids)]
            np.testing.assert_allclose(getattr(stats, number), expected, rtol=1e-4, atol=FORWARD)


def test_a_head_with_a_scale_of_its_own_is_asked_for_logits():
    net = tiny("Llama")
    net.lm_head.register_forward_hook(lambda _, __, logits: logits * 2)
    model = CausalLM(net)
    assert not model.head.is_linear
    (stats,) = model.score(ROWS[:1])
    expected = [row["logprob"] for row in naive.token_rows(net, ROWS[0])]
    np.testing.assert_allclose(stats.logprob, expected, rtol=1e-4, atol=FORWARD)


def test_a_model_that_makes_its_logits_in_16_bits_says_so(caplog):
    net = tiny("Llama").bfloat16()
    net.lm_head.register_forward_hook(lambda _, __, logits: logits * 2)
    with caplog.at_level(logging.WARNING):
        CausalLM(net)
        CausalLM(tiny("Llama").bfloat16())
    assert [r.getMessage() for r in caplog.records] == [
        "LlamaForCausalLM computes its logits itself, in torch.bfloat16."
    ]


def test_hidden_states_of_another_type_than_the_head_are_cast():
    """A residual stream in float32, as of Mamba."""
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=70, hidden_size=16, num_hidden_layers=1, state_size=4, residual_in_fp32=True
    )
    net = transformers.MambaForCausalLM(config).eval().bfloat16()
    model = CausalLM(net)
    assert model.head.is_linear
    (stats,) = model.score(ROWS[:1])
    with torch.inference_mode():
        logits = net(torch.tensor(ROWS[:1])).logits[0, :-1].double()
    found = logits.log_softmax(-1).gather(1, torch.tensor(ROWS[0][1:])[:, None])[:, 0]
    np.testing.assert_allclose(stats.logprob, found, rtol=0.02)


def linear(vocabulary, units, dtype, device, bias=False):
    made = torch.nn.Linear(units, vocabulary, bias=bias)
    torch.nn.init.normal_(made.weight, std=0.4)
    return made.to(device, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
def test_logits_of_16_bit_weights_are_not_rounded(dtype, device):
    made, hidden = linear(70, 48, dtype, device, bias=True), torch.randn(3, 48).to(device, dtype)
    with torch.inference_mode():
        logits = torch.cat([*Head(made).logits(hidden)], dim=1).cpu()
        expected = torch.nn.functional.linear(
            *(t.cpu().double() for t in (hidden, made.weight, made.bias))
        )
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def fused(device):
    """The kernel: on the GPU, or as Triton's interpreter runs it (see tests/conftest.py)."""
    if device == "cpu":
        pytest.importorskip("triton", "3.9", reason="Triton 3.9 is not installed")
        if os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("Triton does not interpret: pytest -m gpu runs the kernel")
    from contamination.detection.models import fused_head

    return fused_head.fused_statistics


CASES = {
    "plain": (70, 24, False, 1.0, None), "bias": (300, 64, True, 1.0, None),
    "capped": (200, 33, False, 1.0, 3.0), "scaled": (129, 16, True, 0.3, None),
}  # fmt: skip
INTERPRETED = ("float32", "float16")  # the interpreter's product of bfloat16 is wrong
ON_GPUS = (pytest.param("cuda", k, marks=pytest.mark.gpu) for k in (*INTERPRETED, "bfloat16"))
KINDS = [*(("cpu", kind) for kind in INTERPRETED), *ON_GPUS]


@pytest.mark.parametrize(("device", "dtype"), KINDS)
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_gives_the_statistics_of_the_logits(fused, device, dtype, case, monkeypatch):
    monkeypatch.setitem(fused.__globals__, "PROGRAMS", 2)  # some take several blocks
    torch.manual_seed(0)
    vocabulary, units, bias, scale, cap = CASES[case]
    kind = getattr(torch, dtype)
    head = Head(linear(vocabulary, units, kind, device, bias), scale, cap)
    hidden, targets = torch.randn(5, units).to(device, kind), torch.randint(vocabulary, (5,))
    with torch.inference_mode():
        for part in (head.module.weight, head.module.bias)[: 1 + bias]:
            ties = [0, 3, 40, 60, 68, vocabulary - 1]  # in a block, of two, of two programs
            part[ties] = (4 * part[60]).round() / 4  # equal whatever the order of sums
        hidden[0] = hidden[1] = head.module.weight[60]
        expected = kernel.plain_statistics(head, vocabulary, hidden, targets)
        found = fused(head, hidden, targets)
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=FORWARD)
    assert found[4][0] == 0


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("device", ["cpu", ON_A_GPU])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_the_kernel_makes_nan_of_what_is_not_finite(fused, device, value):
    made = linear(200, 16, torch.float32, device)
    with torch.inference_mode():
        made.weight[150] = value
        found = fused(Head(made), torch.ones(2, 16, device=device), torch.tensor([1, 2]))
    assert found[1].isnan().all()


def test_without_a_gpu_logits_are_made():
    assert not isinstance(choose_statistics(Head(linear(70, 16, torch.float32, "cpu")), 70, "auto"),
                          CheckedStatistics)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_kernel_is_for_16_bit_heads(dtype, monkeypatch):
    fused_head = SimpleNamespace(fused_statistics=kernel.plain_statistics)  # without Triton
    monkeypatch.setitem(sys.modules, "contamination.detection.models.fused_head", fused_head)
    module = SimpleNamespace(weight=SimpleNamespace(is_cuda=True, dtype=getattr(torch, dtype)))
    chosen = choose_statistics(SimpleNamespace(is_linear=True, module=module), 70, "auto")
    assert isinstance(chosen, CheckedStatistics) == (dtype != "float32")


@pytest.mark.parametrize("wrong", [[torch.ones(3)] * 5, RuntimeError("no sm_90")])
def test_a_kernel_that_is_wrong_or_fails_is_not_used_and_that_is_said_once(wrong, caplog):
    kernel._warn_of_plain_logits.cache_clear()
    calls, right = [], [torch.zeros(3)] * 5

    def fused(*given):
        calls.append(given)
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    rows = torch.zeros(3, 1), torch.zeros(3)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            chosen = CheckedStatistics(fused, lambda *_: right)
            assert chosen(*rows) is right
            assert chosen(*rows) is right
    assert len(calls) == 2
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("detection.kernel: ")


def test_a_kernel_that_is_wrong_of_many_rows_only_is_not_used():
    def wrong_of_many(_, targets):
        return [torch.full((len(targets),), float(len(targets) > CHECKED_ROWS))] * 5

    chosen = CheckedStatistics(wrong_of_many, lambda _, targets: [torch.zeros(len(targets))] * 5)
    for _ in range(2):
        assert not chosen(torch.zeros(3 * CHECKED_ROWS, 1), torch.zeros(3 * CHECKED_ROWS))[0].any()


def test_a_kernel_that_agrees_is_used():
    right, more = [torch.zeros(3)] * 5, [torch.zeros(3) + 1e-5] * 5
    rows = torch.zeros(3, 1), torch.zeros(3)
    chosen = CheckedStatistics(lambda *_: more, lambda *_: right)
    assert chosen(*rows) is more
    full = CheckedStatistics(
        lambda *_: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError()), lambda *_: right
    )
    with pytest.raises(torch.cuda.OutOfMemoryError):
        full(*rows)
    assert full.chosen is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_16_bit_model_on_a_gpu_uses_the_kernel_and_its_setting_turns_it_off(dtype):
    net = tiny("Llama").to("cuda", getattr(torch, dtype))
    usual, plain = CausalLM(net), CausalLM(net, kernel="plain")
    for one, other in zip(usual.score(ROWS), plain.score(ROWS), strict=True):
        for number in NUMBERS:
            np.testing.assert_allclose(
                getattr(one, number), getattr(other, number), rtol=1e-5, atol=FORWARD
            )
    assert isinstance(usual.statistics, CheckedStatistics) == (dtype == "bfloat16")
    if dtype == "bfloat16":
        assert usual.statistics.chosen is usual.statistics.fused
    assert not isinstance(plain.statistics, CheckedStatistics)
