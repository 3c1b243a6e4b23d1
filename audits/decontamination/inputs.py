"""Reads cells that differ in the form of the leak, the rule and the seed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.audits.cells import AuditedCell
from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.core.stored_files import read_yaml
from contamination.data.perturbation import Exact
from contamination.injection.config import VERBATIM_FORM, LeakConfig
from contamination.injection.decontamination.flagging import (
    COPY,
    DECONTAMINATION_FILE,
    RECORD_COLUMNS,
)
from contamination.injection.decontamination.rules.item_ngrams import split_words

NONE, ORACLE = "none", "oracle"
"""The names of the rules that leave out nothing, and exactly the inserted copies."""
LOG_PROBABILITY = "loss"
"""The method whose score is a text's mean log-probability, in nats per token."""
VARIED = ("leak.", "rewording.", "matcher.")
"""The fields in which the cells may differ, besides seeds."""
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class RuleCells:
    """The cells of one form and one rule: K seeds, N examples.

    Attributes:
        form: the form of the leak.
        rule: the rule's name.
        scores: the chosen method's scores, shape (K, N); higher means member.
        log_probability: each example's mean log-probability, shape (K, N), in nats per token.
        leaked: how many copies leaked, shape (K, N).
        kept: how many of them the corpus has, shape (K, N).
        lost: one row per seed: clean documents and tokens that were left out and that were kept,
            and tokens of copies that were left out.
        unseen: whether the rule can't find the example in any document, shape (K, N).
    """

    form: str
    rule: str
    scores: Floats
    log_probability: Floats
    leaked: NDArray[np.int64]
    kept: NDArray[np.int64]
    lost: pd.DataFrame
    unseen: Flags


@dataclass(frozen=True)
class Study:
    """All cells, by form and rule.

    Attributes:
        cells: form → rule → its cells. Each form has the rules NONE and ORACLE.
        seeds: the seeds, in the order of the rows.
        member: the members, shape (K, N).
        benchmarks: each example's benchmark, shape (N,).
        words: each example's number of words, shape (N,).
        left_out: forms that were left out, with the reason.
        models: the number of distinct models.
        digests: the digests of the artefacts, by name.
        index: one row per cell: form, rule, seed, and the digests of corpus and model.
    """

    cells: Mapping[str, Mapping[str, RuleCells]]
    seeds: Sequence[int]
    member: Flags
    benchmarks: NDArray[np.str_]
    words: NDArray[np.int64]
    left_out: Sequence[str]
    models: int
    digests: Mapping[str, str]
    index: pd.DataFrame

    @property
    def examples(self) -> int:
        """The number of examples of the pool."""
        return len(self.benchmarks)

    @property
    def members_per_cell(self) -> float:
        """The number of members of a cell, on average."""
        return float(self.member.sum(axis=1).mean())


def read_study(field: str, cells: Sequence[AuditedCell], method: str) -> Study:
    """Returns the cells by form and rule.

    Raises:
        ConfigError: the cells differ in something else, or no form has its cells to compare with.
    """
    _check_one_setting(field, cells)
    by_key = {}
    for cell in cells:
        key = describe_form(cell.corpus.config), describe_rule(cell.corpus.config), cell.cell.seed
        if key in by_key:
            raise ConfigError(
                f"{field} contains two cells with the leak {key[0]}, the matcher {key[1]} and seed "
                f"{key[2]}: give each cell once."
            )
        by_key[key] = cell
    seeds = sorted({seed for *_, seed in by_key})
    first = _check_pools(field, cells)
    table: dict[str, dict[str, RuleCells]] = {}
    left_out = []
    for form in dict.fromkeys(form for form, *_ in by_key):
        of_form: dict[str, RuleCells] = {}
        for rule in dict.fromkeys(r for f, r, _ in by_key if f == form):
            chosen = [by_key.get((form, rule, seed)) for seed in seeds]
            present = [cell for cell in chosen if cell is not None]
            if len(present) < len(seeds):
                left_out.append(f"{form}, {rule}: only {len(present)} of {len(seeds)} seeds")
                continue
            of_form[rule] = _read_rule_cells(field, form, rule, present, method)
        missing = [rule for rule in (NONE, ORACLE) if rule not in of_form]
        if not missing and not of_form[NONE].leaked.any():
            left_out.append(f"{form}: no member leaked (occurrences)")
        elif missing:
            left_out.append(f"{form}: no cells with matcher={' and matcher='.join(missing)}")
        else:
            table[form] = of_form
    if not table:
        raise ConfigError(
            f"{field}: no form of leak can be judged ({'; '.join(left_out)}). Give cells with "
            "copies of their members, with matcher=none and matcher=oracle for each form and seed."
        )
    any_cells = {seed: cell for (*_, seed), cell in by_key.items()}
    index = pd.DataFrame(
        {
            "form": form, "rule": rule, "seed": seed,
            **{name: cell.cell.digests[name] for name in ("corpus", "model", "contaminated")},
        }
        for (form, rule, seed), cell in by_key.items()
    )  # fmt: skip
    return Study(
        table,
        seeds,
        np.stack([any_cells[seed].cell.examples["member"].to_numpy(bool) for seed in seeds]),
        first["benchmark"].to_numpy(str),
        np.array([len(split_words(text)) for text in first["text"]], np.int64),
        left_out,
        int(index["model"].nunique()),
        _all_digests(by_key),
        index,
    )


