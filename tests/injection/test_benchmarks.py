"""The benchmarks' examples, templates and members."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from contamination.core.errors import ConfigError, DataError
from contamination.data.config import BenchmarkConfig
from contamination.injection.config import InjectionStage
from contamination.injection.copies import make_copies
from contamination.injection.pool import (
    Candidates,
    FormattedExample,
    ReadCounts,
    draw_pool,
    read_candidates,
)
from contamination.injection.token_stream import Tokenizer
from tests.injection.conftest import benchmark

TOKENIZER = "tests/golden/target"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(TOKENIZER)


def pool(stage, tokenizer, candidates=None):
    stage = stage.resolved()
    return draw_pool(stage, candidates or read_candidates(stage), tokenizer).examples


def test_every_benchmark_gives_its_formatted_text(stage, tokenizer):
    names = ("boolq", "imdb", "truthfulqa", "commonsenseqa", "lsat")
    stage = replace(stage, benchmark={n: benchmark(n) for n in names})
    stage = replace(stage, injection=replace(stage.injection, sequence_tokens=512))
    examples = pool(stage, tokenizer)
    assert examples.groupby("benchmark")["member"].agg(["sum", "size"]).to_numpy().tolist() == (
        [[12, 24]] * 5
    )
    members = examples[examples["member"]].groupby("benchmark")["occurrences"]
    for drawn in (examples.groupby("benchmark")["member"], members):
        assert drawn.agg(tuple).is_unique  # each benchmark's draw is its own
    for row in examples.itertuples():
        template = stage.benchmark[row.benchmark].template
        assert row.text == template.format(**json.loads(row.fields))
        assert row.n_tokens == len(tokenizer.encode(row.text)) <= 508
    assert examples["example_id"].is_unique
    boolq = examples[examples["benchmark"] == "boolq"]["text"]
    assert boolq.str.fullmatch(r"(?s).+\nQuestion: .+\?\nAnswer: (Yes|No)").all()


def test_the_digest_is_of_all_that_was_read_in_any_order():
    first, second = (FormattedExample(n, {"q": "why", "a": "so"}, "why so") for n in ("b-1", "b-2"))
    read = Candidates("b", BenchmarkConfig(), [first, second], ReadCounts(rows=2))
    backwards = replace(first, fields={"a": "so", "q": "why"})
    assert replace(read, examples=[second, backwards]).digest == read.digest
    changes = {"example_id": "b-3", "fields": {"q": "why", "a": "no"}, "text": "why? so"}
    others = [replace(first, **{name: value}) for name, value in changes.items()]
    found = {replace(read, examples=[other, second]).digest for other in others}
    found |= {read.digest, replace(read, counts=ReadCounts(rows=3)).digest}
    assert len(found) == 5


def test_nonmembers_have_no_occurrences_and_members_the_ladder(stage, tokenizer):
    examples = pool(stage, tokenizer)
    assert (examples.loc[~examples["member"].astype(bool), "occurrences"] == 0).all()
    counts = examples[examples["member"]].groupby("benchmark")["occurrences"].value_counts()
    assert counts.to_dict() == {(b, n): 6 for b in ("boolq", "truthfulqa") for n in (1, 4)}


def test_seeds_change_one_thing_each(stage, change, tokenizer):
    base = pool(stage, tokenizer).set_index("example_id")
    membership = pool(change(membership_seed=7), tokenizer).set_index("example_id")
    occurrence = pool(change(occurrence_seed=7), tokenizer).set_index("example_id")
    other = pool(change(pool_seed=7), tokenizer).set_index("example_id")
    assert set(membership.index) == set(base.index) != set(other.index)
    assert (membership["member"] != base["member"]).any()
    assert (occurrence["member"] == base["member"]).all()
    assert (occurrence["occurrences"] != base["occurrences"]).any()


def test_membership_is_balanced_over_seeds(change, tokenizer):
    read = read_candidates(change().resolved())
    pools = [pool(change(membership_seed=s), tokenizer, read) for s in range(60)]
    mean = sum(each.set_index("example_id")["member"].astype(float) for each in pools) / 60
    assert mean.between(0.2, 0.8).all()  # each example is in about half of the draws


def test_a_share_is_filled_by_copies_with_their_separators(stage, tokenizer):
    """Each of the two benchmarks has half of the corpus's tokens."""
    share = {"_target_": "contamination.injection.occurrences.Share", "share": 0.2}
    examples = pool(replace(stage, occurrences=share), tokenizer)
    tokens = examples["n_tokens"] + 2 * len(tokenizer.encode("\n\n"))
    used = (tokens * examples["occurrences"]).groupby(examples["benchmark"]).sum()
    assert used.between(0.2 * 60_000 / 2 - tokens.max(), 0.2 * 60_000 / 2).all()


