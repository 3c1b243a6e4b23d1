"""Ranges of config fields, and the errors for values outside them."""

from dataclasses import dataclass

import pytest

from contamination.core.config import (
    DEVICE,
    FRACTION,
    FRACTION_OR_ZERO,
    POSITIVE,
    PROPER_FRACTION,
    Range,
    Ranged,
    at_least,
    between,
    identity_data,
    one_of,
    ranged_field,
    runtime_field,
)
from contamination.core.errors import ConfigError

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Node(Ranged, node="some.node"):
    count: int = ranged_field(3, at_least(1))
    word: str | None = ranged_field(None, one_of("ab"))
    sizes: list[int] = ranged_field([1], Range(all, "give no 0."))
    workers: int = runtime_field(1, at_least(1))


@pytest.mark.parametrize(
    ("range_", "inside", "outside"),
    [
        (FRACTION, [1e-9, 1], [0, 1.1, NAN]),
        (PROPER_FRACTION, [0.5], [0, 1, NAN]),
        (FRACTION_OR_ZERO, [0, 1], [-0.1, 1.1, NAN]),
        (POSITIVE, [1e-9, 7], [0, -1, INF, NAN]),
        (at_least(2), [2, 2.5], [1.9, INF, NAN]),
        (between(2, 4), [2, 4], [1, 5, NAN]),
        (one_of(["a", "b"]), ["a"], ["c", "", None]),
        (DEVICE, ["auto", "cpu", "cuda:1"], ["tpu", ""]),
    ],
)
def test_the_ends_of_each_range(range_, inside, outside):
    assert all(map(range_.allows, inside))
    assert not any(map(range_.allows, outside))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": 0}, "some.node.count is 0: give 1 or more."),
        ({"word": "c"}, "some.node.word is 'c': choose from a, b, or null."),
        ({"sizes": [1, 0]}, "some.node.sizes is [1, 0]: give no 0."),
        ({"workers": 0}, "some.node.workers is 0: give 1 or more."),
    ],
)
def test_a_value_out_of_its_range_is_named_with_its_remedy(given, said):
    with pytest.raises(ConfigError) as error:
        Node(**given)
    assert str(error.value) == said


def test_defaults_and_none_where_it_may_be_are_no_errors_and_lists_are_not_shared():
    assert Node(word=None).sizes == [1]
    assert Node().sizes is not Node().sizes
    assert "workers" not in identity_data(Node())
    assert Node.node == "some.node"


def test_a_field_that_may_not_be_none_is_checked():
    with pytest.raises(TypeError):
        Node(count=None)
