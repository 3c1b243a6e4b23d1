"""Examples beyond the pool."""

import hashlib
import json
from dataclasses import replace

import pytest

from contamination.core.errors import ConfigError
from contamination.data.config import BenchmarkConfig
from contamination.data.words import normalise_text
from contamination.injection.config import InjectionConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.pool import draw_held_out, draw_pool, read_candidates
from contamination.injection.run import run
from contamination.injection.token_stream import Tokenizer

POOLS = {  # as they were drawn before anything was held out
    (): "a21f931fe842bc63",
    (("swap_members", True),): "3fa99c7900f92176",
    (("pool_seed", 7),): "32b323439a222ed8",
    (("example_max_tokens", 40),): "fb795bad72cd176d",
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer("tests/golden/target")


def draw(stage, tokenizer):
    stage = stage.resolved()
    candidates = read_candidates(stage)
    pool = draw_pool(stage, candidates, tokenizer).examples
    return pool, draw_held_out(stage, candidates, tokenizer, pool)


def benchmark_of(texts, path):
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    rows = {"_target_": "contamination.data.readers.embedded.EmbeddedRows", "file": str(path)}
    source = {"rows": rows, "fields": {"text": "{text}"}}
    return {"mine": BenchmarkConfig(template="{text}", sources={"embedded": source})}


@pytest.mark.parametrize("fields", POOLS)
def test_the_pool_and_its_members_stay_as_they_were(change, tokenizer, fields):
    held, none = (draw(change(held_out=n, **dict(fields)), tokenizer)[0] for n in (12, 0))
    assert held.equals(none)
    assert (held.pop("near_duplicate_of") == "").all()
    digest = hashlib.sha256(held.to_json(orient="records").encode()).hexdigest()
    assert digest[:16] == POOLS[fields]


def test_held_out_examples_are_of_each_benchmark_and_apart_from_the_pool(stage, tokenizer):
    pool, held_out = draw(stage, tokenizer)
    assert held_out["benchmark"].value_counts().to_dict() == {"boolq": 12, "truthfulqa": 12}
    assert not set(pool["example_id"]) & set(held_out["example_id"])
    assert not set(map(normalise_text, pool["text"])) & set(map(normalise_text, held_out["text"]))
    for row in held_out.itertuples():
        assert row.text == stage.benchmark[row.benchmark].template.format(**json.loads(row.fields))
        assert row.n_tokens == len(tokenizer.encode(row.text)) <= 124


def test_they_follow_from_the_pool_alone(change, tokenizer):
    drawn = draw(change(), tokenizer)[1]
    for fields in ({"membership_seed": 7}, {"swap_members": True}, {"budget_tokens": 90_000}):
        assert draw(change(**fields), tokenizer)[1].equals(drawn)
    assert not draw(change(pool_seed=7), tokenizer)[1].equals(drawn)


def test_text_shared_with_the_pool_is_left_out(change, tokenizer, tmp_path):
    texts = [f"the {word} stands by the river" for word in ("cat", "dog", "hen", "fox", "cow")]
    again = [f"{t.upper()}" for t in texts] + [f"Once more: {t}, and again." for t in texts]
    stage = change(members=2, nonmembers=2, held_out=50)
    stage = replace(stage, benchmark=benchmark_of(texts + again, tmp_path / "rows.jsonl"))
    pool, held_out = draw(stage, tokenizer)
    animals = {word for text in pool["text"] for word in normalise_text(text).split()} - {
        "the",
        "river",
    }
    animals &= {"cat", "dog", "hen", "fox", "cow"}
    assert not any(
        animals & set(normalise_text(t).replace(",", "").split()) for t in held_out["text"]
    )
    assert len(held_out) == 5 - len(animals)


def test_fewer_than_asked_are_kept_and_said(change, tokenizer, tmp_path, caplog):
    texts = [f"number {n} of some short rows" for n in range(9)]
    stage = change(members=3, nonmembers=3, held_out=5)
    stage = replace(stage, benchmark=benchmark_of(texts, tmp_path / "rows.jsonl"))
    assert len(draw(stage, tokenizer)[1]) == 3
    assert "held out: mine: only 3 of the 5 requested examples" in caplog.text


def test_a_corpus_keeps_them(corpus, change, tmp_path):
    assert corpus.held_out["benchmark"].value_counts().to_dict() == {"boolq": 12, "truthfulqa": 12}
    assert corpus.artifact.counts["held_out"] == 24
    assert "held_out.parquet" in corpus.artifact.files
    none = open_corpus(run(replace(change(held_out=0), runs=str(tmp_path))).path)
    assert none.held_out.empty
    others = {k: v for k, v in corpus.artifact.files.items() if k != "held_out.parquet"}
    assert others.items() <= none.artifact.files.items()


def test_their_number_is_checked():
    with pytest.raises(ConfigError, match="injection.held_out is -1"):
        InjectionConfig(held_out=-1)
