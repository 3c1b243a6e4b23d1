"""What a model writes: by a float64 loop without a cache, and whatever else is in its batch."""

import hashlib
import logging
import sys
import zlib

import numpy as np
import pytest
import torch

from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.core.seeds import derive_seed
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.data.words import split_at_share
from contamination.detection.config import DetectionConfig, DetectionStage
from contamination.detection.forward.reader import run_continuations
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.methods.registry import build_methods
from contamination.detection.methods.samia import Samia
from contamination.detection.models.base import Prompt
from contamination.detection.models.causal_lm import CausalLM, generate_batch
from contamination.detection.models.hf_model import HFModel
from contamination.detection.pass_collector import Collector, covering_pass_by_pass
from contamination.detection.pass_store import StoredPass, write_rows
from contamination.detection.passes import Example, Pass
from contamination.detection.requirements import choose_methods
from contamination.detection.view_resources import Resources
from tests.detection import golden
from tests.detection.conftest import tiny_llama
from tests.detection.methods.test_contract import NODES

GREEDY = Pass(view="greedy", share=0.5, tokens=20)
SAMPLED = Pass(view="sampled", n=3, share=0.5, tokens=20, temperature=0.8)
TEXTS = golden.texts()[:8]


@pytest.fixture(scope="module")
def double():
    return load_model("model.path", str(golden.GOLDEN / "target")).double()


def loop(model, ids, tokens, temperature, seed=0):
    """One token at a time, all that stands before it read anew each time."""
    uniform, ids, start = np.random.default_rng(seed).random(tokens), list(ids), len(ids)
    for u in uniform:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].numpy()
        if temperature:
            p = np.exp((logits - logits.max()) / temperature)
            token = int(np.flatnonzero(np.cumsum(p) / p.sum() > u)[0])
        else:
            token = int(logits.argmax())
        if token == model.config.eos_token_id:
            break
        ids.append(token)
    return ids[start:]


def collect(tmp_path, texts=TEXTS, **settings):
    models = {"target": HFModel.from_path("model.path", str(golden.GOLDEN / "target"))}
    runs = tmp_path / f"{settings} {len(texts)} {texts[0].example_id}"
    made = Collector(runs, models, texts, DetectionConfig(device="cpu", **settings))
    found = made.collect([GREEDY, SAMPLED])
    return {p.view: {t.sha256: found[p][t.sha256] for t in texts} for p in (GREEDY, SAMPLED)}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return collect(tmp_path_factory.mktemp("runs"))


def test_writes_what_a_float64_loop_writes(found, double, tokenizer):
    for text in TEXTS:
        sha256 = hashlib.sha256(text.text.encode()).hexdigest()
        ids, whole = (
            tokenizer(t)["input_ids"] for t in (split_at_share(text.text, 0.5)[0], text.text)
        )
        most = min(20, len(whole) - len(ids))
        (greedy,) = found["greedy"][sha256]
        assert greedy.ids.tolist() == loop(double, ids, most, 0)
        assert greedy.text == tokenizer.decode(greedy.ids)
        assert greedy.scored == len(whole) - 1
        seed = derive_seed(derive_seed(0, "continuations"), sha256)
        drawn = [loop(double, ids, most, 0.8, derive_seed(seed, number)) for number in range(3)]
        assert [one.ids.tolist() for one in found["sampled"][sha256]] == drawn