def test_a_copys_place_follows_from_its_example_and_the_seed_alone(stage, change, tokenizer):
    def places(stage, examples):
        made = make_copies(stage.resolved(), examples, tokenizer).segments
        return {(examples["example_id"].iloc[s.example], s.copy): s.position for s in made}

    examples = pool(stage, tokenizer)
    own = places(stage, examples)
    assert len(own) == len({*own.values()}) == 60
    assert places(stage, examples[::-1]) == own
    moved = places(change(position_seed=7), examples)
    assert moved.keys() == own.keys()
    assert not {*moved.values()} & {*own.values()}


def test_long_examples_are_shortened_or_left_out(change, stage, tokenizer):
    read = read_candidates(change().resolved())
    known = {each.name: {e.example_id: e for e in each.examples} for each in read}
    lengths = {name: len(tokenizer.encode(e.text)) for name, e in known["truthfulqa"].items()}
    first, limit = next((name, n) for name, n in lengths.items() if n >= 40)
    drawn = draw_pool(change(example_max_tokens=limit).resolved(), read, tokenizer)
    examples = drawn.examples
    assert drawn.counts["boolq"].shortened == drawn.counts["boolq"].drawn == 24
    assert drawn.counts["truthfulqa"].shortened == 0 < drawn.counts["truthfulqa"].too_long
    assert (examples["n_tokens"] <= limit).all()
    assert first in examples["example_id"].tolist()  # of exactly as many tokens
    assert not examples[examples["benchmark"] == "truthfulqa"]["shortened"].any()
    boolq = examples[examples["benchmark"] == "boolq"]
    assert boolq["shortened"].all()
    for row in boolq.itertuples():  # with one word more it would be too long
        fields = known["boolq"][row.example_id].fields
        words = len(json.loads(row.fields)["passage"].split(" ")) + 1
        longer = {**fields, "passage": " ".join(fields["passage"].split(" ")[:words])}
        text = stage.benchmark["boolq"].template.format(**longer)
        assert len(tokenizer.encode(text)) > limit


def test_an_example_of_which_nothing_visible_would_be_left_is_left_out(change, tokenizer, tmp_path):
    path = tmp_path / "mine.jsonl"
    texts = [*(f"text {i}" for i in range(4)), *(f"\u200b {'word-' * 40}{i}" for i in range(9))]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    rows = {"_target_": "contamination.data.readers.files.FileRows", "path": str(path)}
    source = {"rows": rows, "fields": {"text": "{text}"}}
    config = BenchmarkConfig(template="{text}", shorten="text", sources={"file": source})
    stage = change(members=2, nonmembers=2, example_max_tokens=20)
    drawn = pool(replace(stage, benchmark={"mine": config}), tokenizer)
    assert sorted(drawn["text"]) == texts[:4]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"members": 1100}, "boolq .*members=1100"),
        ({"benchmark_source": "hubb"}, "Did you mean hub"),
        ({"example_max_tokens": 500}, "example_max_tokens is 500"),
        ({"example_max_tokens": 10}, "only"),
    ],
)
def test_a_pool_that_cannot_be_drawn_is_said(change, tokenizer, fields, match):
    with pytest.raises(ConfigError, match=match):
        pool(change(**fields), tokenizer)


def test_a_template_is_checked_against_the_fields(stage, tokenizer):
    wrong = replace(benchmark("boolq"), template="{pasage}")
    with pytest.raises(ConfigError, match="'pasage'.*Did you mean passage"):
        pool(replace(stage, benchmark={"boolq": wrong}), tokenizer)


def test_an_only_source_needs_no_choice(stage, tokenizer):
    boolq = benchmark("boolq")
    alone = replace(boolq, sources={"mine": boolq.sources["embedded"]})
    assert len(pool(replace(stage, benchmark={"boolq": alone}), tokenizer)) == 24


def test_a_row_without_a_column_is_named(stage, tokenizer):
    boolq = benchmark("boolq")
    source = {**boolq.sources["embedded"], "fields": {**boolq.sources["embedded"]["fields"],
              "answer": "{nothing}"}}  # fmt: skip
    wrong = replace(boolq, sources={"embedded": source})
    with pytest.raises(DataError, match="combined.jsonl, row .*'nothing'; it has question, pass"):
        pool(replace(stage, benchmark={"boolq": wrong}), tokenizer)


def test_no_benchmark_is_called_as_the_mean_over_benchmarks():
    with pytest.raises(ConfigError, match="benchmark is 'all': this name is reserved for the mean"):
        InjectionStage(benchmark={"all": BenchmarkConfig()})


def test_a_second_draw_from_the_same_candidates_is_the_first(stage, tokenizer):
    stage = stage.resolved()
    candidates = read_candidates(stage)
    first, second = (draw_pool(stage, candidates, tokenizer) for _ in range(2))
    pd.testing.assert_frame_equal(first.examples, second.examples)
    assert first.counts == second.counts
