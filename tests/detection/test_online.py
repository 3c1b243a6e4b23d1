"""Scoring of long documents in windows, while a model reads on."""

import json
from dataclasses import replace

import numpy as np
import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import ExamplesConfig, SourceConfig
from contamination.data.examples import make_text
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.examples import open_examples
from contamination.detection.tasks.config import OnlineConfig, OnlineStage
from contamination.detection.tasks.online import join_pieces, join_random_pairs, run
from tests.detection.golden import GOLDEN, examples

LOSS = {"loss": {"_target_": "contamination.detection.methods.loss.Loss"}}


TEXTS = [e["text"][:300] for e in examples()]  # two of them fit into the model's context


@pytest.fixture
def stage(tmp_path):
    rows = [
        {"text": text, "label": e["label"], "id": str(i)}
        for i, (e, text) in enumerate(zip(examples(), TEXTS, strict=True))
    ]
    path = tmp_path / "golden.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return OnlineStage(
        runs=str(tmp_path / "runs"),
        seed=0,
        examples=ExamplesConfig(str(path)),
        model=ScoredModelConfig(str(GOLDEN / "target")),
        method=LOSS,
        detection=DetectionConfig(device="cpu"),
        online=OnlineConfig(window_tokens=16),
    )


def test_windows_score_their_own_tokens(stage):
    import torch

    from contamination.core.models import load_model, load_tokenizer

    table, windows = run(stage)
    model = load_model("model", str(GOLDEN / "target"), "float64")
    tokenizer = load_tokenizer("model", str(GOLDEN / "target"))
    for joined in list(join_all(stage))[:4]:
        ids = torch.tensor([tokenizer(joined.text.text)["input_ids"]])
        with torch.no_grad():
            logprob = model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        found = table[table["example_id"].str.startswith(joined.text.example_id + "/")]["score"]
        expected = [logprob[i : i + 16].mean().item() for i in range(0, len(logprob) - 15, 16)]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert table["example_id"].is_unique
    assert {w.label for w in windows} == {True, False}
    labels = {w.example_id: w.label for w in windows}
    texts = {w.example_id: w.text for w in windows}
    parts = {j.text.example_id: j.members[0] for j in join_all(stage)}
    assert {start > 0 for start, _ in parts.values()} == {True, False}  # either part comes first
    for joined in join_all(stage):
        first, last = parts[joined.text.example_id]
        spans = tokenizer(joined.text.text, return_offsets_mapping=True)["offset_mapping"][1:]
        for number in range(len(spans) // 16):
            shown = joined.text.text[spans[16 * number][0] : spans[16 * number + 15][1]]
            assert texts[f"{joined.text.example_id}/{number}"] == shown
            own = [i for start, end in spans[16 * number : 16 * number + 16]
                   for i in range(start, end)]  # fmt: skip
            inside = sum(first <= i < last for i in own)
            if inside not in range(len(own) // 2 - 4, len(own) // 2 + 5):  # spaces between tokens
                label = labels.pop(f"{joined.text.example_id}/{number}")
                assert label == (inside > len(own) / 2)
    assert len(labels) < len(windows) / 10


def join_all(stage):
    return join_random_pairs(open_examples(stage.examples), stage.seed)


def test_the_members_part_is_known(stage):
    for joined in join_all(stage):
        _, member = joined.text.example_id.split("+")
        ((start, end),) = joined.members
        assert joined.text.text[start:end] == TEXTS[int(member)]


def test_pairs_are_drawn_by_the_seed():
    texts = [make_text(str(i), "text", i < 20, "") for i in range(40)]
    drawn = [
        [one.text.example_id.split("+") for one in join_random_pairs(texts, seed)]
        for seed in (0, 1)
    ]
    for pairs in drawn:
        assert [other for other, _ in pairs] == [str(i) for i in range(20, 40)]
        assert {member for _, member in pairs} == {str(i) for i in range(20)}
        assert [member for _, member in pairs] != [str(i) for i in range(20)]
    assert drawn[0] != drawn[1]


def test_pieces_are_joined_as_they_stood(stage, tmp_path):
    words = [f"{word}{k}" for k, word in enumerate((TEXTS[0] + " " + TEXTS[1]).split()[:35])]
    rows = [{"input": " ".join(words), "label": labels} for labels in ([0, 1, 1, 0], [1, 0, 0, 1])]
    path = tmp_path / "concat.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    examples = ExamplesConfig(
        str(path), name="concat", label_words=8, columns={"text": "input"}, sources=[SourceConfig()]
    )
    pieces = open_examples(examples)
    assert [p.label for p in pieces] == rows[0]["label"] + rows[1]["label"]
    assert pieces[1].text == " ".join(words[8:16])
    assert {p.cluster for p in pieces} == {"concat/0", "concat/1"}
    for joined in join_pieces(pieces):
        found = [joined.text.text[start:end] for start, end in joined.members]
        assert found == [p.text for p in pieces if p.label and p.cluster == joined.text.example_id]
        assert joined.text.text == " ".join(words[:32])
    table, windows = run(replace(stage, examples=examples, online=OnlineConfig(window_tokens=4)))
    assert {w.cluster for w in windows} == {"concat/0", "concat/1"}
    of_first = [w.label for w in windows if w.cluster == "concat/0"]
    assert of_first[0] is False
    assert of_first[len(of_first) // 2] is True
    assert len(table) == len(windows)
    path.write_text(json.dumps({"input": "a b", "label": [1]}))
    with pytest.raises(
        DataError, match=r"its label is 1 labels, and its text has 2 words.*0 in all"
    ):
        open_examples(examples)


def test_what_has_no_windows_is_said(stage):
    with pytest.raises(DataError, match="2 members and 0 non-members"):
        list(join_random_pairs([make_text(str(i), "text", True, "") for i in range(2)], 0))
    with pytest.raises(ConfigError, match="online.window_tokens is 0"):
        OnlineConfig(0)
    with pytest.raises(ConfigError, match=r"^online.window_tokens is 100000: every joined text is"):
        run(replace(stage, online=OnlineConfig(window_tokens=100_000)))
