"""Versions of examples, of which one, drawn at random, is inserted.

If a model has not seen the corpus, the drawn version is a uniform draw whatever the model scores,
so its rank among all versions has a known distribution. One engine makes random canaries (Carlini
et al. 2019, arXiv 1802.08232; Zhang et al. 2024, arXiv 2409.19798), natural identifiers (arXiv
2606.24408), and rewordings (STAMP, arXiv 2504.13416).
"""

from __future__ import annotations

import string
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contamination.core.config import instantiate_node
from contamination.core.errors import ArtifactError, ConfigError, require
from contamination.core.integrity import errors_naming_folders
from contamination.core.seeds import derive_seed
from contamination.data.perturbation.word_edits import Exact, Lowercase
from contamination.injection.config import (
    REWORDING,
    SHA256,
    URL,
    UUID,
    InjectionConfig,
    InjectionStage,
    VersionsConfig,
)
from contamination.injection.corpus import PackedCorpus
from contamination.injection.token_stream import Tokenizer

VERSIONS_FILE = "versions.parquet"
VERSION_COLUMNS = ("example_id", "benchmark", "version", "text", "injected")
CANARY_ALPHABET = string.digits + string.ascii_lowercase
URL_START, URL_CHARACTERS = "https://example.org/", 10
MAX_ATTEMPTS = 50  # to reword a text into one more distinct version


def check_versions(stage: InjectionStage) -> None:
    """Checks the node `versions` together with `rewording`, before anything is read.

    Raises:
        ConfigError: a value or a combination makes no sense.
    """
    config = stage.versions
    if not config.enabled:
        remedy = "one version is no choice: give 2 or more, or leave out the other fields."
        require(config == VersionsConfig(), "versions.count", config.count, remedy)
        return
    rewording = instantiate_node("rewording", stage.rewording) if stage.rewording else Exact()
    if config.kind == REWORDING:
        remedy = (
            "versions.kind is 'rewording', and this rewording makes all versions equal: choose "
            "rewording=swap, delete or masked_lm."
        )
        is_random = not isinstance(rewording, Exact | Lowercase)
        require(is_random, "rewording", type(rewording).__name__, remedy)
        return
    remedy = (
        "each copy would be another text, and no copy one of the versions: choose rewording=none, "
        "or versions.kind=rewording, which makes the versions by it."
    )
    require(isinstance(rewording, Exact), "rewording", type(rewording).__name__, remedy)
    _check_template(config.template)


def _check_template(template: str) -> None:
    remedy = (
        "give a format string with {text} and {identifier}, once each, such as "
        "'{text}\\nReference: {identifier}'."
    )
    try:
        fields = [f for _, *f in string.Formatter().parse(template) if f[0] is not None]
    except ValueError as error:
        raise ConfigError(f"versions.template is {template!r} ({error}): {remedy}") from error
    expected = [["identifier", "", None], ["text", "", None]]
    require(sorted(fields) == expected, "versions.template", template, remedy)


def extra_tokens(stage: InjectionStage) -> int:
    """Returns an upper bound of the tokens that a version adds to its example's text.

    A byte-level tokenizer makes at most one token of a byte. For rewordings it is 0: their lengths
    are checked when they are made.
    """
    config = stage.versions
    if not config.enabled or config.kind == REWORDING:
        return 0
    identifier = draw_identifiers(config, 0, "")[0]
    return len(config.template.format(text="", identifier=identifier).encode()) + 1


def draw_identifiers(config: VersionsConfig, pool_seed: int, example_id: str) -> list[str]:
    """Returns an example's distinct identifiers, one per version; they don't depend on its text.

    Args:
        config: the number and kind of the versions.
        pool_seed: `injection.pool_seed`, so that all cells of a sweep have the same versions.
        example_id: the example's id.
    """
    rng = np.random.default_rng(derive_seed(pool_seed, "version", config.kind, example_id))
    identifiers: dict[str, None] = {}
    while len(identifiers) < config.count:
        identifiers[_draw_identifier(config, rng)] = None
    return [*identifiers]


