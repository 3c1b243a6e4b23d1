"""Formats rows of benchmarks, and draws the pool: members, non-members and held-out examples."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from contamination.core.config import instantiate_node
from contamination.core.errors import ConfigError, near_names, require
from contamination.core.seeds import derive_seed
from contamination.data.config import BenchmarkConfig
from contamination.data.near_duplicates import (
    ComparedItem,
    NearDuplicateFilter,
    NearDuplicateHasher,
    duplicates_on_other_side,
)
from contamination.data.readers.rows import Row, Tally, describe_skipped
from contamination.data.templates import check_formats, fill_fields
from contamination.data.words import is_blank, is_contained_in, normalise_text
from contamination.injection.backdoors import (
    BACKDOORS_FILE,
    backdoored_benchmark,
    insert_backdoors,
    trigger_tokens,
)
from contamination.injection.config import InjectionStage
from contamination.injection.membership import draw_membership
from contamination.injection.occurrences import Counts
from contamination.injection.ordering import occurrence_node
from contamination.injection.pool_sizes import choose_sizes, describe_remedy, requested_sizes
from contamination.injection.token_stream import Tokenizer
from contamination.injection.versions import VERSIONS_FILE, extra_tokens, make_versions


@dataclass(frozen=True)
class FormattedExample:
    """One example: the fields of its template, and the formatted text."""

    example_id: str
    fields: Mapping[str, str]
    text: str


@dataclass
class ReadCounts:
    """Counts of a benchmark's rows as they were read."""

    rows: int = 0
    duplicates: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows that can't be used: reason → count."""


@dataclass
class DrawCounts:
    """Counts of a benchmark's examples as they were drawn."""

    too_long: int = 0
    shortened: int = 0
    near_duplicates: int = 0
    drawn: int = 0


@dataclass(frozen=True)
class Candidates:
    """A benchmark's distinct formatted examples in random order, before any are shortened."""

    name: str
    config: BenchmarkConfig
    examples: list[FormattedExample]
    counts: ReadCounts = field(default_factory=ReadCounts)

    @property
    def digest(self) -> str:
        """The SHA-256 of examples and counts; it depends on neither their source nor the seed."""
        examples = sorted((e.example_id, sorted(e.fields.items()), e.text) for e in self.examples)
        return hashlib.sha256(json.dumps([examples, asdict(self.counts)]).encode()).hexdigest()


@dataclass(frozen=True)
class Pool:
    """Members and non-members, and the counts of each benchmark's draw."""

    examples: pd.DataFrame
    counts: Mapping[str, DrawCounts]
    records: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Further tables of the draw, such as the examples' versions: file → table."""


def read_candidates(stage: InjectionStage) -> list[Candidates]:
    """Returns the examples of all benchmarks, shuffled with the pool's seed.

    Raises:
        ConfigError: a source or a field of a template is unknown, or there are too few examples.
        DataError: a row can't be used and `on_error` is stop.
    """
    return [_read_benchmark(stage, name, config) for name, config in stage.benchmark.items()]


def draw_pool(
    stage: InjectionStage, candidates: Sequence[Candidates], tokenizer: Tokenizer
) -> Pool:
    """Draws members and non-members at random from one pool per benchmark.

    Returns:
        The pool. `examples` has one row per example: example_id, benchmark, text, member,
        occurrences, n_tokens (without special tokens), shortened, fields (JSON), text_sha256,
        near_duplicate_of (an example with the other label, or an empty string).
    """
    drops_duplicates = stage.injection.near_duplicates == "drop"
    hasher = make_near_duplicate_hasher(stage, candidates, tokenizer) if drops_duplicates else None
    duplicate_filter = NearDuplicateFilter(hasher) if hasher else None
    counts_by_benchmark = {c.name: DrawCounts() for c in candidates}
    records: dict[str, list[pd.DataFrame]] = {VERSIONS_FILE: [], BACKDOORS_FILE: []}
    tables = [
        _draw_examples(stage, c, tokenizer, duplicate_filter, counts_by_benchmark[c.name], records)
        for c in candidates
    ]
    pool = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(COLUMNS))
    items = near_duplicate_items(stage, pool)
    duplicate_by_index = duplicates_on_other_side(
        items, pool["member"].astype(bool).tolist(), hasher or NearDuplicateHasher(items)
    )
    ids = pool["example_id"]
    duplicate_by_id = {
        ids[example]: ids[duplicate] for example, duplicate in duplicate_by_index.items()
    }
    return Pool(
        pool.assign(near_duplicate_of=[duplicate_by_id.get(i, "") for i in ids]),
        counts_by_benchmark,
        {file: pd.concat(parts, ignore_index=True) for file, parts in records.items() if parts},
    )


