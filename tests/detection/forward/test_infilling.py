"""The infilling pass and its score against the golden file and against a forward for each token."""

import logging
import math

import numpy as np
import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.detection.config import DetectionConfig
from contamination.detection.forward import batches
from contamination.detection.forward import infilling as forward
from contamination.detection.forward.infilling import (
    branch_mask,
    make_branches,
    run_branches,
    run_infill,
    run_naive,
    supports_branches,
)
from contamination.detection.methods.infilling import Infilling
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.hf_model import HFModel
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import NUMBERS, ORIGINAL, Example, Pass
from tests.detection import golden, naive
from tests.rounding import FORWARD
from tests.scoring import score_text

SEQUENCES = [e["token_ids"] for e in golden.untied()]
SHORTEST = sorted(SEQUENCES, key=len)[:3]
SMALL = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def infill(decoder, sequences, future, batch_tokens=8192):
    return run_infill(decoder, sequences, list(map(str, sequences)), batch_tokens, future)


def score(method, decoder, ids):
    (copies,) = infill(decoder, [ids], dict(method.passes[0].parameters)["future"])
    return method.score(Example("x", "", {method.passes[0]: copies}))


def loop(model, ids, m, k):
    """The definition: a whole float64 forward for each token."""

    def z(row):
        return (row["logprob"] - row["mean"]) / row["std"]

    rows, ratios = naive.token_rows(model, ids), []
    for i, row in enumerate(rows):
        other = naive.token_rows(model, [*ids[: i + 1], row["top_id"], *ids[i + 2 :]])
        last = min(i + m, len(rows) - 1)
        change = sum(z(rows[j]) - z(other[j]) for j in range(i + 1, last + 1))
        ratios.append(z(row) - (row["top_logprob"] - row["mean"]) / row["std"] + change)
    return naive.lowest(ratios, k)


def assert_close(found, expected, rtol=2e-5):
    for copies, others in zip(found, expected, strict=True):
        for one, other in zip(copies, others, strict=True):
            for field in NUMBERS:
                np.testing.assert_allclose(
                    getattr(one, field), getattr(other, field), rtol=rtol, atol=FORWARD
                )


def randomly(kind, config):
    torch.manual_seed(0)
    net = kind(config).eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(3)  # else every distribution is nearly uniform
    return net


@pytest.fixture(scope="module")
def double():
    return load_model("model.path", str(golden.GOLDEN / "target")).double()


@pytest.fixture(scope="module")
def golden_passes(tmp_path_factory):
    """The methods' scores over the golden texts; every number of m from the pass of the largest."""
    models = {"target": HFModel.from_path("model.path", str(golden.GOLDEN / "target"))}
    runs, settings = tmp_path_factory.mktemp("runs"), DetectionConfig(device="cpu")
    collector = Collector(runs, models, golden.texts(), settings)
    return collector.collect([ORIGINAL, Pass(view="infill", future=10)])


@pytest.mark.parametrize("m", [0, 1, 5, 10])
def test_equals_the_float64_golden_scores(golden_passes, m):
    method, largest = Infilling(m=m), Pass(view="infill", future=10)
    passes = {wanted: golden_passes[largest if m else ORIGINAL] for wanted in method.passes}
    for place, text in enumerate(golden.texts()):
        found = score_text(method, text, passes)
        assert golden.relative_error(f"infilling_m{m}_k0.2", place, found) <= 1e-4


@pytest.mark.parametrize("m", [1, 5, "all"])
def test_equals_a_float64_loop(decoder, double, m):
    ids = SHORTEST[0]
    expected = loop(double, ids, len(ids) if m == "all" else m, 0.3)
    assert score(Infilling(m=m, k=0.3), decoder, ids) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("queries", [1, 7, 256])
def test_branches_equal_a_forward_for_each_token(decoder, monkeypatch, queries):
    monkeypatch.setattr("contamination.detection.forward.infilling.QUERIES", queries)
    for m in (1, 3, "all"):
        arguments = (decoder, SHORTEST, ["a", "b", "c"], 2000, m)
        assert_close(run_branches(*arguments), run_naive(*arguments))


@pytest.mark.parametrize("run", [run_branches, run_naive])
def test_who_looks_on_is_told_row_by_row(decoder, monkeypatch, run):
    monkeypatch.setattr("contamination.detection.forward.infilling.QUERIES", 7)
    told = []
    run(decoder, SHORTEST, ["a", "b", "c"], 100, 3, on_progress=lambda *now: told.append(now))
    done = [now[0] for now in told]
    assert len(done) > 2
    assert done == sorted(done)
    assert told[-1][0] == told[-1][1]


def test_batches_and_order_change_nothing(decoder):
    sequences = [*SEQUENCES[:8], [1, 5], [1, 5, 7]]
    alone = [infill(decoder, [sequence], 3)[0] for sequence in sequences]
    assert_close(infill(decoder, sequences, 3), alone)
    assert_close(infill(decoder, sequences[::-1], 3, batch_tokens=300)[::-1], alone)


def test_a_larger_m_holds_every_smaller(decoder):
    (most,), (few,) = (infill(decoder, SHORTEST[:1], m) for m in ("all", 2))
    assert [len(copy) for copy in most] == list(range(len(SHORTEST[0]) - 1, 0, -1))
    assert_close([most[:3]], [few])


def test_copy_0_is_the_text_and_a_kept_token_changes_nothing(decoder):
    ids = SHORTEST[1]
    (copies,), (plain,) = infill(decoder, [ids], 5), decoder.score([ids])
    assert_close([copies[:1]], [[plain]])
    kept = np.flatnonzero(plain.top_id == ids[1:])[:-5]
    assert len(kept) > 2
    for j, copy in enumerate(copies):
        np.testing.assert_array_equal(copy.logprob[kept], copies[0].logprob[kept + j])
    assert score(Infilling(m=5, k=1.0), decoder, ids) != 0


