"""Completions beside what really follows, and who compares them."""

import shutil

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoTokenizer

from contamination.audits.unlearning.completions import (
    OTHER,
    ROUGE,
    CompletionPlan,
    compare_continuations,
)
from contamination.audits.unlearning.text_similarity import Embedding, Judge, parse_rating
from contamination.core.errors import ConfigError, ServerError
from contamination.data.examples import make_text
from tests.detection.model.served.server import Server

PLAN = CompletionPlan(number=2, words=3, share=0.5, tokens=50, temperature=1.0)


def test_a_prompt_has_so_many_words_or_a_share_of_a_short_text():
    assert PLAN.true_continuation("a b c d e f g h") == "d e f g h"
    assert PLAN.true_continuation("a b c d") == "c d"
    assert PLAN.true_continuation("a") == ""


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
        return "I can't say."
    return "5" if own[1].split(":\n")[1].strip() == own[2].split(":\n")[1].split("\n")[0] else "2"


def test_a_judge_counts_4_and_more_and_is_asked_once(tmp_path, caplog):
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
    assert "I can't say." in caplog.text
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