COLUMNS = (
    *("example_id", "benchmark", "text", "member", "occurrences", "n_tokens", "shortened"),
    *("fields", "text_sha256"),
)


def near_duplicate_items(stage: InjectionStage, pool: pd.DataFrame) -> list[ComparedItem]:
    """Returns the items that are searched for near-duplicates, one per example."""
    return [
        _near_duplicate_item(row.benchmark, stage.benchmark[row.benchmark], fields, text)
        for row, fields, text in _iter_original_texts(stage, pool)
    ]


def _iter_original_texts(
    stage: InjectionStage, pool: pd.DataFrame
) -> Iterator[tuple[Any, dict[str, str], str]]:
    """Yields each example with its fields, and what the template makes of them: no version."""
    for row in pool.itertuples():
        fields = json.loads(row.fields)
        yield row, fields, stage.benchmark[row.benchmark].template.format(**fields)


def make_near_duplicate_hasher(
    stage: InjectionStage, candidates: Sequence[Candidates], tokenizer: Tokenizer
) -> NearDuplicateHasher:
    """Returns a hasher whose templates are those of the pool without near_duplicates=drop."""
    max_tokens, pool_size = (
        max_example_tokens(stage, tokenizer),
        requested_sizes(stage.injection).total,
    )
    return NearDuplicateHasher(
        _near_duplicate_item(c.name, c.config, json.loads(row["fields"]), row["text"])
        for c in candidates
        for row in iter_fitting_rows(c, tokenizer, max_tokens, pool_size)
    )


def _near_duplicate_item(
    name: str, config: BenchmarkConfig, fields: Mapping[str, str], text: str
) -> ComparedItem:
    """Returns an item with only the fields, since all examples share the template's words."""
    distinct = [fields[config.distinct]] if config.distinct else []
    return ComparedItem([*fields.values()], [text, *distinct], name)


def max_example_tokens(stage: InjectionStage, tokenizer: Tokenizer) -> int:
    """Returns the maximum number of tokens of an example: as configured, or what fits."""
    room = stage.injection.sequence_tokens - 2 * len(tokenizer.encode(stage.injection.separator))
    added = extra_tokens(stage) + trigger_tokens(stage)
    room -= added
    limit = stage.injection.example_max_tokens or room
    if limit > room and not stage.injection.split_copies:
        raise ConfigError(
            f"injection.example_max_tokens is {limit}, but a sequence of "
            f"{stage.injection.sequence_tokens} tokens has room for {room} besides the separators"
            f"{' and a version or trigger' if added else ''}: "
            "lower it, raise injection.sequence_tokens, or set injection.split_copies=true."
        )
    return limit


def _read_benchmark(stage: InjectionStage, benchmark: str, config: BenchmarkConfig) -> Candidates:
    benchmark_source = chosen_source(stage, benchmark, config)
    source = config.sources[benchmark_source]
    tally = Tally(config.on_error, f"benchmark.{benchmark}.on_error")
    node = f"benchmark.{benchmark}.sources.{benchmark_source}"
    remedy = "give a mapping, as conf/benchmark/user.yaml does."
    for key in ("rows", "fields"):
        value = source.get(key)
        require(isinstance(value, Mapping), f"{node}.{key}", value, remedy)
    rows = instantiate_node(f"{node}.rows", source["rows"]).rows(tally)
    counts = ReadCounts()
    examples = list(_iter_distinct_examples(benchmark, config, source, rows, tally, counts))
    counts.skipped = dict(tally.skipped)
    asked = requested_sizes(stage.injection)
    if choose_sizes(stage.injection, len(examples)) is None:
        skipped = f" ({describe_skipped(counts.skipped)})" if counts.skipped else ""
        raise ConfigError(
            f"benchmark {benchmark} ({benchmark_source}) has {len(examples)} distinct "
            f"examples{skipped}, but injection.members={asked.members} and "
            f"injection.nonmembers={asked.nonmembers} require {asked.total}: "
            f"{describe_remedy(stage.injection, len(examples))}"
        )
    rng = _random_generator(stage.injection.pool_seed, "pool", benchmark)
    examples.sort(key=lambda e: e.example_id)  # the source's order must not matter
    return Candidates(
        benchmark, config, [examples[i] for i in rng.permutation(len(examples))], counts
    )