def _draw_identifier(config: VersionsConfig, rng: np.random.Generator) -> str:
    def draw_characters(count: int) -> str:
        return "".join(CANARY_ALPHABET[i] for i in rng.integers(len(CANARY_ALPHABET), size=count))

    if config.kind == UUID:
        return str(uuid.UUID(bytes=rng.bytes(16), version=4))
    if config.kind == SHA256:
        return rng.bytes(32).hex()
    if config.kind == URL:
        return URL_START + draw_characters(URL_CHARACTERS)
    return draw_characters(config.characters)


def draw_versions(
    config: InjectionConfig, benchmark: str, n_examples: int, count: int
) -> NDArray[np.int64]:
    """Returns the number of the version of each example that is used, shape (n_examples,).

    The draws are independent and uniform over 0 to `count` − 1. They depend on the seed and the
    example's place in the pool alone, not on texts, membership or occurrences.
    """
    assert config.membership_seed is not None, "InjectionStage.resolved() fills the seeds in"
    rng = np.random.default_rng(derive_seed(config.membership_seed, "version", benchmark))
    return rng.integers(count, size=n_examples)


def make_versions(
    stage: InjectionStage, benchmark: str, pool: pd.DataFrame, tokenizer: Tokenizer
) -> pd.DataFrame:
    """Returns one row per example and version, with the columns `VERSION_COLUMNS`.

    Args:
        stage: the configuration, with its seeds filled in.
        benchmark: the benchmark's name.
        pool: the benchmark's examples in the pool's order, with the columns example_id and text.
        tokenizer: the tokenizer, to check lengths.

    Raises:
        ConfigError: a version does not fit into a sequence, or a text has too few rewordings.
    """
    config = stage.versions
    ids, texts = pool["example_id"].tolist(), pool["text"].tolist()
    if config.kind == REWORDING:
        texts_by_example = _reword(stage, ids, texts)
    else:
        texts_by_example = [
            [
                config.template.format(text=text, identifier=identifier)
                for identifier in draw_identifiers(config, stage.injection.pool_seed, example_id)
            ]
            for example_id, text in zip(ids, texts, strict=True)
        ]
    _check_lengths(stage, texts_by_example, tokenizer)
    drawn = draw_versions(stage.injection, benchmark, len(ids), config.count)
    rows = [
        (example_id, benchmark, version, text, version == drawn_version)
        for example_id, versions, drawn_version in zip(ids, texts_by_example, drawn, strict=True)
        for version, text in enumerate(versions)
    ]
    return pd.DataFrame(rows, columns=list(VERSION_COLUMNS))


def _reword(stage: InjectionStage, ids: Sequence[str], texts: Sequence[str]) -> list[list[str]]:
    """Returns distinct rewordings of each text, none of which is the text itself.

    The original text may be known from elsewhere, so it would rank high whatever was inserted. It
    would not make a test invalid, since the draw is uniform, but weak.
    """
    count, rewording = stage.versions.count, instantiate_node("rewording", stage.rewording)
    seed = derive_seed(stage.injection.pool_seed, "versions")
    versions: list[list[str]] = [[] for _ in texts]
    for attempt in range(MAX_ATTEMPTS):
        missing = [
            (example, version)
            for example, made in enumerate(versions)
            for version in range(len(made), count)
        ]
        if not missing:
            return versions
        keys = [f"{ids[example]}/version {version}/{attempt}" for example, version in missing]
        reworded = rewording.reword([texts[example] for example, _ in missing], keys, seed)
        for (example, _), text in zip(missing, reworded, strict=True):
            if text not in (texts[example], *versions[example]):
                versions[example].append(text)
    example = min(range(len(texts)), key=lambda i: len(versions[i]))
    raise ConfigError(
        f"versions.count is {count}, but {ids[example]} ({texts[example][:60]!r}) has only "
        f"{len(versions[example])} distinct rewordings: lower it, raise rewording.share, or choose "
        "a benchmark with longer texts."
    )


def _check_lengths(
    stage: InjectionStage, texts_by_example: Sequence[Sequence[str]], tokenizer: Tokenizer
) -> None:
    config = stage.injection
    if config.split_copies:
        return
    room = config.sequence_tokens - 2 * len(tokenizer.encode(config.separator))
    texts = [text for versions in texts_by_example for text in versions]
    longest = max((len(tokenizer.encode(text)) for text in texts), default=0)
    if longest > room:
        raise ConfigError(
            f"A version of an example has {longest} tokens, but injection.sequence_tokens="
            f"{config.sequence_tokens} has room for {room} besides the separators: lower "
            "injection.example_max_tokens, or set injection.split_copies=true."
        )


