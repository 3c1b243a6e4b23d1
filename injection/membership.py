"""Draws who is a member, and checks a finished corpus against that draw and its ledger."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contamination.core.errors import ArtifactError
from contamination.core.integrity import errors_naming_folders
from contamination.core.seeds import derive_seed
from contamination.injection.config import BERNOULLI, InjectionConfig
from contamination.injection.corpus import PackedCorpus
from contamination.injection.pool_sizes import PoolSizes


def draw_membership(config: InjectionConfig, benchmark: str, sizes: PoolSizes) -> NDArray[np.bool_]:
    """Returns who is a member, in the pool's order: shape (members + non-members,).

    With `membership=exact` a random permutation makes exactly `sizes.members` of them members. With
    `membership=bernoulli` a fair coin is tossed for each example, independently of all others, as
    one-run privacy bounds require (Steinke et al. 2023, arXiv 2305.08846, algorithm 1).
    """
    assert config.membership_seed is not None, "InjectionStage.resolved() fills the seeds in"
    rng = np.random.default_rng(derive_seed(config.membership_seed, "membership", benchmark))
    if config.membership == BERNOULLI:
        member = rng.random(sizes.total) < 0.5
    else:
        member = rng.permutation(sizes.total) < sizes.members
    drawn: NDArray[np.bool_] = member ^ config.swap_members
    return drawn


def check_membership(field: str, corpus: PackedCorpus) -> None:
    """Checks that the recorded seed gives the corpus's members, and that only they have copies.

    Args:
        field: the config field that names the corpus, for error messages.
        corpus: a corpus with `membership=bernoulli`.

    Raises:
        ArtifactError: the members were not drawn by independent fair coins, or the recorded draw,
            the table of examples and the ledger disagree.
    """
    folder = corpus.artifact.path
    with errors_naming_folders(folder):
        config = InjectionConfig(**corpus.config["injection"])
        examples = corpus.examples
        inserted = set(corpus.ledger["example_id"])
    if config.membership != BERNOULLI:
        raise ArtifactError(
            f"{field} is {folder}: its injection.membership is {config.membership!r}, so its "
            "members were not drawn by independent coins, and no one-run bound holds. Give a cell "
            f"with injection.membership={BERNOULLI}."
        )
    for benchmark, rows in examples.groupby("benchmark", sort=False):
        member = rows["member"].to_numpy(bool)
        drawn = draw_membership(config, str(benchmark), PoolSizes(len(rows), 0))
        has_copies = rows["example_id"].isin(inserted).to_numpy()
        exposed = rows["occurrences"].to_numpy() > 0
        _require_equal(field, folder, benchmark, member, drawn, "the recorded seed draws")
        _require_equal(field, folder, benchmark, member & exposed, has_copies, "the ledger has")


def _require_equal(
    field: str,
    folder: Any,
    benchmark: Any,
    member: NDArray[np.bool_],
    other: NDArray[np.bool_],
    what: str,
) -> None:
    differing = int((member != other).sum())
    if differing:
        raise ArtifactError(
            f"{field} is {folder}: {differing} examples of {benchmark} are not the members that "
            f"{what}. The corpus was edited or damaged: make it again."
        )
