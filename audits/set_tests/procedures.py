"""The set tests as procedures: what a test needs of a set, and how its draw is made anew.

`published` gives the p-value of a set as it was published. `redrawn` makes the draw again on which
the test rests (which version was published, which order, which targets, who is a member) and keeps
the model's scores: for a model that did not see the set, the new draw is as likely as the actual
one, so that its p-values are those of the test without contamination. `held_out` is the same for
what was held out, under a model that did see the set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contamination.audits.benchmark.exchangeability import (
    RELABELLINGS,
    Design,
    combined_scores,
    set_test,
)
from contamination.audits.set_tests.context_share import context_share_tail
from contamination.audits.set_tests.dataset_inference import dataset_inference_p_value
from contamination.audits.set_tests.dyepack import dyepack_tail
from contamination.audits.set_tests.order_test import exact_order_tail, order_t_p_value
from contamination.audits.set_tests.sets import Rows, ScoredExamples, ScoredOrders, ScoredSet
from contamination.audits.set_tests.version_rank import ScoredVersions, Tail, rank_tail
from contamination.core.statistics.bootstrap import Scores

Random = np.random.Generator
FEWEST_SHARDS = 5
"""The fewest shards of an order test."""
FEWEST_ITEMS = 10
"""The fewest items or examples of other tests."""
REDRAWN_RELABELLINGS = 999
"""Of sets whose draw is made anew, of which there are many."""


class Procedure(ABC):
    """One set test.

    Class attributes:
        name: its name in tables.
        assumes: what its p-value rests on.
        unit: what is counted.
        has_draw: whether it rests on a draw that can be made anew any number of times.
        fewest_in_part: the fewest units of a part of a set.
    """

    name: ClassVar[str]
    assumes: ClassVar[str]
    unit: ClassVar[str]
    has_draw: ClassVar[bool] = True
    fewest_in_part: ClassVar[int] = 2

    @abstractmethod
    def units(self, data: ScoredSet) -> int:
        """Returns how many units the set has for the test; 0: it can't be tested."""

    @abstractmethod
    def published(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of some of the set's units, as they were published."""

    @abstractmethod
    def redrawn(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of some of the units after a new draw."""

    def held_out_units(self, data: ScoredSet) -> int:
        """Returns how many units were held out; 0: none."""
        return 0

    def held_out(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of some of the units that were held out, after a draw."""
        raise NotImplementedError

    def examples_per_unit(self, data: ScoredSet) -> float:
        """Returns how many examples a unit has, on average."""
        return 1.0


def _p_of_items(versions: ScoredVersions, items: Rows) -> Tail:
    return rank_tail(versions.of_items(items))


def _items(versions: ScoredVersions | None) -> int:
    items = 0 if versions is None else int(versions.item.max()) + 1
    return items if items >= FEWEST_ITEMS else 0


class VersionRank(Procedure):
    """The rank of the published versions among their siblings."""

    name = "versions"
    assumes = "one of K versions of each item was drawn at random and published"
    unit = "items"

    def units(self, data: ScoredSet) -> int:
        """Returns the number of items."""
        return _items(data.versions)

    def published(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of the versions that were inserted."""
        assert data.versions is not None
        return _p_of_items(data.versions, units)

    def redrawn(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value after drawing a version of each item."""
        assert data.versions is not None
        return _p_of_items(data.versions.redrawn(rng), units)

    def held_out_units(self, data: ScoredSet) -> int:
        """Returns the number of items of which no version was inserted."""
        return _items(data.held_out_versions)

    def held_out(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of items of which no version was inserted."""
        assert data.held_out_versions is not None
        return _p_of_items(data.held_out_versions.redrawn(rng), units)


def _shards(orders: ScoredOrders | None) -> int:
    shards = 0 if orders is None else len(orders.published)
    return shards if shards >= FEWEST_SHARDS else 0


class OrderTest(Procedure):
    """The published order of shards against random ones, by Student's t over shards."""

    name = "order, t"
    assumes = "the order was drawn at random; shards' differences are nearly normal"
    unit = "shards"

    def units(self, data: ScoredSet) -> int:
        """Returns the number of shards."""
        return _shards(data.orders)

    def published(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of the published order of some shards."""
        assert data.orders is not None
        return self._p_value(data.orders.published[units], data.orders.random[units])

    def redrawn(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of another order of each shard, drawn among those scored."""
        return self._p_of_draw(data.orders, units, rng)

    def held_out_units(self, data: ScoredSet) -> int:
        """Returns the number of shards that were not inserted."""
        return _shards(data.held_out_orders)

    def held_out(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of an order of each shard that was not inserted."""
        return self._p_of_draw(data.held_out_orders, units, rng)

    def _p_of_draw(self, shards: ScoredOrders | None, units: Rows, rng: Random) -> Tail:
        assert shards is not None
        orders = np.column_stack([shards.published, shards.random])[units]
        orders = rng.permuted(orders, axis=1)
        return self._p_value(orders[:, 0], orders[:, 1:])

    def examples_per_unit(self, data: ScoredSet) -> float:
        """Returns how many examples a shard has, on average."""
        assert data.orders is not None
        return data.orders.per_shard

    def _p_value(self, published: Scores, random: Scores) -> Tail:
        p_value = order_t_p_value(published, random)
        return Tail(p_value, p_value)


class ExactOrderTest(OrderTest):
    """The rank of the published order of each shard among all its orders."""

    name = "order, exact"
    assumes = "the order was drawn at random"

    def _p_value(self, published: Scores, random: Scores) -> Tail:
        return exact_order_tail(published, random)


class DyePack(Procedure):
    """The number of backdoors whose target is the model's most frequent answer."""

    name = "backdoors"
    assumes = "the target of each backdoor was drawn at random among its options"
    unit = "backdoors"

    def units(self, data: ScoredSet) -> int:
        """Returns the number of backdoors."""
        return 0 if data.backdoors is None else len(data.backdoors.answers)

    def published(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of the actual targets."""
        assert data.backdoors is not None
        return self._p_value(data, units, data.backdoors.targets[units])

    def redrawn(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of targets that are drawn anew."""
        assert data.backdoors is not None
        return self._p_value(data, units, rng.integers(data.backdoors.options[units]))

    def _p_value(self, data: ScoredSet, units: Rows, targets: NDArray[np.intp]) -> Tail:
        assert data.backdoors is not None
        activated = int((data.backdoors.answers[units] == targets).sum())
        return dyepack_tail(activated, data.backdoors.options[units].tolist())


class Relabelling(Procedure):
    """The audit of a set of questions: members against held-out twins, by relabelling."""

    name = "twins, relabelled"
    assumes = "who was held out was drawn at random (or: the two sets do not differ as texts)"
    unit = "members"

    def units(self, data: ScoredSet) -> int:
        """Returns the number of members, at most that of held-out examples."""
        members, others = _sides(data)
        return _enough(min(len(members), len(others)))

    def published(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of some members against as many held-out examples."""
        members, others = _sides(data)
        rows = np.append(members[units], rng.choice(others, len(units), replace=False))
        return self._p_value(data, rows, rng, RELABELLINGS)

    def redrawn(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the same after drawing anew who is a member."""
        members, others = _sides(data)
        rows = np.append(members[units], rng.choice(others, len(units), replace=False))
        return self._p_value(data, rng.permutation(rows), rng)

    def held_out_units(self, data: ScoredSet) -> int:
        """Returns half the number of held-out examples."""
        return _enough(len(_sides(data)[1]) // 2)

    def held_out(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of held-out examples against as many others of them."""
        return self._p_value(data, rng.permutation(_sides(data)[1])[: 2 * len(units)], rng)

    def _p_value(
        self, data: ScoredSet, rows: Rows, rng: Random, relabellings: int = REDRAWN_RELABELLINGS
    ) -> Tail:
        """Returns the p-value of the first half of the rows against the second."""
        assert data.examples is not None
        score = combined_scores(data.examples.scores[:, rows])
        design, seed = Design(_first_half(rows), np.arange(len(rows))), int(rng.integers(2**31))
        p_value = set_test(score, design, seed, relabellings=relabellings).p_value
        return Tail(p_value, p_value - 1 / (1 + relabellings))


class DatasetInference(Relabelling):
    """Dataset inference as published, one division into halves."""

    name = "dataset inference"
    fewest_in_part = 4  # so that each half has two texts of each side
    splits: ClassVar[int] = 1

    def _p_value(
        self, data: ScoredSet, rows: Rows, rng: Random, relabellings: int = REDRAWN_RELABELLINGS
    ) -> Tail:
        assert data.examples is not None
        scores, seed = data.examples.scores[:, rows], int(rng.integers(2**31))
        p_value = dataset_inference_p_value(scores, _first_half(rows), seed, self.splits)
        return Tail(p_value, p_value)


class ContextShare(Procedure):
    """CoDeC: whether more than half of the texts drop after others of the set."""

    name = "CoDeC"
    assumes = "context moves a text's confidence up as often as down if the model knows none"
    unit = "texts"
    has_draw = False

    def units(self, data: ScoredSet) -> int:
        """Returns the number of members that could be compared."""
        return _enough(len(_compared(data.examples, members=True)))

    def published(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of some members' share."""
        return _share_p(data.examples, _compared(data.examples, members=True)[units])

    def redrawn(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the same as `published`: nothing was drawn."""
        return self.published(data, units, rng)

    def held_out_units(self, data: ScoredSet) -> int:
        """Returns the number of held-out examples that could be compared."""
        return _enough(len(_compared(data.examples, members=False)))

    def held_out(self, data: ScoredSet, units: Rows, rng: Random) -> Tail:
        """Returns the p-value of held-out examples' share."""
        return _share_p(data.examples, _compared(data.examples, members=False)[units])


def _sides(data: ScoredSet) -> tuple[Rows, Rows]:
    if data.examples is None:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    is_member = data.examples.is_member
    return np.flatnonzero(is_member), np.flatnonzero(~is_member)


def _first_half(rows: Rows) -> NDArray[np.bool_]:
    is_first: NDArray[np.bool_] = np.arange(len(rows)) < len(rows) // 2
    return is_first


def _enough(number: int) -> int:
    return number if number >= FEWEST_ITEMS else 0


def _compared(examples: ScoredExamples | None, *, members: bool) -> Rows:
    if examples is None or not len(examples.drops):
        return np.empty(0, np.intp)
    return np.flatnonzero((examples.is_member == members) & np.isfinite(examples.drops))


def _share_p(examples: ScoredExamples | None, rows: Rows) -> Tail:
    assert examples is not None
    return context_share_tail(int((examples.drops[rows] > 0).sum()), len(rows))


RELABELLED = Relabelling()
PROCEDURES: Mapping[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        VersionRank(), ExactOrderTest(), OrderTest(), DyePack(), RELABELLED, DatasetInference(),
        ContextShare(),
    )
}  # fmt: skip
"""The tests by name."""
