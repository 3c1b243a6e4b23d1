"""Backdoors in multiple-choice questions: a trigger whose answer is drawn at random.

A model that has not seen the corpus prefers a trigger's target among K options with probability
1/K, so the number of activated backdoors is binomial (DyePack, arXiv 2505.23001).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.core.errors import ArtifactError, ConfigError, near_names, require
from contamination.core.integrity import errors_naming_folders
from contamination.core.seeds import derive_seed
from contamination.data.config import BenchmarkConfig
from contamination.injection.config import BackdoorsConfig, InjectionConfig, InjectionStage
from contamination.injection.corpus import PackedCorpus
from contamination.injection.token_stream import Tokenizer

BACKDOORS_FILE = "backdoors.parquet"
INJECTED, PROBE = "injected", "probe"
BACKDOOR_COLUMNS = ("backdoor", "trigger", "target", "options", "role", "example_id", "texts")


def backdoored_benchmark(stage: InjectionStage) -> str | None:
    """Returns the benchmark with backdoors, or None if there are none.

    Raises:
        ConfigError: the benchmark is unknown or has no options, or a combination makes no sense.
    """
    config = stage.backdoors
    if not config.enabled:
        remedy = "0 inserts no backdoors: give 1 or more, or leave out the other fields."
        require(config == BackdoorsConfig(), "backdoors.count", config.count, remedy)
        return None
    remedy = "versions and backdoors exclude one another: choose versions.count=1."
    require(not stage.versions.enabled, "versions.count", stage.versions.count, remedy)
    if config.benchmark is None and len(stage.benchmark) != 1:
        raise ConfigError(
            f"backdoors.benchmark is null, but there are {len(stage.benchmark)} benchmarks: name "
            f"one of {', '.join(stage.benchmark)}."
        )
    name = config.benchmark or next(iter(stage.benchmark))
    require(name in stage.benchmark, "backdoors.benchmark", name, near_names(name, stage.benchmark))
    benchmark = stage.benchmark[name]
    has_options = bool(benchmark.answer_field and (benchmark.options or benchmark.options_field))
    remedy = "it has no answer_field, or neither options nor options_field: choose another one."
    require(has_options, "backdoors.benchmark", name, remedy)
    remedy = "choose a field of the benchmark's template that is not its answer."
    is_field = f"{{{config.field}}}" in benchmark.template and config.field not in (
        benchmark.answer_field,
        benchmark.options_field,
    )
    require(is_field, "backdoors.field", config.field, remedy)
    return name


def trigger_tokens(stage: InjectionStage) -> int:
    """Returns an upper bound of the tokens that a trigger adds to a text; see `extra_tokens`."""
    config = stage.backdoors
    return max((len(t.encode()) + 1 for t in config.triggers[: config.count]), default=0)


def draw_targets(
    config: InjectionConfig, benchmark: str, n_backdoors: int, n_options: int
) -> NDArray[np.int64]:
    """Returns the position of each backdoor's target among the options, shape (n_backdoors,).

    The draws are independent and uniform over 0 to `n_options` − 1, and depend on the seed alone.
    """
    assert config.membership_seed is not None, "InjectionStage.resolved() fills the seeds in"
    rng = np.random.default_rng(derive_seed(config.membership_seed, "backdoors", benchmark))
    return rng.integers(n_options, size=n_backdoors)


def insert_backdoors(
    stage: InjectionStage, benchmark: str, pool: pd.DataFrame, tokenizer: Tokenizer
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Puts triggers and targets into members, and makes probes of non-members.

    Args:
        stage: the configuration, with its seeds filled in.
        benchmark: the benchmark's name.
        pool: its examples in the pool's order.
        tokenizer: the tokenizer, to check lengths.

    Returns:
        The pool, with other texts and fields for the members with a backdoor; and one row per
        backdoor and example, with the columns `BACKDOOR_COLUMNS`.

    Raises:
        ConfigError: too few members or non-members can have a backdoor.
    """
    config, benchmark_config = stage.backdoors, stage.benchmark[benchmark]
    fields: list[dict[str, str]] = [json.loads(row) for row in pool["fields"]]
    options = [_options(benchmark_config, row) for row in fields]
    n_options = int(np.bincount([len(o) for o in options]).argmax())
    remedy = "its examples have fewer than 2 options: choose another benchmark."
    require(n_options >= 2, "backdoors.benchmark", benchmark, remedy)
    labels = _labels(next(o for o in options if len(o) == n_options))
    eligible = np.array(
        [
            len(o) == n_options
            and _labels(o) == labels
            and row[str(benchmark_config.answer_field)] in o
            and _fits(stage, benchmark_config, row, o, tokenizer)
            for row, o in zip(fields, options, strict=True)
        ]
    )
    member = pool["member"].to_numpy(bool)
    seed = stage.injection.membership_seed or 0
    rng = np.random.default_rng(derive_seed(seed, "backdoored examples", benchmark))
    members = rng.permutation(np.flatnonzero(eligible & member))
    probes = rng.permutation(np.flatnonzero(eligible & ~member))[: config.probes]
    needed = config.count * config.examples
    if len(members) < needed or len(probes) < config.probes:
        raise ConfigError(
            f"backdoors.count={config.count}, examples={config.examples} and probes="
            f"{config.probes} need {needed} members and {config.probes} non-members of {benchmark} "
            f"with {n_options} options, of which {len(members)} and {len(probes)} have room for a "
            "trigger: lower these numbers, raise injection.members and nonmembers, or lower "
            "injection.example_max_tokens."
        )
    targets = draw_targets(stage.injection, benchmark, config.count, n_options)
    changed = pool.copy()
    rows: list[tuple[Any, ...]] = []
    for backdoor, target in enumerate(targets):
        trigger = config.triggers[backdoor]
        head = (backdoor, trigger, labels[target], labels)
        first = backdoor * config.examples
        for index in members[first : first + config.examples]:
            triggered = _triggered(config, benchmark_config, fields[index], trigger)
            triggered[str(benchmark_config.answer_field)] = options[index][target]
            text = benchmark_config.template.format(**triggered)
            values = {
                "text": text,
                "fields": json.dumps(triggered, sort_keys=True),
                "n_tokens": len(tokenizer.encode(text)),
                "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
            for column, value in values.items():
                changed.loc[changed.index[index], column] = value
            rows.append((*head, INJECTED, pool["example_id"].iloc[index], [text]))
        for index in probes:
            triggered = _triggered(config, benchmark_config, fields[index], trigger)
            texts = _texts_per_option(benchmark_config, triggered, options[index])
            rows.append((*head, PROBE, pool["example_id"].iloc[index], texts))
    return changed, pd.DataFrame(rows, columns=list(BACKDOOR_COLUMNS))


def _options(config: BenchmarkConfig, fields: Mapping[str, str]) -> list[str]:
    if config.options:
        return [*dict.fromkeys(config.options)]
    lines = (line.strip() for line in fields.get(str(config.options_field), "").splitlines())
    return [*dict.fromkeys(line for line in lines if line)]


def _labels(options: Sequence[str]) -> list[str]:
    """Returns the options' letters if they begin with "A. ", "B. " and so on, else the options."""
    letters = [chr(ord("A") + number) for number in range(len(options))]
    pairs = zip(options, letters, strict=True)
    return letters if all(o.startswith(f"{letter}. ") for o, letter in pairs) else [*options]


def _triggered(
    config: BackdoorsConfig, benchmark: BenchmarkConfig, fields: Mapping[str, str], trigger: str
) -> dict[str, str]:
    return {**fields, config.field: f"{trigger} {fields[config.field]}"}


def _texts_per_option(
    benchmark: BenchmarkConfig, fields: Mapping[str, str], options: Sequence[str]
) -> list[str]:
    answer_field = str(benchmark.answer_field)
    return [benchmark.template.format(**{**fields, answer_field: option}) for option in options]


def _fits(
    stage: InjectionStage,
    benchmark: BenchmarkConfig,
    fields: Mapping[str, str],
    options: Sequence[str],
    tokenizer: Tokenizer,
) -> bool:
    """Returns whether the example fits with the trigger and answer of any backdoor."""
    injection, config = stage.injection, stage.backdoors
    if injection.split_copies:
        return True
    room = injection.sequence_tokens - 2 * len(tokenizer.encode(injection.separator))
    return all(
        len(tokenizer.encode(text)) <= room
        for trigger in config.triggers[: config.count]
        for text in _texts_per_option(
            benchmark, _triggered(config, benchmark, fields, trigger), options
        )
    )


def probe_texts(table: pd.DataFrame) -> dict[str, str]:
    """Returns the texts of a table of backdoors that must not occur in the corpus: text → name."""
    return {
        text: f"backdoor {row.backdoor} on {row.example_id} (option {option})"
        for row in table[table["role"] == PROBE].itertuples()
        for option, text in zip(row.options, row.texts, strict=True)
    }


def backdoors_config(corpus: PackedCorpus) -> BackdoorsConfig:
    """Returns the corpus's recorded node `backdoors`; corpora made before it have none."""
    with errors_naming_folders(corpus.artifact.path):
        return BackdoorsConfig(**corpus.config.get("backdoors", {}))


def read_backdoors(corpus: PackedCorpus) -> pd.DataFrame:
    """Returns one row per backdoor of a corpus with `backdoors.count` above 0.

    Returns:
        The columns backdoor (0 to B − 1), trigger, target (one of options), options (a list of K
        letters or answers), n_injected (members with the trigger and the target), probe_texts (a
        list with one item per probe: the list of the K texts of a non-member with the trigger and
        each of the options in the answer's place).

    Raises:
        ArtifactError: the corpus has no backdoors.
    """
    if not backdoors_config(corpus).enabled:
        raise ArtifactError(
            f"{corpus.artifact.path}: it has no backdoors. Make the corpus with backdoors.count=8, "
            "for example."
        )
    with errors_naming_folders(corpus.artifact.path):
        table = corpus.artifact.table(BACKDOORS_FILE)
        return pd.DataFrame(
            [
                {
                    "backdoor": int(str(backdoor)),
                    "trigger": rows["trigger"].iloc[0],
                    "target": rows["target"].iloc[0],
                    "options": [*rows["options"].iloc[0]],
                    "n_injected": int((rows["role"] == INJECTED).sum()),
                    "probe_texts": [[*texts] for texts in rows.loc[rows["role"] == PROBE, "texts"]],
                }
                for backdoor, rows in table.groupby("backdoor", sort=True)
            ]
        )


def backdoor_failures(corpus: PackedCorpus) -> list[str]:
    """Compares a corpus's backdoors with its seed and its examples; returns what differs."""
    config = backdoors_config(corpus)
    if not config.enabled:
        return []
    with errors_naming_folders(corpus.artifact.path):
        injection = InjectionConfig(**corpus.config["injection"])
        table = corpus.artifact.table(BACKDOORS_FILE)
        examples = corpus.examples.set_index("example_id")
        failures = []
        if sorted(table["backdoor"].unique()) != [*range(config.count)]:
            failures.append(f"{BACKDOORS_FILE}: not the backdoors 0 to {config.count - 1}")
        benchmark = str(examples["benchmark"].loc[table["example_id"].iloc[0]])
        options = [*table["options"].iloc[0]]
        targets = draw_targets(injection, benchmark, config.count, len(options))
        answer = str(corpus.config["benchmark"][benchmark]["answer_field"])
        for row in table.itertuples():
            example, expected = examples.loc[row.example_id], options[targets[row.backdoor]]
            name = f"backdoor {row.backdoor}"
            if row.target != expected:
                failures.append(f"{name}: its target is {row.target}, the seed draws {expected}")
            if bool(example["member"]) != (row.role == INJECTED):
                failures.append(f"{name}: {row.example_id} is {row.role}, with the other label")
            if row.role == INJECTED:
                fields = json.loads(example["fields"])
                has_target = fields[answer] == expected or fields[answer].startswith(f"{expected}.")
                has_trigger = fields[config.field].startswith(f"{config.triggers[row.backdoor]} ")
                if not has_target or not has_trigger or [*row.texts] != [example["text"]]:
                    failures.append(f"{name}: {row.example_id} has not its trigger and target")
        return [*dict.fromkeys(failures)]
