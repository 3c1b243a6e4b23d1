"""The page that shows each token's numbers."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contamination.core.errors import ArtifactError, ConfigError
from contamination.data.config import ExamplesConfig
from contamination.data.examples import make_text
from contamination.data.texts import Texts
from contamination.detection.config import ReferenceConfig, ViewConfig
from contamination.detection.examples import occurrences_by_id
from contamination.detection.models.hf_model import HFModel
from contamination.detection.viewer.page import select_examples, split_at_tokens
from contamination.detection.viewer.run import run
from tests.detection.golden import examples
from tests.detection.test_held_out import make_corpus
from tests.detection.view.conftest import TEXTS, data_of, scored


@pytest.fixture(scope="module")
def shown(written):
    return data_of(written)


@pytest.fixture(autouse=True)
def _no_model(request, monkeypatch):
    """No test but those that ask for passes may load weights."""
    if "written" not in request.fixturenames:
        return
    request.getfixturevalue("written")
    monkeypatch.delattr(HFModel, "load")


def stored(stage, view, folder):
    """A stored pass's rows of one model as a table, read without the package."""
    found = [*Path(stage.runs, "passes").glob(f"{Path(folder).name}*-{view}-*")]
    (table,) = (pd.concat(map(pd.read_parquet, sorted(f.glob("*.parquet")))) for f in found)
    return table.set_index(["text_sha256", "copy"])


def test_the_numbers_are_those_of_the_stored_passes(stage, shown, tokenizer):
    own = stored(stage, "original", stage.model.path)
    other = stored(stage, "original", stage.reference.path)
    for example in shown["examples"]:
        sha256 = hashlib.sha256(TEXTS[example["id"]][0].encode()).hexdigest()
        row, before = own.loc[(sha256, 0)], other.loc[(sha256, 0)]
        expected = {
            "logprob": row["logprob"],
            "z": (row["logprob"] - row["mean"]) / row["std"],
            "difference": row["logprob"] - before["logprob"],
        }
        for name, values in expected.items():
            found = np.array(example["numbers"][name]) / shown["perUnit"]
            np.testing.assert_allclose(found, values, atol=6e-4, rtol=1e-6)
        ids = tokenizer(TEXTS[example["id"]][0])["input_ids"]
        rank_0 = [top == id_ for top, id_ in zip(row["top_id"], ids[1:], strict=True)]
        assert [top == shown["firstChoice"] for top in example["top"]] == rank_0
        tops = [i for i, is_first in zip(row["top_id"], rank_0, strict=True) if not is_first]
        assert [t for t in example["top"] if t != shown["firstChoice"]] == tops
        assert all(shown["words"][str(i)] == tokenizer.decode([i]) for i in tops)
    assert all(any(values) for values in shown["examples"][1]["numbers"].values())


def test_the_infilling_ratios_are_those_of_the_stored_pass(stage, shown):
    table = stored(stage, "infill", stage.model.path)
    for example in shown["examples"]:
        sha256 = hashlib.sha256(TEXTS[example["id"]][0].encode()).hexdigest()
        text, *after = (row for _, row in table.loc[sha256].sort_index().iterrows())
        m = 1 if len(text["logprob"]) <= 32 else 5
        z = [(row["logprob"] - row["mean"]) / row["std"] for row in (text, *after)]
        for t, found in enumerate(example["numbers"]["ratio"]):
            expected = (text["logprob"][t] - text["top_logprob"][t]) / text["std"][t]
            expected += sum(z[0][t + j] - z[j][t] for j in range(1, m + 1) if t + j < len(z[0]))
            assert found / shown["perUnit"] == pytest.approx(expected, abs=6e-4, rel=1e-5)


def test_the_tokens_make_up_the_text(shown, tokenizer):
    assert [e["id"] for e in shown["examples"]] == list(TEXTS)
    for example in shown["examples"]:
        text, label, benchmark = TEXTS[example["id"]]
        assert "".join(example["tokens"]) == text
        assert len(example["tokens"]) == len(tokenizer(text)["input_ids"]) + 1
        assert example["benchmark"] == benchmark
        assert example["kind"] == {1: "member", 0: "non-member", None: "no label"}[label]
    assert sum(piece == "🦩" for piece in shown["examples"][1]["tokens"]) == 1


