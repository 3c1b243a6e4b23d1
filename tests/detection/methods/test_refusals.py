"""What the newer methods need: a reference of the same tokenizer, a corpus, members, gradients."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    DetectionConfig,
    DetectionStage,
    PrefixConfig,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.forward.gradients import (
    check_has_float32_parameters,
    gradient_norm,
    parameters_with_gradients,
)
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.hf_model import HFModel
from contamination.detection.requirements import choose_methods, have_same_tokenizer
from contamination.detection.run import run
from contamination.detection.scores import open_scores
from contamination.detection.token_frequencies import corpus_digest, log_frequencies
from contamination.detection.view_resources import open_prefix
from contamination.detection.views.unigram import look_up_first_occurrences
from tests.detection import golden
from tests.detection.conftest import MEMORISED, UNSEEN, tiny_llama
from tests.detection.methods.test_contract import NODES


@pytest.fixture
def stage(tmp_path, toy_folders):
    (tmp_path / "texts.jsonl").write_text(f'{{"text": "{MEMORISED}"}}\n{{"text": "{UNSEEN}"}}\n')

    def make(*names, reference=None, prefix=None, settings=None, **changed):
        nodes = {name: {**NODES[name][name], **changed} for name in names}
        return DetectionStage(
            runs=str(tmp_path / "runs"), method=nodes,
            detection=DetectionConfig(device="cpu", **(settings or {})),
            examples=ExamplesConfig(str(tmp_path / "texts.jsonl")),
            model=ScoredModelConfig(str(toy_folders["target"])),
            reference=ReferenceConfig(reference and str(reference)),
            prefix=PrefixConfig(prefix and str(prefix)),
        )  # fmt: skip

    return make


@pytest.fixture
def other_tokenizer(tmp_path, toy_folders):
    """The reference with a tokenizer that has lost a merge."""
    folder = shutil.copytree(toy_folders["reference"], tmp_path / "other")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["merges"].pop()
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", ["wbc", "ez_mia", "info_rmia", "lt_mia"])
def test_a_reference_of_another_tokenizer_is_refused(stage, other_tokenizer, name):
    with pytest.raises(ConfigError, match=f"method.{name} needs a reference with the target's tok"):
        run(stage(name, reference=other_tokenizer))
    run(stage("reference", reference=other_tokenizer))  # compares means


def test_a_tokenizer_of_other_settings_is_the_same(tmp_path, toy_folders):
    folder = shutil.copytree(toy_folders["reference"], tmp_path / "padded")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["truncation"] = {
        "direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    models = [HFModel.from_path("x.path", str(f)) for f in (folder, toy_folders["target"])]
    assert models[0].tokenizer_digest != models[1].tokenizer_digest
    assert have_same_tokenizer(*models)


def test_a_reference_that_the_target_was_trained_from_is_an_upper_bound(stage, toy_folders):
    own = run(stage("wbc", "ez_mia", reference=toy_folders["target"]))
    assert set(open_scores(own.path).table["method"]) == {"wbc_upper_bound", "ez_mia_upper_bound"}


def test_dc_pdd_needs_a_corpus(stage, tmp_path):
    with pytest.raises(ConfigError, match="method.dc_pdd needs a corpus, but .*corpus is null"):
        choose_methods(stage("dc_pdd", corpus=None))
    with pytest.raises(ConfigError, match="^method.dc_pdd.corpus is 'nowhere': there is no such"):
        run(stage("dc_pdd", corpus="nowhere"))
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(DataError, match=r"empty.txt': it has no text, so no token has a frequency"):
        run(stage("dc_pdd", corpus=str(empty)))


def test_scores_of_a_changed_corpus_are_others(stage, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("The heron waits.\n")
    first = run(stage("dc_pdd", corpus=str(corpus)))
    corpus.write_text("The pears have been picked since last week.\n" * 9)
    assert run(stage("dc_pdd", corpus=str(corpus))).path != first.path


def test_frequencies_are_smoothed_counts(toy_models, tokenizer, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a b a a\nunread")
    ids = tokenizer("a b a a\n", add_special_tokens=False)["input_ids"]
    found = np.exp(log_frequencies(toy_models["target"], str(corpus), 8).astype(float))
    entries = toy_models["target"].vocabulary
    assert found.sum() == pytest.approx(1, abs=1e-5)
    for token in {*ids, 900}:
        assert found[token] == pytest.approx((ids.count(token) + 1) / (len(ids) + entries))
    digest = corpus_digest(str(corpus))
    corpus.write_text("another")
    assert corpus_digest(str(corpus)) != digest


def test_a_repeated_token_has_no_frequency():
    table = np.array([-1, -2, -3], np.float32)
    ((stats,),) = look_up_first_occurrences(None, [[2, 1, 2, 1, 2, 0]], [""], log_frequencies=table)
    assert stats.logprob.tolist() == [-2, -3, 0, 0, -1]


def test_con_recall_needs_members(stage, prefix_file, contrasting_prefix_file):
    with pytest.raises(ConfigError, match="method.con_recall needs members in prefix.path"):
        run(stage("con_recall", prefix=prefix_file))
    both = run(stage("con_recall", "recall", prefix=contrasting_prefix_file, shots=2))
    assert set(open_scores(both.path).table["method"]) == {"con_recall", "recall"}
    few = stage("con_recall", prefix=contrasting_prefix_file, shots=9)
    with pytest.raises(DataError, match="9 shots are requested. Give more member texts, or"):
        run(few)


def test_members_of_a_prefix_are_apart(contrasting_prefix_file, prefix_file):
    prefix = open_prefix(str(contrasting_prefix_file))
    assert (len(prefix.texts), len(prefix.members.texts)) == (8, 8)
    assert not {*prefix.texts} & {*prefix.members.texts}
    assert open_prefix(str(prefix_file)).members is None
    with pytest.raises(DataError, match="Give more member texts, or fewer method.con_recall.sho"):
        prefix.members.shots(9)


def test_the_gradient_is_that_of_backward_and_leaves_nothing(toy_models):
    model = toy_models["target"].load(DetectionConfig(device="cpu"))
    model.hf.requires_grad_(False)
    with parameters_with_gradients(model.hf):
        norm = gradient_norm(model, [1, 5, 9, 5])
    assert all(p.grad is None and not p.requires_grad for p in model.hf.parameters())
    double = toy_models["target"].load(DetectionConfig(device="cpu")).hf.double()
    ids = torch.tensor([[1, 5, 9, 5]])
    double(input_ids=ids, labels=ids).loss.backward()
    expected = sum(float((p.grad**2).sum()) for p in double.parameters()) ** 0.5
    assert norm == pytest.approx(expected, rel=1e-5)


def small_gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    )


@pytest.mark.parametrize(
    "build",
    [
        tiny_llama,
        lambda: tiny_llama(tie_word_embeddings=True),
        lambda: tiny_llama(pad_token_id=5, attention_bias=True, mlp_bias=True),
        lambda: tiny_llama(pad_token_id=5, tie_word_embeddings=True),
        small_gpt2,
    ],
    ids=["llama", "tied", "padding and biases", "tied padding", "gpt2"],
)
def test_sparse_gradients_of_embeddings_have_the_norm_of_dense_ones(build):
    """Tokens repeat, one is the padding, and GPT-2 has tied weights and embedded positions."""
    torch.manual_seed(0)
    hf = build().eval()
    ids = [1, 5, 9, 5, 5, 3, 1]
    model = CausalLM(hf)
    with parameters_with_gradients(hf):
        norm = gradient_norm(model, ids)
    assert not any(m.sparse for m in hf.modules() if isinstance(m, torch.nn.Embedding))
    hf.double()
    logits = hf(input_ids=torch.tensor([ids])).logits[0]
    loss = -sum(logits[t].log_softmax(-1)[ids[t + 1]] for t in range(len(ids) - 1))
    gradients = torch.autograd.grad(loss / (len(ids) - 1), list(hf.parameters()))
    assert not any(gradient.is_sparse for gradient in gradients)
    assert norm == pytest.approx(sum(float((g**2).sum()) for g in gradients) ** 0.5, rel=1e-5)


def test_other_weights_than_float32_have_no_gradient(stage):
    with pytest.raises(ConfigError, match="detection.dtype is 'bfloat16': method.grad_norm takes"):
        run(stage("grad_norm", settings={"dtype": "bfloat16"}))
    half, quantised = tiny_llama().half(), tiny_llama()
    quantised.config.quantization_config = {"bits": 4}
    for net, kind in ((half, "float16"), (quantised, "quantised")):
        with pytest.raises(ConfigError, match=f"method.grad_norm: the model's weights are {kind}"):
            check_has_float32_parameters(CausalLM(net).hf)


@pytest.mark.parametrize("name", ["grad_norm", "info_rmia"])
def test_a_text_in_windows_is_refused(stage, toy_folders, tmp_path, name):
    long = " ".join([UNSEEN] * 20)
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": long}) + "\n")
    windowed = {"settings": {"long_texts": "windowed"}, "reference": toy_folders["reference"]}
    with pytest.raises(ConfigError, match=f"windows, .*method.{name} "):
        run(stage(name, **windowed))
    truncated = {**windowed, "settings": {"long_texts": "truncate"}}
    assert len(open_scores(run(stage(name, **truncated)).path).table) == 1


def test_top_tokens_are_those_of_the_ids(golden_folder):
    model = HFModel.from_path("model.path", str(golden_folder)).load(DetectionConfig(device="cpu"))
    rows = [example["token_ids"] for example in golden.untied()]
    for ids, stats in zip(rows, model.score(rows), strict=True):
        assert (stats.is_top == (stats.top_id == np.array(ids[1:]))).all()
