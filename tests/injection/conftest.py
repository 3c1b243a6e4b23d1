"""A small contaminated corpus of real data."""

from dataclasses import replace

import pytest
import yaml

from contamination.core.config import CONF
from contamination.data.config import BenchmarkConfig
from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.run import run


def benchmark(name):
    return BenchmarkConfig(
        **yaml.safe_load((CONF / "benchmark" / f"{name}.yaml").read_text())[name]
    )


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """News and books; BoolQ and TruthfulQA, 12 + 12 each, 1 or 4 times, in 60,000 tokens."""
    return InjectionStage(
        runs=str(tmp_path_factory.mktemp("runs")),
        corpus={
            "name": "embedded",
            "_target_": "contamination.data.readers.embedded.EmbeddedCorpus",
            "subsets": ["common_crawl", "book"],
        },
        benchmark={name: benchmark(name) for name in ("boolq", "truthfulqa")},
        occurrences={"_target_": "contamination.injection.occurrences.Ladder", "rungs": [1, 4]},
        tokenizer=TokenizerConfig(path="tests/golden/target"),
        injection=InjectionConfig(
            members=12, nonmembers=12, budget_tokens=60_000, sequence_tokens=128
        ),
    )


@pytest.fixture(scope="session")
def corpus(stage):
    return open_corpus(run(stage).path)


@pytest.fixture
def change(stage):
    """The stage with some fields of its injection node changed."""
    return lambda **fields: replace(stage, injection=replace(stage.injection, **fields))