def test_a_text_of_the_models_own_choices_scores_0(decoder):
    ids = [1]
    for _ in range(9):
        ids.append(int(decoder.score([[*ids, 0]])[0].top_id[-1]))
    assert score(Infilling(m=3), decoder, ids) == 0


def test_a_text_of_two_tokens_has_no_future(decoder):
    (copies,) = infill(decoder, [[1, 5]], 5)
    assert [len(copy) for copy in copies] == [1]
    assert score(Infilling(), decoder, [1, 5]) == pytest.approx(
        (copies[0].logprob[0] - copies[0].top_logprob[0]) / copies[0].std[0]
    )
    assert math.isfinite(score(Infilling(m="all"), decoder, [1, 5, 7]))


def test_a_branch_sees_its_prefix_and_itself():
    text = make_branches([9, 8, 7, 6], np.array([1, 7, 2]), future=2)
    assert text.ids.tolist() == [1, 7]  # token 2 is kept, and nothing follows token 3
    assert text.targets.tolist() == [7, 6]
    mask = branch_mask(torch.tensor([[1, 1, 2]]), 2, torch.float32)[0, 0]
    assert (mask == 0).int().tolist() == [[1, 0, 1, 0, 0], [1, 0, 1, 1, 0], [1, 1, 0, 0, 1]]


CACHED = {
    "grouped queries": lambda: randomly(LlamaForCausalLM, LlamaConfig(**SMALL, **HEADS)),
    "eager attention": lambda: randomly(
        LlamaForCausalLM, LlamaConfig(**SMALL, **HEADS, attn_implementation="eager")
    ),
    "learned positions": lambda: randomly(
        GPT2LMHeadModel, GPT2Config(vocab_size=512, n_embd=32, n_layer=2, n_head=2)
    ),
    "parallel residual": lambda: randomly(
        GPTNeoXForCausalLM, GPTNeoXConfig(**SMALL, num_attention_heads=2)
    ),
    "a wide window": lambda: randomly(
        MistralForCausalLM, MistralConfig(**SMALL, **HEADS, sliding_window=64)
    ),
    "soft caps": lambda: randomly(
        Gemma2ForCausalLM, Gemma2Config(**SMALL, **HEADS, head_dim=8, sliding_window=64)
    ),
}
LOOPED = {
    "biases for positions": lambda: randomly(
        BloomForCausalLM, BloomConfig(vocab_size=512, hidden_size=32, n_layer=2, n_head=2)
    ),
    "a narrow window": lambda: randomly(
        MistralForCausalLM, MistralConfig(**SMALL, **HEADS, sliding_window=16)
    ),
}


@pytest.mark.parametrize("name", [*CACHED, *LOOPED])
def test_every_model_equals_the_loop(name, caplog):
    net = {**CACHED, **LOOPED}[name]()
    decoder = CausalLM(net)
    ids = np.random.default_rng(0).integers(512, size=24).tolist()
    with caplog.at_level(logging.WARNING):
        (copies,) = infill(decoder, [ids, ids[:9]], 3)[:1]
    assert ("cost a forward for each token" in caplog.text) is (name in LOOPED)
    found = Infilling(m=3).score(Example("x", "", {Pass(view="infill", future=3): copies}))
    assert found == pytest.approx(loop(net.double(), ids, 3, 0.2), rel=1e-3)


def test_the_warning_states_the_cost(caplog):
    decoder = CausalLM(LOOPED["a narrow window"]())
    infill(decoder, [list(range(20)), list(range(30)), [1, 2, 3]], 1)
    assert "window. 2 of 3 texts cost a forward for each token, up to 48 in all" in caplog.text


def test_a_wrong_cache_or_mask_is_found_out(decoder, monkeypatch):
    assert supports_branches(decoder)
    monkeypatch.setattr(
        "contamination.detection.forward.infilling.branch_mask",
        lambda start, prefix, dtype: torch.zeros(
            len(start), 1, start.shape[1], prefix + start.shape[1]
        ),
    )
    assert not supports_branches(decoder)


def test_bfloat16_takes_branches(golden_folder):
    assert supports_branches(CausalLM(load_model("model.path", str(golden_folder), "bfloat16")))


def test_logits_that_are_not_finite_name_the_text():
    net = randomly(LlamaForCausalLM, LlamaConfig(**SMALL, **HEADS))
    with torch.no_grad():
        net.lm_head.weight[3] = float("nan")
    with pytest.raises(DataError, match="text bad.*NaN or infinite"):
        run_infill(CausalLM(net), [[1, 5, 7]], ["bad"], 64, 1)


def test_out_of_memory_halves_the_batches_and_changes_nothing(decoder, monkeypatch):
    expected, sizes = infill(decoder, SHORTEST, 2), []

    def small(decoder, sequences, names, batch_tokens, future, **_):
        sizes.append(batch_tokens)
        if batch_tokens > 1100:
            raise torch.cuda.OutOfMemoryError("no memory")
        return run_branches(decoder, sequences, names, batch_tokens, future)

    monkeypatch.setattr(forward, "supports_branches", lambda decoder: True)
    monkeypatch.setattr(forward, "run_branches", small)
    assert_close(infill(decoder, SHORTEST, 2), expected)
    assert sizes == [8192, 4096, 2048, 1024]
    monkeypatch.setattr(batches, "MIN_PIECE_TOKENS", 2000)
    with pytest.raises(ConfigError, match=r"text \[1, .* does not fit .* pieces of 2000"):
        infill(decoder, SHORTEST, 2, batch_tokens=2000)
