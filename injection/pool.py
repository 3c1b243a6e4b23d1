"""From a benchmark's rows to a pool of formatted examples, members and non-members."""

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

from contamination.core.config import create
from contamination.core.errors import ConfigError, near_names, require
from contamination.core.seeds import derive
from contamination.data.config import BenchmarkConfig
from contamination.data.near_duplicates import Apart, Item, Keys, across
from contamination.data.readers.rows import Row, Tally, skips
from contamination.data.templates import check_formats, fill
from contamination.data.text import is_blank, normalised, stands_in
from contamination.injection.config import InjectionStage
from contamination.injection.occurrences import Counts
from contamination.injection.token_stream import Tokenizer


@dataclass(frozen=True)
class Formatted:
    """One example: its template's fields, and the text that they make."""

    example_id: str
    fields: Mapping[str, str]
    text: str


@dataclass
class ReadCounts:
    """What became of a benchmark's rows when they were read."""

    rows: int = 0
    duplicates: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows that can't be used: reason → number."""


@dataclass
class DrawCounts:
    """What became of its examples when they were drawn."""

    too_long: int = 0
    shortened: int = 0
    near_duplicates: int = 0
    drawn: int = 0


@dataclass(frozen=True)
class Candidates:
    """A benchmark's distinct formatted examples, in random order, before any is cut or left out."""

    name: str
    config: BenchmarkConfig
    examples: list[Formatted]
    counts: ReadCounts = field(default_factory=ReadCounts)

    @property
    def digest(self) -> str:
        """SHA-256 of all that was read: wherever the rows are, whatever the pool's seed."""
        examples = sorted((e.example_id, sorted(e.fields.items()), e.text) for e in self.examples)
        return hashlib.sha256(json.dumps([examples, asdict(self.counts)]).encode()).hexdigest()


@dataclass(frozen=True)
class Pool:
    """Members and non-members, and by benchmark what became of the others."""

    examples: pd.DataFrame
    counts: Mapping[str, DrawCounts]


def read_candidates(stage: InjectionStage) -> list[Candidates]:
    """All benchmarks' examples, each shuffled by the pool's seed.

    Raises:
        ConfigError: an unknown source, a template's unknown field, or too few examples.
        DataError: a row that can't be used, where `on_error` is stop.
    """
    return [_candidates(stage, name, config) for name, config in stage.benchmark.items()]


def draw_pool(
    stage: InjectionStage, candidates: Sequence[Candidates], tokenizer: Tokenizer
) -> Pool:
    """Draw members and non-members at random from one pool a benchmark.

    Returns:
        `examples` has one row an example: example_id, benchmark, text, member, occurrences,
        n_tokens (without special tokens), shortened, fields (JSON), text_sha256,
        near_duplicate_of (an example of the other side, or nothing).
    """
    drop = stage.injection.near_duplicates == "drop"
    keys = near_duplicate_keys(stage, candidates, tokenizer) if drop else None
    apart = Apart(keys) if keys else None
    counts = {c.name: DrawCounts() for c in candidates}
    parts = [_draw(stage, c, tokenizer, apart, counts[c.name]) for c in candidates]
    pool = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))
    items = pool_items(stage, pool)
    near = across(items, pool["member"].astype(bool).tolist(), keys or Keys(items))
    names = {pool["example_id"][i]: pool["example_id"][other] for i, other in near.items()}
    found = [names.get(name, "") for name in pool["example_id"]]
    return Pool(pool.assign(near_duplicate_of=found), counts)


COLUMNS = (
    *("example_id", "benchmark", "text", "member", "occurrences", "n_tokens", "shortened"),
    *("fields", "text_sha256"),
)


def pool_items(stage: InjectionStage, pool: pd.DataFrame) -> list[Item]:
    """The items in which near-duplicates are looked for, one an example."""
    return [
        _item(row.benchmark, stage.benchmark[row.benchmark], json.loads(row.fields), row.text)
        for row in pool.itertuples()
    ]


def near_duplicate_keys(
    stage: InjectionStage, candidates: Sequence[Candidates], tokenizer: Tokenizer
) -> Keys:
    """The keys of near-duplicates, with the templates of the pool that the other policies draw."""
    limit, asked = max_example_tokens(stage, tokenizer), _asked(stage)
    return Keys(
        _item(c.name, c.config, json.loads(row["fields"]), row["text"])
        for c in candidates
        for row in fitting(c, tokenizer, limit, asked)
    )


def _item(name: str, config: BenchmarkConfig, fields: Mapping[str, str], text: str) -> Item:
    """The fields alone: what the template adds, all examples share."""
    distinct = [fields[config.distinct]] if config.distinct else []
    return Item([*fields.values()], [text, *distinct], name)