def undrawn_texts(table: pd.DataFrame) -> dict[str, str]:
    """Returns the texts of a table of versions that must not occur in the corpus: text → name."""
    rows = table[~table["injected"].astype(bool)]
    names = rows["example_id"].astype(str) + " version " + rows["version"].astype(str)
    drawn = set(table.loc[table["injected"].astype(bool), "text"])
    pairs = zip(rows["text"], names, strict=True)
    return {text: name for text, name in pairs if text not in drawn}


def versions_config(corpus: PackedCorpus) -> VersionsConfig:
    """Returns the corpus's recorded node `versions`; corpora made before it have one version."""
    with errors_naming_folders(corpus.artifact.path):
        return VersionsConfig(**corpus.config.get("versions", {}))


def read_versions(corpus: PackedCorpus) -> pd.DataFrame:
    """Returns one row per example and version of a corpus with `versions.count` above 1.

    Returns:
        The columns example_id, benchmark, version (0 to K − 1), text, injected (whether it is the
        version that was drawn), member, occurrences (the copies of the example, all of them of the
        drawn version). The K rows of an example follow one another. A non-member has a drawn
        version, too, which no corpus contains.

    Raises:
        ArtifactError: the examples of the corpus have only one version.
    """
    if not versions_config(corpus).enabled:
        raise ArtifactError(
            f"{corpus.artifact.path}: its examples have only one version. Make the corpus with "
            "versions.count=8, for example."
        )
    examples = corpus.examples[["example_id", "member", "occurrences"]]
    with errors_naming_folders(corpus.artifact.path):
        table = corpus.artifact.table(VERSIONS_FILE)[list(VERSION_COLUMNS)]
        rows = table.merge(examples, on="example_id", how="left", validate="many_to_one")
        return rows.astype({"injected": bool, "member": bool, "occurrences": int})


def version_failures(corpus: PackedCorpus) -> list[str]:
    """Compares a corpus's versions with its seeds and its examples; returns what differs.

    The draw and the identifiers are derived again from the recorded seeds. Rewordings are not made
    again; their texts are those that the folder's digest covers.
    """
    config = versions_config(corpus)
    if not config.enabled:
        return []
    with errors_naming_folders(corpus.artifact.path):
        injection = InjectionConfig(**corpus.config["injection"])
        table, examples = corpus.artifact.table(VERSIONS_FILE), corpus.examples
        failures: list[str] = []
        by_example = dict(iter(table.groupby("example_id", sort=False)))
        for benchmark, rows in examples.groupby("benchmark", sort=False):
            drawn = draw_versions(injection, str(benchmark), len(rows), config.count)
            for example, version in zip(rows.itertuples(), drawn, strict=True):
                versions = by_example.pop(example.example_id, table[:0])
                failures += _example_failures(config, injection, example, int(version), versions)
        return failures + [f"{name}: has versions, but is no example" for name in by_example]


def _example_failures(
    config: VersionsConfig,
    injection: InjectionConfig,
    example: Any,
    drawn: int,
    versions: pd.DataFrame,
) -> list[str]:
    name, texts = example.example_id, versions["text"].tolist()
    if versions["version"].tolist() != [*range(config.count)] or len({*texts}) < config.count:
        return [f"{name}: {len({*texts})} distinct versions, {config.count} expected"]
    failures = []
    injected = versions.loc[versions["injected"].astype(bool), "version"].tolist()
    if injected != [drawn]:
        failures.append(f"{name}: version {injected} is listed as drawn, the seed draws {drawn}")
    if texts[drawn] != example.text:
        failures.append(f"{name}: its text is not version {drawn}, which the seed draws")
    if config.kind != REWORDING:
        identifiers = draw_identifiers(config, injection.pool_seed, name)
        pairs = [*zip(texts, identifiers, strict=True)]
        remainders = {text.replace(identifier, "", 1) for text, identifier in pairs}
        if len(remainders) > 1 or any(identifier not in text for text, identifier in pairs):
            failures.append(f"{name}: its versions have not the identifiers that the seed draws")
    return failures
