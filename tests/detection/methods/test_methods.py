"""What methods share: shares of tokens, keys of passes."""

import numpy as np
import pytest

from contamination.core.errors import ConfigError
from contamination.detection.methods._shared import count_for_fraction, mean_of_lowest
from contamination.detection.methods.min_k import MinK
from contamination.detection.methods.registry import MAX_VARIANTS, build_methods
from contamination.detection.pass_store import LIST_COLUMNS
from contamination.detection.passes import (
    FLOATS,
    NUMBERS,
    ORIGINAL,
    Example,
    Pass,
    TokenStats,
    UndeclaredNumberError,
    UndeclaredPassError,
)

MIN_K = "contamination.detection.methods.min_k.MinK"


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [(0.2, 10, 2), (0.2, 4, 1), (0.3, 10, 3), (0.29, 100, 29), (0.2, 1, 1), (1.0, 7, 7),
     (0.07, 100, 7), (0.58, 50, 29), (0.2, 14, 2)],
)  # fmt: skip
def test_count_is_the_floor_and_at_least_one(k, n, expected):
    assert count_for_fraction(k, n) == expected


def test_low_is_the_mean_of_the_smallest():
    values = np.array([3, -1, 2, -5, 0], dtype=np.float32)
    assert mean_of_lowest(values, 0.4) == -3.0
    assert mean_of_lowest(values, 0.1) == -5.0
    assert mean_of_lowest(values, 1.0) == pytest.approx(values.mean())
    many = np.random.default_rng(0).permutation(2000).astype(np.float32)
    assert [mean_of_lowest(many, k) for k in (0.0005, 0.001, 0.25)] == [0, 0.5, 249.5]


def test_pass_is_hashable_and_its_key_stable():
    swap = Pass("target", "swap", n=5, fraction=0.3)
    assert swap == Pass("target", "swap", fraction=0.3, n=5)
    assert len({swap, Pass("target", "swap", fraction=0.3, n=5), ORIGINAL, Pass()}) == 2
    assert (swap.key, ORIGINAL.key) == ("target/swap?fraction=0.3&n=5", "target/original")


def test_a_view_of_several_texts_has_several_stats():
    one, two = (TokenStats(*[np.zeros(n, np.float32)] * 4, np.zeros(n, np.int32)) for n in (2, 3))
    example = Example("x", "text", {ORIGINAL: (one,), Pass(view="swap"): (one, two)})
    assert example.stats(ORIGINAL) is one
    assert [len(s) for s in example.all_stats(Pass(view="swap"))] == [2, 3]
    with pytest.raises(UndeclaredPassError) as error:
        example.stats(Pass("reference"))
    assert str(error.value) == (
        "pass reference/original was read but is not declared; declared: target/original, "
        "target/swap. Add it to the method's `passes`."
    )


def test_statistics_are_cut_and_joined_number_by_number():
    whole = TokenStats(*np.arange(20.0).reshape(4, 5), top_id=np.arange(5))
    assert list(vars(whole)) == ["logprob", "mean", "std", "top_logprob", "top_id"]
    assert vars(whole[1:3]).keys() == vars(whole).keys()
    again = TokenStats.concatenate([whole[:1], whole[1:3], whole[3:]])
    for name, column in vars(whole).items():
        np.testing.assert_array_equal(vars(again)[name], column)
    assert (len(whole), len(whole[1:3]), len(again)) == (5, 2, 5)
    assert whole[1:3].std.tolist() == [11, 12]


def test_a_number_that_is_not_there_is_not_read_silently():
    stats = TokenStats(logprob=np.zeros(3), top_id=np.zeros(3))
    with pytest.raises(UndeclaredNumberError) as error:
        stats.mean  # noqa: B018
    assert str(error.value) == (
        "mean was read but is not available; available: logprob, top_id. Add it to the method's "
        "`numbers`."
    )
    with pytest.raises(UndeclaredNumberError, match="available: none"):
        len(TokenStats())
    with pytest.raises(AttributeError, match="^entropy$"):
        stats.entropy  # noqa: B018


def test_a_list_of_values_is_one_method_each():
    found = build_methods({"min_k": {"_target_": MIN_K, "k": [0.1, 0.2]}})
    assert found == {("min_k", "k=0.1"): MinK(k=0.1), ("min_k", "k=0.2"): MinK(k=0.2)}


@pytest.mark.parametrize(
    "nodes",
    [
        {"min_k": {"_target_": MIN_K, "k": [0.2] * (MAX_VARIANTS + 1)}},
        {f"m{n}": {"_target_": MIN_K, "k": [0.1, 0.2]} for n in range(MAX_VARIANTS // 2 + 1)},
        {"m": {"_target_": MIN_K, "k": [0.2] * 2000, "l": [0] * 10**6, "m": [0] * 10**6}},
    ],
)
def test_the_number_of_variants_is_limited(nodes):
    with pytest.raises(ConfigError, match=r"method has [\d,]+ variants in .* give at most 1,000"):
        build_methods(nodes)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            {"_target_": "contamination.detection.methods.mink.MinK"},
            r"method\.m\._target_ is .*no such class",
        ),
        (
            {"_target_": "contamination.detection.methods.min_k.Mink"},
            r"method\.m\._target_ is .*no such class",
        ),
        ({"_target_": "pathlib.Path"}, "not a method"),
        ({"_target_": "contamination.detection.methods.base.Method"}, "not a method"),
        ({"k": 0.2}, "give a mapping with"),
        ({"_target_": MIN_K, "kk": 0.2}, r"method\.m\.kk: unknown hyper.*Did you mean k"),
        ({"_target_": "contamination.detection.methods.loss.Loss", "k": 0.2}, "It has none"),
        ({"_target_": MIN_K, "k": 0}, r"method\.m\.k is 0.*above 0 and at most 1"),
        ({"_target_": MIN_K, "k": [0.2, 1.2]}, r"method\.m\.k is 1\.2"),
        ({"_target_": MIN_K, "k": "many"}, r"method\.m\.k: Value 'many'"),
    ],
)
def test_a_wrong_node_is_one_paragraph(node, words):
    with pytest.raises(ConfigError, match=words) as error:
        build_methods({"m": node})
    assert "\n" not in str(error.value)


def test_the_columns_of_stored_passes_follow_from_the_declared_numbers():
    assert list(NUMBERS) == list(TokenStats.__annotations__)
    stored = {
        name: np.dtype(kind.value_type.to_pandas_dtype()) for name, kind in LIST_COLUMNS.items()
    }
    assert stored == NUMBERS
    assert set(NUMBERS) - set(FLOATS) == {"top_id"}