def _all_digests(by_key: Mapping[tuple[str, str, int], AuditedCell]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for (form, rule, seed), cell in by_key.items():
        name = f"{form}/{rule}/seed{seed}"
        digests |= {f"{name}/{artefact}": d for artefact, d in cell.cell.digests.items()}
        if record := cell.corpus.artifact.records.get(DECONTAMINATION_FILE):
            digests[f"{name}/record"] = record
    return digests


def describe_form(config: Mapping[str, Any]) -> str:
    """Returns the form of a corpus's leak, such as "embedded ×3" or "verbatim, Swap"."""
    leak = LeakConfig(**(config.get("leak") or {}))
    form = leak.form
    if form == "embedded":
        form = f"embedded ×{leak.times:g}"
    if form == "rewrapped":
        form = f"rewrapped to {leak.words_per_line}"
    rewording = str((config.get("rewording") or {}).get("_target_", Exact.__name__))
    name = rewording.rpartition(".")[2]
    if name == Exact.__name__:
        return form
    settings = [f"{k}={v}" for k, v in config["rewording"].items() if k != "_target_"]
    reworded = f"reworded ({' '.join([name, *settings])})"
    return reworded if form == VERBATIM_FORM else f"{form}, {reworded}"


def describe_rule(config: Mapping[str, Any]) -> str:
    """Returns the rule's name in conf/matcher, or its class and settings."""
    node = config.get("matcher") or {}
    for name, shipped in _shipped_rules().items():
        if {k: v for k, v in node.items() if v is not None} == shipped:
            return name
    settings = [f"{k}={v}" for k, v in node.items() if k != "_target_" and v is not None]
    return " ".join([str(node["_target_"]).rpartition(".")[2], *settings])


@cache
def _shipped_rules() -> dict[str, dict[str, Any]]:
    return {
        path.stem: {k: v for k, v in (read_yaml(path) or {}).items() if v is not None}
        for path in sorted((CONF / "matcher").glob("*.yaml"))
    }


def _check_one_setting(field: str, cells: Sequence[AuditedCell]) -> None:
    def settings(cell: AuditedCell) -> dict[str, str]:
        chosen = cell.cell.chosen
        return {k: str(v) for k, v in chosen.items() if not k.startswith(VARIED)}

    first = settings(cells[0])
    for cell in cells[1:]:
        other = settings(cell)
        names = sorted(k for k in {*first, *other} if first.get(k) != other.get(k))
        if names or cell.cell.swapped != cells[0].cell.swapped:
            raise ConfigError(
                f"{field}: {cell.name} and {cells[0].name} differ in "
                f"{', '.join(names) or 'injection.swap_members'}. Give cells that differ in leak, "
                "rewording, matcher and seed alone."
            )


def _check_pools(field: str, cells: Sequence[AuditedCell]) -> pd.DataFrame:
    columns = ["example_id", "benchmark", "text"]
    first = cells[0].cell.examples[columns]
    members: dict[int, Any] = {}
    for cell in cells:
        examples = cell.cell.examples
        member = examples["member"].to_numpy(bool)
        expected = members.setdefault(cell.cell.seed, member)
        if not examples[columns].equals(first) or not np.array_equal(member, expected):
            raise ConfigError(
                f"{field}: {cell.name} has other examples, or other members of its seed, than "
                f"{cells[0].name}. Give cells that share the pool and, for a seed, the members."
            )
    return first


def _read_rule_cells(
    field: str, form: str, rule: str, cells: Sequence[AuditedCell], method: str
) -> RuleCells:
    leaked, kept, unseen, lost = [], [], [], []
    for cell in cells:
        record, examples = read_record(cell), cell.cell.examples
        copies = record[record["kind"] == COPY]
        documents = record[record["kind"] != COPY]
        n_kept = cell.doses
        removed = copies[copies["flagged"]].groupby("example_id").size()
        n_removed = examples["example_id"].map(removed).fillna(0).to_numpy(np.int64)
        no_sight = {*copies.loc[copies["unseen"] != "", "example_id"]}
        kept.append(n_kept)
        leaked.append(n_kept + n_removed)
        unseen.append(examples["example_id"].isin(no_sight).to_numpy(bool))
        counts = cell.corpus.artifact.counts
        lost.append({
            "seed": cell.cell.seed,
            "documents_lost": len(documents),
            "tokens_lost": int(documents["tokens"].sum()),
            "clean_tokens": int(counts["tokens"]) - int(counts["inserted_tokens"]),
            "clean_documents": int(counts.get("decontamination", {}).get("documents", 0)),
            "copy_tokens_lost": int(copies.loc[copies["flagged"], "tokens"].sum()),
            "copies_flagged": int(copies["flagged"].sum()),
            "copies_right": int((copies["flagged"] & copies["right"]).sum()),
        })  # fmt: skip
    return RuleCells(
        form,
        rule,
        np.stack([cell.scores(field, method) for cell in cells]),
        np.stack([cell.scores(field, LOG_PROBABILITY) for cell in cells]),
        np.stack(leaked),
        np.stack(kept),
        pd.DataFrame(lost),
        np.stack(unseen),
    )


def read_record(cell: AuditedCell) -> pd.DataFrame:
    """Returns the record of a cell's decontamination; without a rule it has no rows.

    See `injection.decontamination.flagging.record_table`.
    """
    if DECONTAMINATION_FILE not in cell.corpus.artifact.records:
        return pd.DataFrame(columns=list(RECORD_COLUMNS)).astype({"flagged": bool, "right": bool})
    return cell.corpus.artifact.table(DECONTAMINATION_FILE)