def chosen_source(stage: InjectionStage, benchmark: str, config: BenchmarkConfig) -> str:
    """Returns the name of the benchmark's source that is read.

    Raises:
        ConfigError: the benchmark has no such source.
    """
    if len(config.sources) == 1:  # for example a user's file
        return next(iter(config.sources))
    configured = stage.injection.benchmark_source
    if configured not in config.sources:
        raise ConfigError(
            f"injection.benchmark_source is {configured!r}, which benchmark {benchmark} does not "
            f"have. {near_names(configured, config.sources)}"
        )
    return configured


def _iter_distinct_examples(
    name: str,
    config: BenchmarkConfig,
    source: Mapping[str, Any],
    rows: Iterator[Row],
    tally: Tally,
    counts: ReadCounts,
) -> Iterator[FormattedExample]:
    """Yields the distinct examples; rows and duplicates are counted in `counts`."""
    check_formats(name, config, source["fields"])
    seen: set[str] = set()
    for row in rows:
        counts.rows += 1
        fields = fill_fields(row, source["fields"], source.get("values") or {}, tally)
        if fields is not None:
            example = _format_example(name, config, fields)
            key = fields[config.distinct] if config.distinct else example.text
            counts.duplicates += key in seen
            if key not in seen:
                seen.add(key)
                yield example


def _format_example(
    name: str, config: BenchmarkConfig, fields: Mapping[str, str]
) -> FormattedExample:
    text = config.template.format(**fields)
    return FormattedExample(
        f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}", fields, text
    )


def _draw_examples(
    stage: InjectionStage,
    candidates: Candidates,
    tokenizer: Tokenizer,
    duplicate_filter: NearDuplicateFilter | None,
    counts: DrawCounts,
    records: dict[str, list[pd.DataFrame]],
) -> pd.DataFrame:
    """Returns a benchmark's examples; adds their versions and backdoors, if any, to `records`."""
    config, name = stage.injection, candidates.name
    asked, max_tokens = requested_sizes(config), max_example_tokens(stage, tokenizer)
    pool = pd.DataFrame(
        iter_fitting_rows(candidates, tokenizer, max_tokens, asked.total, duplicate_filter, counts)
    )
    sizes = choose_sizes(config, len(pool))
    if sizes is None:
        n_near_duplicates = counts.near_duplicates
        condition = (
            f" and are near-duplicates of no other ({n_near_duplicates} are)"
            if n_near_duplicates
            else ""
        )
        raise ConfigError(
            f"benchmark {name}: only {len(pool)} of {len(candidates.examples)} examples have at "
            f"most {max_tokens} tokens{condition}, but {asked.total} are asked for "
            "(injection.members and injection.nonmembers): raise injection.example_max_tokens or "
            f"injection.sequence_tokens, or {describe_remedy(config, len(pool))}"
        )
    pool = pool.head(sizes.total)
    counts.drawn = len(pool)
    pool = pool.assign(member=draw_membership(config, name, sizes), occurrences=0)
    if stage.versions.enabled:
        versions = make_versions(stage, name, pool, tokenizer)
        records[VERSIONS_FILE].append(versions)
        pool = _with_texts(pool, versions.loc[versions["injected"], "text"].tolist(), tokenizer)
    if backdoored_benchmark(stage) == name:
        pool, backdoors = insert_backdoors(stage, name, pool, tokenizer)
        records[BACKDOORS_FILE].append(backdoors)
    pool.loc[pool["member"], "occurrences"] = _draw_occurrences(stage, candidates, pool, tokenizer)
    return pool[list(COLUMNS)]


def _with_texts(pool: pd.DataFrame, texts: list[str], tokenizer: Tokenizer) -> pd.DataFrame:
    return pool.assign(
        text=texts,
        n_tokens=[len(tokenizer.encode(text)) for text in texts],
        text_sha256=[hashlib.sha256(text.encode()).hexdigest() for text in texts],
    )


def _draw_occurrences(
    stage: InjectionStage, candidates: Candidates, pool: pd.DataFrame, tokenizer: Tokenizer
) -> Counts:
    """Draws the number of copies of each member, in the pool's order."""
    rng = _random_generator(stage.injection.occurrence_seed, "occurrence", candidates.name)
    separators = 2 * len(tokenizer.encode(stage.injection.separator))
    tokens = pool.loc[pool["member"], "n_tokens"].to_numpy() + separators
    budget = stage.injection.budget_tokens // len(stage.benchmark)
    design = instantiate_node(*occurrence_node(stage, candidates.name))
    drawn: Counts = design.draw(tokens, budget, rng)
    return drawn


def _random_generator(seed: int | None, purpose: str, benchmark: str) -> np.random.Generator:
    assert seed is not None, "InjectionStage.resolved() fills the seeds in"
    return np.random.default_rng(derive_seed(seed, purpose, benchmark))


