"""Checks before a cell runs whether its corpora and benchmarks have enough text.

The tokenizer that the base model will have is trained for it, and documents are tokenised for some
seconds (`injection.token_supply`). Nothing is downloaded, and nothing is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from contamination.core.config import identity_data, instantiate_node
from contamination.core.errors import ConfigError
from contamination.data.readers.hub import hub_nodes
from contamination.injection.config import InjectionStage
from contamination.injection.copies import Insertions
from contamination.injection.finetuning.config import FINETUNING
from contamination.injection.finished_corpus_search import texts_by_example
from contamination.injection.pool import chosen_source, read_candidates
from contamination.injection.pool_sizes import PoolSizes, find_adapted_sizes, requested_sizes
from contamination.injection.run import hash_range_of_part, make_tokenizer, plan_insertions
from contamination.injection.token_stream import Tokenizer
from contamination.injection.token_supply import MEASURING_SECONDS, TokenSupply, measure_supply
from contamination.launch.pipeline import injection_stage_with_tokenizer
from contamination.launch.plan import CellPlan
from contamination.launch.shared_artifacts import base_corpus_stage, validation_corpus_stage
from contamination.launch.shared_runs import trained_tokenizer_key

REMEMBERED_TEXTS = 50_000


@dataclass(frozen=True)
class PlannedInsertions:
    """The copies of a cell, or why they are not known."""

    text: str
    """Their number in words, or what they depend on."""
    examples: pd.DataFrame | None = None
    copies: Insertions | None = None
    """None: not known."""


class _RememberingTokenizer(Tokenizer):
    """A tokenizer that remembers the tokens of texts: cells often draw from the same examples."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._ids_by_text: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        ids = self._ids_by_text.get(text)
        if ids is None:
            if len(self._ids_by_text) == REMEMBERED_TEXTS:
                self._ids_by_text.clear()
            ids = self._ids_by_text[text] = super().encode(text)
        return list(ids)


def plan_cell_insertions(
    plan: CellPlan,
    tokenizer: str | None = None,
    open_tokenizer: Callable[[str], Tokenizer] = Tokenizer,
) -> PlannedInsertions:
    """Returns the copies of the cell, which its benchmarks and the tokenizer decide.

    Args:
        plan: the cell.
        tokenizer: the folder of the base model's own tokenizer, if it is trained.
        open_tokenizer: returns the tokenizer of a path.

    Raises:
        UserError: a benchmark can't be used, or the copies don't fit into the corpus.
    """
    stage = injection_stage_with_tokenizer(plan, None)
    sources = {
        name: c.sources[chosen_source(stage, name, c)] for name, c in stage.benchmark.items()
    }
    on_hub = [name for name, source in sources.items() if any(hub_nodes(source))]
    local = {name: c for name, c in stage.benchmark.items() if name not in on_hub}
    candidates = read_candidates(replace(stage, benchmark=local))
    path = stage.tokenizer.path or tokenizer
    if on_hub:
        return PlannedInsertions(f"not known before {', '.join(on_hub)} can be read from the hub")
    if path is None:
        return PlannedInsertions("not known before the tokenizer is trained")
    if not Path(path).exists():
        return PlannedInsertions(
            f"not known before the tokenizer of {path} can be read from the hub"
        )
    stage = replace(stage, tokenizer=replace(stage.tokenizer, path=path))
    examples, copies = plan_insertions(stage, candidates, open_tokenizer(str(path)))
    total = stage.injection.budget_tokens
    text = (
        f"{len(copies.segments):,} copies, with separators {copies.total_tokens:,} of {total:,} "
        f"tokens ({copies.total_tokens / total:.1%})"
    )
    return PlannedInsertions(text, examples, copies)


@dataclass(frozen=True)
class CheckedPart:
    """A part of a corpus that a cell packs, and how many tokens it needs."""

    title: str
    supply_key: str | None
    """Names the measured supply (`TextChecks.describe_part`); None: it was not measured."""
    note: str
    """Where the documents are from, or why they were not measured."""


@dataclass
class CheckedTexts:
    """What was found out about a cell's texts."""

    insertions: PlannedInsertions
    adapted: list[str]
    """One line per benchmark whose numbers of members and non-members are adapted."""
    parts: list[CheckedPart] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """What is probably too small, by an estimate."""
    error: ConfigError | None = None
    """What is surely too small."""