def _asked(stage: InjectionStage) -> int:
    """Examples a benchmark's part of the pool."""
    return stage.injection.members + stage.injection.nonmembers


def max_example_tokens(stage: InjectionStage, tokenizer: Tokenizer) -> int:
    """The longest example allowed: as configured, or what one sequence holds."""
    room = stage.injection.sequence_tokens - 2 * len(tokenizer.encode(stage.injection.separator))
    limit = stage.injection.example_max_tokens or room
    if limit > room and not stage.injection.split_copies:
        raise ConfigError(
            f"injection.example_max_tokens is {limit}, but a sequence of "
            f"{stage.injection.sequence_tokens} tokens holds {room} beside the separators: lower "
            "it, raise injection.sequence_tokens, or set injection.split_copies=true."
        )
    return limit


def _candidates(stage: InjectionStage, name: str, config: BenchmarkConfig) -> Candidates:
    wanted = source_name(stage, name, config)
    source = config.sources[wanted]
    tally = Tally(config.on_error, f"benchmark.{name}.on_error")
    node = f"benchmark.{name}.sources.{wanted}"
    remedy = "give a mapping, as conf/benchmark/user.yaml does."
    for part in ("rows", "fields"):
        given = source.get(part)
        require(isinstance(given, Mapping), f"{node}.{part}", given, remedy)
    rows = create(f"{node}.rows", source["rows"]).rows(tally)
    counts = ReadCounts()
    examples = list(_format_all(name, config, source, rows, tally, counts))
    counts.skipped = dict(tally.skipped)
    asked = _asked(stage)
    if len(examples) < asked:
        skipped = f" ({skips(counts.skipped)})" if counts.skipped else ""
        raise ConfigError(
            f"benchmark {name} ({wanted}) has {len(examples)} distinct examples{skipped}, but "
            f"injection.members={stage.injection.members} and injection.nonmembers="
            f"{stage.injection.nonmembers} ask for {asked}: lower them or choose a larger source."
        )
    rng = _rng(stage.injection.pool_seed, "pool", name)
    examples.sort(key=lambda e: e.example_id)  # the source's order must not matter
    return Candidates(name, config, [examples[i] for i in rng.permutation(len(examples))], counts)


def source_name(stage: InjectionStage, name: str, config: BenchmarkConfig) -> str:
    """Which of the benchmark's sources is read.

    Raises:
        ConfigError: it has no such source.
    """
    if len(config.sources) == 1:  # a user's own file, beside embedded or hub benchmarks
        return next(iter(config.sources))
    wanted = stage.injection.benchmark_source
    if wanted not in config.sources:
        raise ConfigError(
            f"injection.benchmark_source is {wanted!r}, which benchmark {name} does not have. "
            f"{near_names(wanted, config.sources)}"
        )
    return wanted


def _format_all(
    name: str,
    config: BenchmarkConfig,
    source: Mapping[str, Any],
    rows: Iterator[Row],
    tally: Tally,
    counts: ReadCounts,
) -> Iterator[Formatted]:
    """The distinct examples; `counts` gets the rows and the duplicates among them."""
    check_formats(name, config, source["fields"])
    seen: set[str] = set()
    for row in rows:
        counts.rows += 1
        fields = fill(row, source["fields"], source.get("values") or {}, tally)
        if fields is not None:
            example = _formatted(name, config, fields)
            key = fields[config.distinct] if config.distinct else example.text
            counts.duplicates += key in seen
            if key not in seen:
                seen.add(key)
                yield example


def _formatted(name: str, config: BenchmarkConfig, fields: Mapping[str, str]) -> Formatted:
    text = config.template.format(**fields)
    return Formatted(f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}", fields, text)


def _draw(
    stage: InjectionStage,
    candidates: Candidates,
    tokenizer: Tokenizer,
    apart: Apart | None,
    counts: DrawCounts,
) -> pd.DataFrame:
    config, name = stage.injection, candidates.name
    asked = _asked(stage)
    limit = max_example_tokens(stage, tokenizer)
    pool = pd.DataFrame(fitting(candidates, tokenizer, limit, asked, apart, counts))
    if len(pool) < asked:
        near = counts.near_duplicates
        others = f" and are near-duplicates of no other ({near} are)" if near else ""
        raise ConfigError(
            f"benchmark {name}: only {len(pool)} of {len(candidates.examples)} examples have at "
            f"most {limit} tokens{others}, but {asked} are asked for: raise "
            "injection.example_max_tokens or injection.sequence_tokens, or lower "
            "injection.members and injection.nonmembers."
        )
    rng = _rng(config.membership_seed, "membership", name)
    pool["member"] = (rng.permutation(asked) < config.members) ^ config.swap_members
    pool["occurrences"] = 0
    pool.loc[pool["member"], "occurrences"] = _occurrences(stage, candidates, pool, tokenizer)
    return pool[list(COLUMNS)]


