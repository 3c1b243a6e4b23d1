"""A benchmark with too few examples gives fewer members and non-members, where that is allowed."""

import json
import logging
from dataclasses import replace

import pytest

from contamination.analysis.provenance import ledger_counts
from contamination.core.errors import ConfigError
from contamination.data.config import BenchmarkConfig
from contamination.injection import run
from contamination.injection.config import InjectionConfig
from contamination.injection.pool import draw_pool, read_candidates
from contamination.injection.pool_sizes import ADAPTED_SIZES, PoolSizes, choose_sizes
from contamination.injection.token_stream import Tokenizer

EXAMPLES = 45


@pytest.fixture
def small(stage, tmp_path):
    """The stage with one benchmark of 45 questions in a file."""
    path = tmp_path / "mine.jsonl"
    rows = [{"question": f"Which lock has number {n}?", "answer": "oak"} for n in range(EXAMPLES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {
        "rows": {"_target_": "contamination.data.readers.files.FileRows", "path": str(path)},
        "fields": {"question": "{question}", "answer": "{answer}"},
    }
    config = BenchmarkConfig(template="{question} {answer}", sources={"file": source})
    return replace(stage, runs=str(tmp_path / "runs"), benchmark={"mine": config})


@pytest.mark.parametrize(
    ("fields", "available", "expected"),
    [
        ({}, 200, PoolSizes(100, 100)),
        ({}, 121, PoolSizes(60, 60)),
        ({}, 1, None),  # a member, and no non-member
        ({"members": 100, "nonmembers": 300}, 40, None),
        ({"members": 100, "nonmembers": 300, "adapt_sizes": True}, 40, PoolSizes(10, 30)),
        ({"members": 5, "nonmembers": 0, "adapt_sizes": True}, 3, PoolSizes(3, 0)),
        ({"adapt_sizes": False}, 121, None),
    ],
)
def test_sizes_keep_the_proportion_that_is_asked_for(fields, available, expected):
    assert choose_sizes(InjectionConfig(**fields), available) == expected


def with_sizes(stage, **fields):
    return replace(stage, injection=replace(stage.injection, **fields))


def test_an_explicit_number_that_cannot_be_met_is_an_error_with_its_remedy(small):
    asked = with_sizes(small, members=50, nonmembers=100)
    said = "45 distinct examples, but .* require 150: lower .* uses 15 members and 30 non-members"
    with pytest.raises(ConfigError, match=said):
        read_candidates(asked)
    read_candidates(with_sizes(asked, adapt_sizes=True))


def test_examples_that_are_too_long_count_as_missing(small):
    asked = with_sizes(small, members=20, nonmembers=20, example_max_tokens=3, adapt_sizes=True)
    tokenizer = Tokenizer(str(small.tokenizer.path))
    with pytest.raises(ConfigError, match="only 0 of 45 .* or choose a larger source"):
        draw_pool(asked.resolved(), read_candidates(asked), tokenizer)


def test_what_is_adapted_is_recorded_warned_of_and_shown(small, caplog):
    asked = with_sizes(small, members=100, nonmembers=100)  # the defaults
    made = run.run(asked)
    sizes = {"members": 22, "nonmembers": 22, "asked_members": 100, "asked_nonmembers": 100}
    assert made.counts[ADAPTED_SIZES] == {"mine": sizes}
    assert made.counts["members"] == made.counts["nonmembers"] == 22
    assert made.counts["pool"]["mine"]["drawn"] == 44
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        run.run(asked)  # a corpus that is reused warns again
    assert "22 members and 22 non-members are drawn, instead of 100 members" in caplog.text
    shown = ledger_counts(made.table("ledger.parquet"), made.counts)
    assert shown["members of mine (100 asked for)"] == 22


def test_a_swapped_replicate_of_an_adapted_pool_has_the_same_examples(small):
    tokenizer = Tokenizer(str(small.tokenizer.path))
    pools = []
    for swap in (False, True):
        asked = with_sizes(small, members=100, nonmembers=100, swap_members=swap).resolved()
        pools.append(draw_pool(asked, read_candidates(asked), tokenizer).examples)
    plain, swapped = pools
    assert plain["example_id"].tolist() == swapped["example_id"].tolist()
    assert (plain["member"] != swapped["member"]).all()
    assert plain["member"].sum() == swapped["member"].sum() == 22


def test_a_corpus_with_enough_examples_records_nothing_and_keeps_its_name(small):
    made = run.run(small)
    assert ADAPTED_SIZES not in made.counts
    assert run.run(with_sizes(small, adapt_sizes=True)).path == made.path