@dataclass
class TextChecks:
    """Checks the texts of cells; what cells have in common is tokenised once."""

    folder: Path
    """A temporary folder for the tokenizers that are trained."""
    seconds: float = MEASURING_SECONDS
    """How long to tokenise a part of a corpus, and then how long to only read it."""
    _tokenizers: dict[str, str] = field(default_factory=dict)
    _opened: dict[str, Tokenizer] = field(default_factory=dict)
    _insertions: dict[str, PlannedInsertions] = field(default_factory=dict)
    _supplies: dict[str, tuple[TokenSupply, int]] = field(default_factory=dict)

    def check(self, plan: CellPlan) -> CheckedTexts:
        """Returns what was found out about the cell's texts.

        Raises:
            UserError: a benchmark can't be used, such as one with too few examples.
        """
        tokenizer = self._trained_tokenizer(plan)
        key = json.dumps([identity_data(plan.injection.resolved()), tokenizer])
        if key not in self._insertions:
            self._insertions[key] = plan_cell_insertions(plan, tokenizer, self._open_tokenizer)
        insertions = self._insertions[key]
        checked = CheckedTexts(insertions, [*_describe_adapted(plan, insertions)])
        for need in _needs(plan, insertions, tokenizer):
            self._check_need(need, checked)
        return checked

    def describe_part(self, part: CheckedPart) -> str:
        """Returns a line about the part, from all that is known of it by now."""
        if part.supply_key is None:
            return f"{part.title}: {part.note}"
        supply, wanted = self._supplies[part.supply_key]
        return f"{part.title}: {supply.describe(wanted)}{part.note}"

    def _check_need(self, need: _Need, checked: CheckedTexts) -> None:
        """Adds what is found out about one need to `checked`."""
        stage, tokenizer = need.stage, need.tokenizer
        title = f"{need.role} {_corpus_name(stage)}"
        away = "the corpus" if any(hub_nodes(stage.corpus)) else None
        if away is None and (tokenizer is None or not Path(tokenizer).exists()):
            away = "the tokenizer"
        if away or tokenizer is None:
            note = f"not checked before {away} can be read from the hub"
            checked.parts.append(CheckedPart(title, None, note))
            return
        stage = replace(stage, tokenizer=replace(stage.tokenizer, path=tokenizer))
        supply_key = self._measure(stage, need)
        checked.parts.append(CheckedPart(title, supply_key, _describe_share(stage)))
        supply = self._supplies[supply_key][0]
        if need.wanted is None:
            return
        if supply.is_surely_short(need.wanted):
            checked.error = checked.error or need.error(supply.counted, need.wanted)
        elif not supply.is_enough(need.wanted):
            checked.warnings.append(
                f"{need.field} is {stage.injection.budget_tokens:,}, which needs "
                f"{need.wanted:,} tokens of documents: {need.role} ({_corpus_name(stage)}) "
                f"{'may' if supply.tokens is None else 'will probably'} be too small, with "
                f"{supply.describe(need.wanted)}{_describe_share(stage)}."
            )

    def _measure(self, stage: InjectionStage, need: _Need) -> str:
        """Measures the supply unless it is known to be enough, or to be all; returns its key."""
        config, wanted = stage.injection, need.wanted or 0
        part = config.part, config.base_fraction, config.validation_fraction
        named = [identity_data(stage.corpus), part, stage.tokenizer.path, need.dropped]
        key = json.dumps(named)
        known = self._supplies.get(key)
        if known is None or not (known[0].is_whole or known[0].counted >= wanted):
            tokenizer = self._open_tokenizer(str(stage.tokenizer.path))
            supply = measure_supply(stage, tokenizer, wanted, need.dropped, self.seconds)
            self._supplies[key] = supply, wanted
        return key

    def _open_tokenizer(self, path: str) -> Tokenizer:
        if path not in self._opened:
            self._opened[path] = _RememberingTokenizer(path)
        return self._opened[path]

    def _trained_tokenizer(self, plan: CellPlan) -> str | None:
        """Returns the folder of the tokenizer that the base model will have; None: it has another.

        None also if its text is on the hub.
        """
        key = trained_tokenizer_key(plan)
        if plan.pretraining is None or key is None or any(hub_nodes(plan.base_corpus)):
            return None
        stage = base_corpus_stage(plan.injection, plan.base_corpus, plan.pretraining)
        if key not in self._tokenizers:
            folder = self.folder / str(len(self._tokenizers))
            make_tokenizer(stage, instantiate_node("base_corpus", stage.corpus), folder)
            self._tokenizers[key] = str(folder)
        return self._tokenizers[key]


