"""Members drawn by independent coins, and the check of a corpus against its draw and ledger."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from contamination.core.errors import ArtifactError, ConfigError
from contamination.injection.config import InjectionConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.membership import check_membership, draw_membership
from contamination.injection.pool_sizes import PoolSizes
from contamination.injection.run import prove_finished_corpus, run

SIZES = PoolSizes(60, 60)


def draws(membership, seeds=400, **fields):
    return np.array(
        [
            draw_membership(
                InjectionConfig(membership=membership, membership_seed=seed, **fields), "qa", SIZES
            )
            for seed in range(seeds)
        ]
    )


def test_coins_are_fair_and_independent_and_exact_halves_are_not():
    coins, exact = draws("bernoulli"), draws("exact")
    assert binomtest(int(coins.sum()), coins.size).pvalue > 0.01
    # independent coins: the number of members varies as a binomial, var = n/4 = 30
    assert 22 < coins.sum(axis=1).var() < 39
    assert (exact.sum(axis=1) == 60).all()
    # what others are says nothing about one: no correlation with the sum of the rest
    rest = coins[:, 1:].sum(axis=1)
    assert abs(np.corrcoef(coins[:, 0], rest)[0, 1]) < 0.15
    assert np.array_equal(coins, draws("bernoulli"))
    assert np.array_equal(draws("bernoulli", swap_members=True), ~coins)


def test_benchmarks_have_coins_of_their_own():
    config = InjectionConfig(membership="bernoulli", membership_seed=3)
    first, second = (draw_membership(config, name, SIZES) for name in ("boolq", "imdb"))
    assert 0.25 < (first == second).mean() < 0.75


def test_a_coin_is_fair():
    with pytest.raises(ConfigError, match=r"injection.membership is 'bernoulli': its coin is fair"):
        InjectionConfig(members=5, nonmembers=6, membership="bernoulli")
    with pytest.raises(ConfigError, match=r"injection.membership is 'coin': choose from exact"):
        InjectionConfig(membership="coin")


@pytest.fixture(scope="module")
def coin_corpus(stage):
    return open_corpus(run(replace(stage, injection=replace(
        stage.injection, membership="bernoulli", budget_tokens=60_000))).path)  # fmt: skip


def test_a_corpus_of_coins_has_the_pool_of_an_exact_one_and_is_proved(coin_corpus, corpus):
    assert set(coin_corpus.examples["example_id"]) == set(corpus.examples["example_id"])
    by_benchmark = coin_corpus.examples.groupby("benchmark")["member"].sum()
    assert len(coin_corpus.ledger) == coin_corpus.examples["occurrences"].sum()
    assert (by_benchmark != 12).any()  # of this seed; an exact half would be 12 and 12
    assert not prove_finished_corpus(coin_corpus.artifact.path).failures
    check_membership("audit.cell", coin_corpus)


def test_an_exact_half_is_refused(corpus):
    with pytest.raises(ArtifactError, match="audit.cell is .*membership is 'exact'.*=bernoulli"):
        check_membership("audit.cell", corpus)


def edited(corpus, **tables):
    """The same corpus, with other tables in the place of those that were stored."""
    other = open_corpus(corpus.artifact.path)
    vars(other).update(tables)  # where cached properties keep what they have read
    return other


def test_edited_labels_are_noticed(coin_corpus):
    examples = coin_corpus.examples.copy()
    rows = examples.groupby("member").head(1).index
    examples.loc[rows, "member"] = ~examples.loc[rows, "member"].to_numpy(bool)
    with pytest.raises(ArtifactError, match="not the members that the recorded seed draws"):
        check_membership("audit.cell", edited(coin_corpus, examples=examples))


def test_a_ledger_without_a_member_is_noticed(coin_corpus):
    ledger = coin_corpus.ledger
    fewer = ledger[ledger["example_id"] != ledger["example_id"].iloc[0]]
    with pytest.raises(ArtifactError, match="1 examples of .* that the ledger has"):
        check_membership("audit.cell", edited(coin_corpus, ledger=fewer))