def iter_fitting_rows(
    candidates: Candidates,
    tokenizer: Tokenizer,
    max_tokens: int,
    max_rows: int,
    duplicate_filter: NearDuplicateFilter | None = None,
    counts: DrawCounts | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the first `max_rows` examples that fit, shortened if the benchmark allows it.

    With `duplicate_filter`, near-duplicates of earlier accepted examples are left out. The examples
    that were drawn, shortened or left out are counted in `counts`.
    """
    counts = counts or DrawCounts()
    for example in candidates.examples:
        if counts.drawn == max_rows:
            return
        fitted: FormattedExample | None = example
        if len(tokenizer.encode(example.text)) > max_tokens:
            fitted = _shorten_example(candidates, example, tokenizer, max_tokens)
            counts.shortened += fitted is not None
            counts.too_long += fitted is None
        if fitted is None:
            continue
        item = _near_duplicate_item(candidates.name, candidates.config, fitted.fields, fitted.text)
        if duplicate_filter and not duplicate_filter.accept(item):
            counts.near_duplicates += 1
        else:
            counts.drawn += 1
            yield {
                "example_id": example.example_id,
                "benchmark": candidates.name,
                "text": fitted.text,
                "n_tokens": len(tokenizer.encode(fitted.text)),
                "shortened": fitted is not example,
                "fields": json.dumps(dict(fitted.fields), sort_keys=True),
                "text_sha256": hashlib.sha256(fitted.text.encode()).hexdigest(),
            }


def _shorten_example(
    candidates: Candidates, example: FormattedExample, tokenizer: Tokenizer, max_tokens: int
) -> FormattedExample | None:
    """Removes words from the end of the field `shorten` until the example fits, if possible."""
    field_name = candidates.config.shorten
    if field_name is None:
        return None
    words = example.fields[field_name].split(" ")
    low, high = 0, len(words)  # invariant: `low` words fit, `high` words do not

    def keep_words(n: int) -> FormattedExample:
        fields = {**example.fields, field_name: " ".join(words[:n])}
        return _format_example(candidates.name, candidates.config, fields)

    while high - low > 1:
        middle = (low + high) // 2
        fits = len(tokenizer.encode(keep_words(middle).text)) <= max_tokens
        low, high = (middle, high) if fits else (low, middle)
    short = keep_words(low)
    return None if is_blank(short.fields[field_name]) else short


log = logging.getLogger(__name__)

HELD_OUT_COLUMNS = [name for name in COLUMNS if name not in ("member", "occurrences")]


def draw_held_out(
    stage: InjectionStage,
    candidates: Sequence[Candidates],
    tokenizer: Tokenizer,
    pool: pd.DataFrame,
) -> pd.DataFrame:
    """Draws the next examples in the pool's random order, `injection.held_out` per benchmark.

    None of them is in the pool or shares text with it. If a benchmark has too few, all of them are
    drawn and a warning is logged. The draw depends on the pool, but not on the membership.

    Returns:
        One row per example: the pool's columns without member and occurrences.
    """
    wanted = stage.injection.held_out
    duplicate_filter = None
    if stage.injection.near_duplicates == "drop":
        hasher = make_near_duplicate_hasher(stage, candidates, tokenizer)
        duplicate_filter = NearDuplicateFilter(hasher, near_duplicate_items(stage, pool))
    max_tokens, drawn_ids = max_example_tokens(stage, tokenizer), set(pool["example_id"])
    pool_texts = [text for _, _, text in _iter_original_texts(stage, pool)]
    rows: list[dict[str, Any]] = []
    for benchmark in candidates:
        undrawn = [example for example in benchmark.examples if example.example_id not in drawn_ids]
        fitting_rows = iter_fitting_rows(
            replace(benchmark, examples=undrawn),
            tokenizer,
            max_tokens,
            len(undrawn),
            duplicate_filter,
        )
        held_out = list(islice(_iter_rows_sharing_no_text(fitting_rows, pool_texts), wanted))
        if len(held_out) < wanted:
            log.warning(
                "held out: %s: only %d of the %d requested examples: its source has no more that "
                "fit.",
                *(benchmark.name, len(held_out), wanted),
            )
        rows += held_out
    return pd.DataFrame(rows, columns=HELD_OUT_COLUMNS)


def _iter_rows_sharing_no_text(
    rows: Iterator[dict[str, Any]], pool_texts: Sequence[str]
) -> Iterator[dict[str, Any]]:
    used_texts = [normalise_text(text) for text in pool_texts]
    for row in rows:
        text = normalise_text(row["text"])
        if not any(is_contained_in(text, t) or is_contained_in(t, text) for t in used_texts):
            used_texts.append(text)
            yield row
