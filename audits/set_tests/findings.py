"""How often each test is right: type-I error and power with intervals; which items are listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.benchmark.blind import BLIND_LEVEL, cached_blind_tests
from contamination.audits.benchmark.exchangeability import combined_scores
from contamination.audits.set_tests.outcomes import PUBLISHED
from contamination.audits.set_tests.procedures import RELABELLED
from contamination.audits.set_tests.proportion import (
    scaled_adjusted_p_values,
    share_not_trained_on,
)
from contamination.audits.set_tests.sets import ScoredExamples, ScoredSet, SetName
from contamination.core.seeds import derive_seed
from contamination.core.statistics.clopper_pearson import clopper_pearson
from contamination.core.statistics.significance import conformal_p_values
from contamination.data.examples import make_text
from contamination.data.texts import Texts

FEWEST_FOR_UNIFORMITY = 20
"""The fewest p-values whose uniformity is tested."""
SHARES = (0.0, 0.2, 0.5, 0.8)
"""The shares of members in the sets whose items are listed."""
FEWEST_HELD_OUT = 20
"""The fewest held-out examples: half of them are compared with, half are tested."""
BLIND_TESTS = ("twins, relabelled", "dataset inference")
"""The tests that rest on held-out texts being alike."""
DIFFERENT = "can't be told: the texts differ"
VERDICTS = {
    (True, True): "right: it was seen",
    (True, False): "missed",
    (False, True): "false alarm",
    (False, False): "right: no evidence",
}
"""The verdict by the truth and whether the test rejects."""
Lists = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class SetFindings:
    """The findings over all sets.

    Attributes:
        sets: the sets.
        outcomes: see `outcomes.run_tests`.
        blind_p: the blind p-value of sets that have held-out examples.
        alpha: the level of the tests.
        item_level: the share of wrong ones that lists of items may have.
        seed: of the lists' divisions.
    """

    sets: Sequence[ScoredSet]
    outcomes: pd.DataFrame
    blind_p: Mapping[SetName, float]
    alpha: float
    item_level: float
    seed: int

    @cached_property
    def errors(self) -> pd.DataFrame:
        """One row per test and origin: p-values of sets that the model did not see.

        Cells often share the model before the training and the set; such a set counts once.
        Columns: test, origin, sets, rejected, share with the ends of its interval (low, high), and
        uniform_p, the p-value of a Kolmogorov-Smirnov test of uniformity of randomised p-values
        (NaN: too few).
        """
        unseen = self.outcomes[~self.outcomes["is_leaked"].astype(bool) & self._is_first]
        return pd.DataFrame(
            {
                "test": test,
                "origin": origin,
                **self._rate(rows),
                "uniform_p": _uniform_p(rows, self.seed),
            }  # fmt: skip
            for (test, origin), rows in unseen.groupby(["test", "origin"], sort=False)
        )

    @property
    def _is_first(self) -> pd.Series[bool]:
        """Which p-values are no repetition: the same set under a model that cells share."""
        digests = {data.name: data.digest for data in self.sets}
        sets = pd.Series([digests[name] for name in _names(self.outcomes)], self.outcomes.index)
        keys = self.outcomes[["cell", "occurrences", "test", "units"]].assign(set=sets)
        part = keys.groupby(
            [*keys], sort=False
        ).cumcount()  # the parts of one set are no repetition
        is_repeated = keys[["test", "units", "set"]].assign(part=part).duplicated()
        is_shared = ~self.outcomes["saw_it"].astype(bool) & (self.outcomes["origin"] == PUBLISHED)
        return ~(is_repeated & is_shared)

    @cached_property
    def powers(self) -> pd.DataFrame:
        """One row per test, learning rate, occurrences and size: sets that the model saw."""
        seen = self.outcomes[self.outcomes["is_leaked"].astype(bool)]
        by = ["test", "learning_rate", "examples", "occurrences"]
        return pd.DataFrame(
            {**dict(zip(by, key, strict=True)), **self._rate(rows)}
            for key, rows in seen.groupby(by)
        )

    def _rate(self, rows: pd.DataFrame) -> dict[str, Any]:
        rejected = int((rows["p_value"] <= self.alpha).sum())
        low, high = clopper_pearson(rejected, len(rows))
        share = rejected / len(rows)
        return {"sets": len(rows), "rejected": rejected, "share": share, "low": low, "high": high}

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """One row per whole set and test: p_value, blind_p, is_leaked (the truth) and verdict."""
        rows = self.outcomes[self.outcomes["is_whole"] & (self.outcomes["origin"] == PUBLISHED)]
        blind = [
            self.blind_p.get(name, np.nan) if test in BLIND_TESTS else np.nan
            for name, test in zip(_names(rows), rows["test"], strict=True)
        ]
        verdicts = [
            DIFFERENT if blind_p <= BLIND_LEVEL else VERDICTS[bool(leaked), p_value <= self.alpha]
            for leaked, p_value, blind_p in zip(
                rows["is_leaked"], rows["p_value"], blind, strict=True
            )
        ]
        return rows.assign(blind_p=blind, verdict=verdicts).reset_index(drop=True)

    @cached_property
    def context_shares(self) -> pd.DataFrame:
        """One row per learning rate, occurrences and side: CoDeC's share of texts that drop.

        Columns: learning_rate, occurrences (0: the model before the training), side, texts, share
        and the ends of its interval (low, high).
        """
        rows, known = [], set[tuple[float, bytes]]()
        for data in self.sets:
            if data.examples is None:
                continue
            key = data.name.learning_rate, data.examples.drops.tobytes()
            if not data.name.saw_it and key in known:  # cells share the model before the training
                continue
            known.add(key)
            for member, side in ((True, "members"), (False, "held out")):
                drops = data.examples.drops[data.examples.is_member == member] if len(
                    data.examples.drops) else np.empty(0)  # fmt: skip
                drops = drops[np.isfinite(drops)]
                dose = data.name.occurrences if data.name.saw_it else 0
                about = (data.name.learning_rate, dose, side)
                rows.append((*about, len(drops), int((drops > 0).sum())))
        by = ["learning_rate", "occurrences", "side"]
        table = pd.DataFrame(rows, columns=[*by, "texts", "dropped"])
        table = table.groupby(by, sort=False).sum().reset_index()
        table = table[table["texts"] > 0].sort_values(by, ignore_index=True)
        ends = [
            clopper_pearson(*pair) for pair in zip(table["dropped"], table["texts"], strict=True)
        ]
        low, high = np.array(ends).reshape(-1, 2).T
        return table.assign(share=table["dropped"] / table["texts"], low=low, high=high)

    @cached_property
    def items(self) -> pd.DataFrame:
        """One row per set and share of members: which items are listed, and how many are wrong.

        The held-out examples are divided: one half is compared with, the other is tested together
        with so many members that they are the given share of the tested. Columns: those of
        `SetName` and tested, share (true), estimated_share, and of the lists of Benjamini and
        Hochberg (bh) and of the scaled p-values (scaled): listed, wrong (the share of the listed
        that are no members; 0 if none is listed), found (the share of members that is listed).
        """
        return pd.DataFrame(
            row for data in self.sets for row in _listings(data, self.item_level, self.seed)
        )

    @cached_property
    def item_means(self) -> pd.DataFrame:
        """The means of `items` by learning rate, occurrences and true share (to a tenth).

        Sets without members have 0 occurrences.
        """
        columns = [c for c in self.items if c.startswith(("bh_", "scaled_")) or "share" in c]
        nominal = self.items["share"].round(1)
        occurrences = self.items["occurrences"].where(nominal > 0, 0)
        named = self.items.assign(nominal=nominal, occurrences=occurrences)
        groups = named.groupby(["learning_rate", "occurrences", "nominal"])
        return groups[columns].mean().assign(sets=groups.size()).reset_index()


def _names(rows: pd.DataFrame) -> Iterator[SetName]:
    columns = [field.name for field in fields(SetName)]
    return (SetName(*values) for values in rows[columns].itertuples(index=False))


def _uniform_p(rows: pd.DataFrame, seed: int) -> float:
    """Returns the p-value of uniformity of the randomised p-values; NaN if they are too few.

    A discrete statistic's p-values are not uniform, but values drawn between P(T' ≥ T) and
    P(T' > T) are.
    """
    from scipy.stats import kstest

    if len(rows) < FEWEST_FOR_UNIFORMITY:
        return np.nan
    p_values, above = rows["p_value"].to_numpy(), rows["above"].to_numpy()
    drawn = np.random.default_rng(derive_seed(seed, "uniform", len(rows))).random(len(rows))
    return float(kstest(above + drawn * (p_values - above), "uniform").pvalue)


def _listings(data: ScoredSet, level: float, seed: int) -> Iterator[dict[str, Any]]:
    from scipy.stats import false_discovery_control

    if data.examples is None:
        return
    name, is_member = data.name, data.examples.is_member
    rng = np.random.default_rng(derive_seed(seed, "items", name.cell, name.benchmark, name.saw_it))
    others = rng.permutation(np.flatnonzero(~is_member))
    members = rng.permutation(np.flatnonzero(is_member))
    if len(others) < FEWEST_HELD_OUT or not len(members):
        return
    score = combined_scores(data.examples.scores)
    compared, unseen = others[: len(others) // 2], others[len(others) // 2 :]
    for share in SHARES if name.saw_it else SHARES[:1]:
        number = min(len(members), round(share / (1 - share) * len(unseen)))
        rest = unseen[: max(1, round(number * (1 - share) / share))] if share else unseen
        truth = np.arange(number + len(rest)) < number
        p_values = conformal_p_values(score[np.append(members[:number], rest)], score[compared])
        lists = {
            "bh": np.asarray(false_discovery_control(p_values)) <= level,
            "scaled": scaled_adjusted_p_values(p_values) <= level,
        }
        about = {"tested": len(truth), "share": number / len(truth)}
        estimate = {"estimated_share": 1 - share_not_trained_on(p_values)}
        yield {**asdict(name), **about, **estimate, **_list_figures(lists, truth)}


def _list_figures(lists: Lists, truth: NDArray[np.bool_]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for kind, is_listed in lists.items():
        figures[f"{kind}_listed"] = int(is_listed.sum())
        figures[f"{kind}_wrong"] = float((is_listed & ~truth).sum() / max(1, is_listed.sum()))
        figures[f"{kind}_found"] = float(is_listed[truth].mean()) if truth.any() else np.nan
    return figures


def blind_p_values(sets: Sequence[ScoredSet], seed: int) -> dict[SetName, float]:
    """Returns the blind p-value of each set that has held-out examples, by its name."""
    tests = cached_blind_tests(seed)
    p_values = {
        data.name: tests(labelled_texts(data.examples)).p_value
        for data in sets
        if data.examples is not None and RELABELLED.units(data)
    }
    return {name: p for name, p in p_values.items() if p is not None}


def labelled_texts(examples: ScoredExamples) -> Texts:
    """Returns the texts, labelled, as `audits.benchmark.blind` compares them.

    The ids are of the texts and their labels, by which results are kept.
    """
    pairs = zip(examples.texts, examples.is_member.tolist(), strict=True)
    texts = [make_text("", text, is_member, "") for text, is_member in pairs]
    return Texts.of(
        replace(text, example_id=f"{number}/{text.label}/{text.sha256}")
        for number, text in enumerate(texts)
    )