@dataclass(frozen=True)
class _Need:
    """Tokens that a cell needs of a part of a corpus."""

    role: str  # the node that names the corpus
    stage: InjectionStage  # packs the part
    tokenizer: str | None
    field: str  # the field that asks for the tokens
    wanted: int | None  # tokens of documents; None: not known
    dropped: Mapping[str, Sequence[str]] | None = None
    may_take_all: bool = False  # whether no other part of the corpus is read

    def error(self, available: int, wanted: int) -> ConfigError:
        """Returns the error about too few tokens, with the largest budget that can be filled."""
        config = self.stage.injection
        largest = config.packed_tokens - (wanted - available)
        if any("Share" in str(node.get("_target_")) for node in _occurrence_nodes(self.stage)):
            largest = min(largest, available * config.packed_tokens // wanted)
        whole = largest // config.sequence_tokens * config.sequence_tokens
        remedies = [f"give at most {whole:,}"] * (whole > 0) + ["choose a larger corpus"]
        share = _share_of_part(self.stage)
        if config.part == "base":
            remedies.append(f"raise injection.base_fraction={config.base_fraction:g}")
        elif self.may_take_all and share < 1:
            remedies.append(f"take all documents instead of {share:.0%} (injection.part=all)")
        *first, last = remedies
        return ConfigError(
            f"{self.field} is {config.budget_tokens:,}, which needs {wanted:,} tokens of "
            f"documents, but {self.role} ({_corpus_name(self.stage)}) has {available:,}: "
            f"{', '.join(first)}{' or ' if first else ''}{last}."
        )


def _needs(
    plan: CellPlan, insertions: PlannedInsertions, trained_tokenizer: str | None
) -> Iterator[_Need]:
    """Yields the text that the cell needs: for base model, contamination and validation."""
    if plan.pretraining:
        stage = base_corpus_stage(plan.injection, plan.base_corpus, plan.pretraining)
        name, wanted = "model.pretraining.budget_tokens", stage.injection.packed_tokens
        yield _Need("base_corpus", stage, trained_tokenizer, name, wanted)
    stage = injection_stage_with_tokenizer(plan, None)
    tokenizer, training = stage.tokenizer.path or trained_tokenizer, plan.training.training
    is_validating = bool(training.evaluate_every_steps and not plan.training.validation_folder)
    dropped = None
    if stage.injection.decontamination == "drop" and insertions.examples is not None:
        dropped = texts_by_example(insertions.examples)
    yield _Need(
        "corpus",
        stage,
        tokenizer,
        "injection.budget_tokens",
        _wanted_of_documents(plan, insertions),
        dropped,
        may_take_all=not is_validating and plan.base_corpus != plan.injection.corpus,
    )
    if is_validating:
        stage = validation_corpus_stage(stage, training.evaluate_tokens)
        wanted = stage.injection.packed_tokens
        yield _Need(
            "validation part of corpus", stage, tokenizer, "training.evaluate_tokens", wanted
        )


def _wanted_of_documents(plan: CellPlan, insertions: PlannedInsertions) -> int | None:
    """Returns the tokens of documents in the contaminated corpus; None: not known."""
    packed = plan.injection.injection.packed_tokens
    if plan.second.members_in == FINETUNING or not plan.injection.benchmark:  # without copies
        return packed
    return None if insertions.copies is None else packed - insertions.copies.total_tokens


def _occurrence_nodes(stage: InjectionStage) -> Iterator[Mapping[str, object]]:
    yield stage.occurrences
    for config in stage.benchmark.values():
        yield config.occurrences or {}


def _describe_adapted(plan: CellPlan, insertions: PlannedInsertions) -> Iterator[str]:
    if insertions.examples is None:
        return
    config = plan.injection.injection
    for name, counts in find_adapted_sizes(config, insertions.examples).items():
        sizes = PoolSizes(counts["members"], counts["nonmembers"])
        yield (
            f"benchmark {name}: {sizes.describe()} instead of "
            f"{requested_sizes(config).describe()}, since it has no more examples that fit"
        )


def _describe_share(stage: InjectionStage) -> str:
    share = _share_of_part(stage)
    return f" in {share:.0%} of its documents" if share < 1 else ""


def _share_of_part(stage: InjectionStage) -> float:
    lowest_hash, hash_limit = hash_range_of_part(stage)
    return hash_limit - lowest_hash


def _corpus_name(stage: InjectionStage) -> str:
    return str(stage.corpus.get("name", "corpus"))
