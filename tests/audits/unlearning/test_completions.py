"""Completions beside what really follows, and who compares them."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tqdm import tqdm
from transformers import AutoModel, AutoTokenizer

from contamination.audits.unlearning import completions, text_similarity
from contamination.audits.unlearning.completions import (
    OTHER,
    ROUGE,
    CompletionPlan,
    compare_continuations,
    true_continuation_by_sha256,
)
from contamination.audits.unlearning.text_similarity import (
    Embedding,
    Judge,
    load_encoder,
    parse_rating,
)
from contamination.core.errors import ConfigError, ServerError
from contamination.data.examples import make_text
from contamination.detection.passes import Pass
from tests.detection.model.served.server import Server

PLAN = CompletionPlan(number=2, words=3, share=0.5, tokens=50, temperature=1.0)


def test_a_prompt_has_so_many_words_or_a_share_of_a_short_text():
    assert PLAN.true_continuation("a b c d e f g h") == "d e f g h"
    assert PLAN.true_continuation("a b c d") == "c d"
    assert PLAN.true_continuation("a") == ""
    assert PLAN.sampling_pass == Pass(
        "target", "sampled", n=2, temperature=1.0, share=0.5, words=3, tokens=50
    )


class Letters:
    """A tokenizer whose tokens are characters, and whose decoder writes capitals."""

    def __call__(self, texts, **options):
        return {"input_ids": [[*text] for text in texts]}

    def decode(self, ids, **options):
        return "".join(ids).upper()


@pytest.mark.parametrize(("tokens", "context", "expected"), [
    (3, None, ["bcd", "BCD"]), (9, None, ["bcd", "bcde"]), (9, 6, ["bcd", "BCD"]),
    (9, 5, ["BC", "BC"]),
])  # fmt: skip
def test_what_follows_is_cut_where_a_model_stops_writing(tokens, context, expected):
    model = SimpleNamespace(source=SimpleNamespace(context=context, tokenizer=Letters))
    texts = [make_text(text, text, None, "") for text in ("a bcd", "a bcde")]
    plan = replace(PLAN, tokens=tokens, words=1)
    continuations = true_continuation_by_sha256(model, texts, plan)
    assert [continuations[text.sha256] for text in texts] == expected


def test_a_control_is_the_next_longer_continuation_of_another_chunk():
    true = {"x": "a b c", "y": "a", "z": "b", "w": "a b c d"}
    texts = [make_text(name, f"text {name}", None, "") for name in true]
    generated = {text.sha256: [true[text.example_id]] for text in texts}
    calls = []

    def similarity(pairs):
        calls.append([*pairs])
        return np.arange(4.0)

    true_by_sha256 = {text.sha256: true[text.example_id] for text in texts}
    methods = {"similarity": similarity}
    table = compare_continuations(texts, generated, true_by_sha256, methods)
    assert [*table.columns] == ["chunk", "number", "written", ROUGE, OTHER, "similarity"]
    assert table[["chunk", "number", "written"]].to_numpy().tolist() == [
        [name, 0, text] for name, text in true.items()
    ]
    # y, z, x, w by length and letters, and the longest beside the shortest
    assert table[OTHER].tolist() == pytest.approx([6 / 7, 0, 1 / 2, 2 / 5])
    assert calls == [[(text, text) for text in true.values()]]
    assert table["similarity"].tolist() == [0, 1, 2, 3]


def test_validation_texts_are_spread_over_the_sequences_of_a_corpus(monkeypatch, tmp_path):
    def decode(ids, *, skip_special_tokens):
        return f"text {ids[0]}{'' if skip_special_tokens else '<s>'}"

    corpus = SimpleNamespace(
        sequences=[{"input_ids": [number]} for number in range(5)],
        tokenizer=SimpleNamespace(hf=SimpleNamespace(decode=decode)),
    )
    monkeypatch.setattr(completions, "is_complete", lambda folder: True)
    monkeypatch.setattr(completions, "open_corpus", {tmp_path: corpus}.get)
    for limit, numbers in ((500, range(5)), (5, range(5)), (3, [0, 2, 4])):
        monkeypatch.setattr(completions, "MAX_SEQUENCES", limit)
        texts = completions.read_validation_texts(str(tmp_path))
        assert [(text.example_id, text.text, text.benchmark, text.label) for text in texts] == [
            (f"sequence {number}", f"text {number}", "validation", None) for number in numbers
        ]
    table = completions.unlabelled_unit_table(texts)
    assert table[["unit", "text_id", "benchmark"]].iloc[1].tolist() == ["sequence 2"] * 2 + [""]
    assert table["member"].isna().all()
    assert str(table["member"].dtype) == "boolean"


def test_completions_are_compared_with_what_follows_and_with_another_chunk():
    texts = [make_text(name, text, None, "") for name, text in (("x", "a b"), ("y", "c d"))]
    x, y = (text.sha256 for text in texts)
    found = compare_continuations(texts, {x: ["b", "d"], y: ["d d", ""]}, {x: "b", y: "d"}, {})
    assert found[ROUGE].tolist() == pytest.approx([1, 0, 2 / 3, 0])
    assert found[OTHER].tolist() == [0, 1, 0, 0]


def test_an_embedding_is_the_mean_of_the_last_hidden_states(golden_folder):
    path, texts = str(golden_folder), ["The heron waits.", "A ladder leans on the wall there."]
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path)
    with torch.inference_mode():
        each = [model(**tokenizer(t, return_tensors="pt"))[0][0].mean(0) for t in texts]
    wanted = torch.cosine_similarity(*each, dim=0).item()
    found = Embedding(path, "cpu")([(texts[0], texts[1]), (texts[0], texts[0]), (texts[0], "")])
    assert found.tolist() == pytest.approx([wanted, 1, 0], abs=1e-5)


def test_a_text_without_tokens_is_similar_to_nothing(golden_folder, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(golden_folder, encoder)
    tokenizer = Tokenizer(BPE({"<s>": 0, "a": 5}, []))  # it leaves out all other characters
    tokenizer.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(encoder / "tokenizer.json"))
    similarity = Embedding(str(encoder), "cpu")
    assert similarity([("a", "b"), ("b", "b")]).tolist() == [0, 0]
    assert similarity([("a", "ab")]).tolist() == pytest.approx([1])


@pytest.fixture
def bars(monkeypatch):
    """The options of each progress bar, and how far it went."""
    bars = []

    def progress_bar(**options):
        bar = tqdm(total=options["total"], disable=True)
        bars.append([options, 0])

        def update(n=1):
            bars[-1][1] += n

        bar.update = update
        return bar

    monkeypatch.setattr(text_similarity, "progress_bar", progress_bar)
    return bars


def test_texts_are_embedded_in_batches_and_once(golden_folder, monkeypatch, bars):
    words = ["the", "heron", "waits", "in", "reeds", "until", "a", "river", "falls"]
    pairs = [(" ".join(words[:n]), " ".join(words[n:])) for n in range(1, 6)]
    embedding = Embedding(str(golden_folder), "cpu")
    similarities = embedding(pairs)
    assert bars == [[{"desc": "embeddings", "total": 10, "unit": "text"}, 10]]
    monkeypatch.setattr(text_similarity, "BATCH_TEXTS", 3)
    assert Embedding(str(golden_folder), "cpu")(pairs) == pytest.approx(similarities, abs=1e-5)
    repeated = embedding([*pairs, (pairs[0][0], "a wall")])
    assert repeated[:5] == pytest.approx(similarities, rel=1e-12)
    assert [bar[0]["total"] for bar in bars] == [10, 10, 1]


def test_a_text_beyond_the_encoders_tokens_is_cut(golden_folder, monkeypatch):
    start = "The heron waits in the reeds"
    pairs = [(f"{start} until the river falls.", f"{start} and a ladder leans on a wall.")]
    assert Embedding(str(golden_folder), "cpu")(pairs)[0] < 0.9999
    monkeypatch.setattr(text_similarity, "MAX_ENCODER_TOKENS", 4)
    assert Embedding(str(golden_folder), "cpu")(pairs) == pytest.approx([1], abs=1e-5)


def test_an_encoder_may_lack_the_weights_of_its_pooler(monkeypatch):
    encoder = SimpleNamespace(eval=lambda: "encoder")
    report = {"missing_keys": ["pooler.dense.weight"]}
    monkeypatch.setattr(text_similarity, "load_pretrained", lambda *_, **__: (encoder, report))
    monkeypatch.setattr(text_similarity, "load_tokenizer", lambda field, path: (field, path))
    assert load_encoder("x") == ("encoder", ("audit.embedding", "x"))


def test_an_encoder_without_its_weights_is_refused(folders, tmp_path):
    from safetensors.torch import load_file, save_file

    for file in folders["clean"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lack norm\.weight"):
        Embedding(str(tmp_path), "cpu")([("a", "b")])


@pytest.mark.parametrize(
    ("answer", "rated"),
    [
        ("4", 4), ("**5**", 5), ("4/5", 4), ("It is 3.", 3), ("4 = mostly the same", 4),
        ("4.5", None), ("10", None), ("", None), ("1 = nothing in common, 2 = the same top", None),
    ],
)  # fmt: skip
def test_a_rating_is_a_number_from_1_to_5(answer, rated):
    assert parse_rating(answer) == rated


def judged(question):
    own = question.split("Continuation ")
    if "unclear" in question:
        return f"I can't say. {'Nobody can. ' * 20}"
    return "5" if own[1].split(":\n")[1].strip() == own[2].split(":\n")[1].split("\n")[0] else "2"


def test_a_judge_counts_4_and_more_and_is_asked_once(tmp_path, caplog, bars):
    pairs = [("b", "b"), ("b", "c"), ("unclear", "c")]
    with Server(judges=judged) as server:
        found = Judge({"url": server.url}, tmp_path)(pairs)
        assert len(server.seen) == 3
        again = Judge({"url": server.url}, tmp_path)(pairs)
        assert len(server.seen) == 3
    assert found[:2].tolist() == [1, 0]
    assert np.isnan(found[2])
    assert np.array_equal(found, again, equal_nan=True)
    assert "gave no rating from 1 to 5 for 1 of 3 pairs" in caplog.text
    quoted = f"I can't say. {'Nobody can. ' * 20}"[:60]
    assert f"its answer for the first of them is {quoted!r}. They are left out." in caplog.text
    assert bars == [[{"desc": "judge", "total": n, "unit": "pair"}, n] for n in (3, 0)]
    body = server.seen[0]
    assert body["temperature"] == 0
    assert 0 < body["max_tokens"] <= 16  # a rating needs few
    assert "from 1 to 5" in body["messages"][0]["content"]


def test_a_judge_that_rates_nothing_is_said(tmp_path):
    with Server(judges=judged) as server, pytest.raises(ServerError, match=r"for 2 of 2 pairs"):
        Judge({"url": server.url}, tmp_path)([("unclear", "a"), ("unclear", "b")])


def test_a_server_of_no_chat_model_is_said(tmp_path):
    with Server() as server, pytest.raises(ServerError, match="chat/completions"):
        Judge({"url": server.url, "retries": 0}, tmp_path)([("a", "b")])
    with pytest.raises(ConfigError, match=r"audit\.judge\.nmae"):
        Judge({"url": "http://localhost:1", "nmae": "x"}, tmp_path)