@pytest.mark.parametrize("gram", [1, 2])
def test_samia_is_a_loop_from_the_text_to_the_score(found, double, tokenizer, gram):
    """SaMIA*zlib: ROUGE-N's recall of the text's second half, times the bytes of zlib."""
    for text in TEXTS[:2]:
        words = text.text.split()
        rest = words[len(words) // 2 :]
        start = text.text[: split_at_share(text.text, 0.5)[0].rindex(words[len(words) // 2 - 1])]
        ids = tokenizer(start + words[len(words) // 2 - 1])["input_ids"]
        most = min(20, len(tokenizer(text.text)["input_ids"]) - len(ids))
        seed, total = derive_seed(derive_seed(0, "continuations"), text.sha256), 0.0
        for number in range(3):
            drawn = tokenizer.decode(loop(double, ids, most, 0.8, derive_seed(seed, number)))
            left = [drawn.split()[i : i + gram] for i in range(len(drawn.split()) - gram + 1)]
            wanted = [rest[i : i + gram] for i in range(len(rest) - gram + 1)]
            hits = 0
            for each in wanted:
                if each in left:
                    left.remove(each)
                    hits += 1
            total += hits / len(wanted) * len(zlib.compress(drawn.encode("utf-8")))
        method = Samia(n=3, tokens=20, temperature=0.8, gram=gram, compressed=True)
        example = Example("x", text.text, {method.passes[0]: found["sampled"][text.sha256]})
        assert method.score(example) == pytest.approx(total / 3, rel=1e-9, abs=1e-9)
        assert total > 0 or gram > 1


def test_order_and_batch_change_nothing(found, tmp_path):
    for other in (
        collect(tmp_path, TEXTS[::-1]),
        collect(tmp_path, batch_tokens=1),
        collect(tmp_path, TEXTS[3:4]),
    ):
        for view, texts in other.items():
            for sha256, copies in texts.items():
                same = zip(copies, found[view][sha256], strict=True)
                assert all(vars(a).keys() == vars(b).keys() for a, b in same)
                same = zip(copies, found[view][sha256], strict=True)
                assert all(a.ids.tolist() == b.ids.tolist() and a.text == b.text for a, b in same)


def test_another_seed_draws_others(found, tmp_path):
    source = HFModel.from_path("model.path", str(golden.GOLDEN / "target"))
    loaded = LoadedModel(source, DetectionConfig(device="cpu"), Resources(seed=1))
    rows = loaded.run(SAMPLED, TEXTS[:1])
    assert rows[0].stats.text not in {one.text for one in found["sampled"][TEXTS[0].sha256]}


def test_more_continuations_hold_fewer():
    five, other = Pass(view="sampled", n=5, share=0.5), Pass(view="sampled", n=9, share=0.4)
    three = Pass(view="sampled", n=3, share=0.5)
    assert covering_pass_by_pass({three, five, other}) == {three: five, five: five, other: other}


def test_a_text_ends_at_the_models_end_of_a_text():
    net = tiny_llama().eval()
    (whole,) = CausalLM(net).generate([Prompt([1, 5, 7], 9)], 0)
    net.generation_config.eos_token_id = [3, whole[4]]
    end = whole.index(whole[4])
    other = Prompt([1, 5, 7, 9], 4)
    assert CausalLM(net).generate([Prompt([1, 5, 7], 9), other], 0)[0] == whole[:end]


def test_the_models_own_habits_are_left_out():
    net = tiny_llama().eval()
    expected = CausalLM(net).generate([Prompt([1, 5, 7], 20)], 0)
    net.generation_config.repetition_penalty = 5.0
    assert CausalLM(net).generate([Prompt([1, 5, 7], 20)], 0) == expected
    assert net.generation_config.repetition_penalty == 5.0


def test_logits_that_are_not_finite_name_the_text():
    net = tiny_llama().eval()
    with torch.no_grad():
        net.lm_head.weight[3] = float("nan")
    with pytest.raises(DataError, match="text a, or one of its batch: the model's logits are NaN"):
        run_continuations(
            CausalLM(net), [[1, 5]], ["a"], [3], [0], n=1, temperature=0, batch_tokens=9
        )


@pytest.mark.parametrize("title", ["sampled", None])
def test_a_terminal_sees_how_many_continuations_are_written(capsys, monkeypatch, title):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    run_continuations(
        CausalLM(tiny_llama().eval()), [[1, 5], [1, 7]], ["a", "b"], [3, 3], [0, 0],
        n=2, temperature=1, batch_tokens=99, progress=title,
    )  # fmt: skip
    assert ("sampled · text 4/4 in " in capsys.readouterr().err) == (title is not None)


def test_a_prompt_without_room_loses_its_first_tokens(toy_folders, tokenizer):
    """The toy model takes 128 tokens: half of them are the prompt's."""
    source = HFModel.from_path("model.path", str(toy_folders["target"]))
    loaded = LoadedModel(source, DetectionConfig(device="cpu", batch_tokens=10**5))
    words = " ".join(f"word{i}" for i in range(200))
    text = make_text("x", words, None, "")
    (row,) = loaded.run(Pass(view="greedy", share=0.5, tokens=100), [text])
    ids = tokenizer(split_at_share(words, 0.5)[0])["input_ids"]
    prompt = [ids[0], *ids[-63:]]
    assert [row.stats.ids.tolist()] == loaded.model.generate([Prompt(prompt, 64)], 0)


def test_a_pass_of_continuations_is_read_as_it_was_written(tmp_path, toy_folders):
    source = HFModel.from_path("model.path", str(toy_folders["target"]))
    texts = [make_text(str(i), t, None, "") for i, t in enumerate(("a", "One two. Three!", "ü ü"))]
    texts = sorted(texts, key=lambda text: text.sha256)
    rows = LoadedModel(source, DetectionConfig(device="cpu")).run(SAMPLED, texts)
    rows[0].stats.ids = rows[0].stats.ids[:0]
    write_rows(tmp_path / "stats-00000.parquet", rows)
    stored = StoredPass(tmp_path)
    for place, row in enumerate(rows):
        one = stored[row.text_sha256][place % 3]
        assert one.ids.tolist() == row.stats.ids.tolist()
        assert (one.text, one.scored) == (row.stats.text, row.stats.scored)


def test_all_methods_are_those_that_only_read(caplog):
    nodes = {name: node[name] for name, node in NODES.items()}
    stage = DetectionStage(method=nodes, examples=ExamplesConfig("texts.jsonl"))
    with caplog.at_level(logging.INFO):
        chosen = {name for name, _ in choose_methods(stage)}
    slow = ["cdd", "grad_norm", "info_rmia", "samia"]
    assert f"leaves out {', '.join(slow)}: they take far longer than reading" in caplog.text
    assert f"Give them a run of their own: method=[{','.join(slow)}]" in caplog.text
    assert not chosen & set(slow)
    named = {name: nodes[name] for name in ("cdd", "samia")}
    assert {name for name, _ in build_methods(named)} == {"cdd", "samia"}


def test_a_class_that_does_not_write_is_named():
    class Reads(torch.nn.Module):
        pass

    with pytest.raises(ConfigError, match="class, Reads, has no `generate`"):
        generate_batch(Reads(), torch.device("cpu"), [Prompt([1], 1)], 0)


@pytest.mark.slow
def test_several_processes_write_the_same(found, tmp_path):
    other = collect(tmp_path, TEXTS[:3], processes=2)
    for view, texts in other.items():
        for sha256, copies in texts.items():
            assert [c.text for c in copies] == [c.text for c in found[view][sha256]]