def test_pieces_take_dropped_space_and_shared_characters_once():
    spans = [(0, 0), (0, 2), (3, 5), (5, 6), (5, 6), (6, 7), (0, 0)]
    assert [*split_at_tokens("ab cd🦩f ", spans)] == ["", "ab", " cd", "🦩", "", "f", "", " "]


def test_scores_are_those_of_the_scores_folder(stage, shown):
    (path,) = Path(stage.runs, "scores").glob(f"{Path(stage.model.path).name}-*/scores.parquet")
    table = pd.read_parquet(path).set_index(["method", "example_id"])["score"]
    for example in shown["examples"]:
        for label, score in example["scores"].items():
            assert score == table[label.split()[0], example["id"]]


def test_what_is_not_stored_is_said(stage, written, tmp_path, caplog):
    bare = replace(stage, runs=str(tmp_path), out=str(tmp_path / "view.html"))
    with pytest.raises(ArtifactError, match=r"python -m detection .*model.path=.*method=\[loss"):
        run(bare)
    other = replace(stage.detection, long_texts="truncate")
    with pytest.raises(ArtifactError, match="detection.long_texts=truncate"):
        run(replace(bare, runs=stage.runs, detection=other))
    assert not Path(bare.out).exists()


def test_a_method_whose_pass_is_not_stored_is_left_out(stage, written, toy_folders, tmp_path):
    other = str(toy_folders["reference"])
    out = tmp_path / "view.html"
    alone = replace(stage, model=replace(stage.model, path=other), reference=ReferenceConfig())
    found = data_of(run(replace(alone, out=str(out))))
    assert [*found["examples"][0]["scores"]] == ["loss"]
    assert [*found["examples"][0]["numbers"]] == ["logprob", "z"]
    assert "infilling: not stored" in out.read_text()


def test_a_reference_of_another_tokenizer_is_refused(stage, written, monkeypatch):
    from transformers import AutoTokenizer

    other = AutoTokenizer.from_pretrained(stage.model.path)
    other.add_tokens(["heron"])
    own = HFModel.tokenizer
    changed = {"reference.path": other}
    monkeypatch.setattr(HFModel, "tokenizer", lambda self: changed.get(self.field) or own(self))
    with pytest.raises(ConfigError, match=r"reference.path is .* tokens can't be compared"):
        run(stage)


def test_examples_are_drawn_by_the_seed_whatever_their_order():
    rows = [make_text(str(i), f"text {i}", (True, False, None)[i % 3], "") for i in range(60)]
    drawn = [t.example_id for t in select_examples(Texts.of(rows), 5, None, 0)]
    assert [t.example_id for t in select_examples(Texts.of(rows[::-1]), 5, None, 0)] == drawn
    assert [int(name) % 3 for name in drawn] == [0] * 5 + [1] * 5 + [2] * 5
    assert set(drawn) < {t.example_id for t in select_examples(Texts.of(rows), 6, None, 0)}
    assert drawn != [t.example_id for t in select_examples(Texts.of(rows), 5, None, 1)]
    assert [t.example_id for t in select_examples(Texts.of(rows), 5, ["7", "3"], 0)] == ["7", "3"]
    with pytest.raises(ConfigError, match="view.ids contains 'x'"):
        select_examples(Texts.of(rows), 5, ["x"], 0)


def test_a_corpus_says_how_often_an_example_is_in_it(tmp_path):
    folder = make_corpus(tmp_path / "corpus" / "one")
    assert occurrences_by_id(str(folder)) == {"a": 1, "b": 0, "c": 0}
    assert occurrences_by_id(str(tmp_path)) == {}


def test_200_long_examples_take_less_than_5_megabytes(stage, tmp_path):
    texts = [e["text"] for e in examples()]
    rows = [{"text": texts[i % 32], "label": i % 2} for i in range(200)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = replace(stage.detection, long_texts="truncate")
    given = ExamplesConfig(str(tmp_path / "t.jsonl"))
    many = replace(stage, examples=given, detection=settings, view=ViewConfig(examples=100))
    many = replace(many, out=str(tmp_path / "view.html"), runs=str(tmp_path))
    scored(many, ["loss"], many.model.path)
    scored(many, ["loss"], many.reference.path)
    path = run(many)
    shown = data_of(path)["examples"]
    assert len(shown) == 200
    assert path.stat().st_size < 5_000_000
    for example in shown:
        assert "".join(example["tokens"]) == texts[int(example["id"]) % 32]
        assert len(example["top"]) == min(127, len(example["tokens"]) - 2)