def _occurrences(
    stage: InjectionStage, candidates: Candidates, pool: pd.DataFrame, tokenizer: Tokenizer
) -> Counts:
    """The members' numbers of copies, in the pool's order."""
    rng = _rng(stage.injection.occurrence_seed, "occurrence", candidates.name)
    node = candidates.config.occurrences or stage.occurrences
    separators = 2 * len(tokenizer.encode(stage.injection.separator))
    tokens = pool.loc[pool["member"], "n_tokens"].to_numpy() + separators
    budget = stage.injection.budget_tokens // len(stage.benchmark)
    drawn: Counts = create("occurrences", node).draw(tokens, budget, rng)
    return drawn


def _rng(seed: int | None, purpose: str, benchmark: str) -> np.random.Generator:
    assert seed is not None, "InjectionStage.resolved() fills the seeds in"
    return np.random.default_rng(derive(seed, purpose, benchmark))


def fitting(
    candidates: Candidates,
    tokenizer: Tokenizer,
    limit: int,
    asked: int,
    apart: Apart | None = None,
    counts: DrawCounts | None = None,
) -> Iterator[dict[str, Any]]:
    """The first `asked` examples that fit, shortened where the benchmark allows it.

    With `apart`, only those that are no near-duplicates of the ones that it took before. `counts`
    gets what became of them.
    """
    counts = counts or DrawCounts()
    for example in candidates.examples:
        if counts.drawn == asked:
            return
        fitted: Formatted | None = example
        if len(tokenizer.encode(example.text)) > limit:
            fitted = _shorten(candidates, example, tokenizer, limit)
            counts.shortened += fitted is not None
            counts.too_long += fitted is None
        if fitted is None:
            continue
        item = _item(candidates.name, candidates.config, fitted.fields, fitted.text)
        if apart and not apart.takes(item):
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


def _shorten(
    candidates: Candidates, example: Formatted, tokenizer: Tokenizer, limit: int
) -> Formatted | None:
    """The example with words cut off the end of its longest part until it fits, or None."""
    key = candidates.config.shorten
    if key is None:
        return None
    words = example.fields[key].split(" ")
    low, high = 0, len(words)  # invariant: `low` words fit (once checked), `high` do not

    def cut(n: int) -> Formatted:
        fields = {**example.fields, key: " ".join(words[:n])}
        return _formatted(candidates.name, candidates.config, fields)

    while high - low > 1:
        middle = (low + high) // 2
        fits = len(tokenizer.encode(cut(middle).text)) <= limit
        low, high = (middle, high) if fits else (low, middle)
    short = cut(low)
    return None if is_blank(short.fields[key]) else short


log = logging.getLogger(__name__)

HELD_OUT_COLUMNS = [name for name in COLUMNS if name not in ("member", "occurrences")]


def draw_held_out(
    stage: InjectionStage,
    candidates: Sequence[Candidates],
    tokenizer: Tokenizer,
    pool: pd.DataFrame,
) -> pd.DataFrame:
    """The next examples in the pool's random order, `injection.held_out` a benchmark.

    None is in the pool or shares text with it. Where a benchmark runs out, fewer are drawn and a
    warning is logged. The draw depends on the pool, not on which half of it are members.

    Returns:
        One row an example: the pool's columns without member and occurrences.
    """
    asked = stage.injection.held_out
    apart = None
    if stage.injection.near_duplicates == "drop":
        keys = near_duplicate_keys(stage, candidates, tokenizer)
        apart = Apart(keys, pool_items(stage, pool))
    limit, drawn = max_example_tokens(stage, tokenizer), set(pool["example_id"])
    rows: list[dict[str, Any]] = []
    for each in candidates:
        rest = [example for example in each.examples if example.example_id not in drawn]
        fit = fitting(replace(each, examples=rest), tokenizer, limit, len(rest), apart)
        own = list(islice(_apart(fit, pool), asked))
        if len(own) < asked:
            few = "held out: %s: %d of the %d examples asked for: its source has no more that fit."
            log.warning(few, each.name, len(own), asked)
        rows += own
    return pd.DataFrame(rows, columns=HELD_OUT_COLUMNS)


def _apart(rows: Iterator[dict[str, Any]], pool: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Those that share no text with the pool or with one another."""
    taken = [normalised(text) for text in pool["text"]]
    for row in rows:
        text = normalised(row["text"])
        if not any(stands_in(text, t) or stands_in(t, text) for t in taken):
            taken.append(text)
            yield row
