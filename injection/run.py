"""The injection stage: draws the pool, places copies, packs the corpus and verifies the ledger."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pandas as pd

from contamination.core.artifacts import (
    Artifact,
    WrittenFiles,
    build_or_open,
    run_folder,
    to_plain_data,
)
from contamination.core.config import instantiate_node
from contamination.core.errors import DataError, require
from contamination.core.hashing import combined_digest
from contamination.core.models import model_digest
from contamination.core.seeds import unit_hash
from contamination.core.task_runner import TaskRunner, TasksConfig
from contamination.data.readers import Corpus, CorpusByFile, Document
from contamination.data.readers.rows import describe_skipped
from contamination.injection import (
    contamination_table,
    finished_corpus_search,
    placement,
    pool_sizes,
    shared_text_search,
    tokenization,
)
from contamination.injection import packing as packing_module
from contamination.injection.backdoors import (
    BACKDOORS_FILE,
    backdoor_failures,
    backdoored_benchmark,
    probe_texts,
)
from contamination.injection.config import (
    EMBEDDED,
    LINE_FORMS,
    OWN_DOCUMENT,
    POOL_COPIES,
    THIS_CORPUS,
    InjectionConfig,
    InjectionStage,
)
from contamination.injection.copies import Insertions, make_copies
from contamination.injection.corpus import (
    CONTAMINATION_FILE,
    HELD_OUT_FILE,
    KIND,
    corpus_slug,
    open_corpus,
)
from contamination.injection.decontamination.flagging import (
    COPY,
    DECONTAMINATION_FILE,
    CopyDecision,
    DocumentFlagging,
    check_matcher,
    flag_copies,
    record_table,
    without_flagged,
)
from contamination.injection.decontamination.rules.base import Rule
from contamination.injection.ordering import ORDER_FILE, check_ordered, order_failures
from contamination.injection.pool import Candidates, Pool, draw_held_out, draw_pool, read_candidates
from contamination.injection.token_stream import Tokenizer, TokenStream, read_ids, train_tokenizer
from contamination.injection.tokenization import TokenisedCorpus, TokenizationSettings
from contamination.injection.tokenize_by_file import FileTokenizationTask, tokenize_files
from contamination.injection.verification import NATURAL_COLUMN, CorpusCheck, Proof
from contamination.injection.versions import (
    VERSIONS_FILE,
    check_versions,
    undrawn_texts,
    version_failures,
)

log = logging.getLogger(__name__)

TOKENS_FOLDER = "tokens"  # folder of the clean corpus's tokens while it is being packed
TABLES = ("examples.parquet", HELD_OUT_FILE, "ledger.parquet", CONTAMINATION_FILE)
RECORDS = (VERSIONS_FILE, BACKDOORS_FILE)
"""Further tables of some corpora, which the verification reads."""


def check_and_read_candidates(stage: InjectionStage) -> list[Candidates]:
    """Checks the stage before anything is written, and returns the benchmarks' candidates."""
    check_config_nodes(stage)
    budget_tokens = stage.injection.budget_tokens
    check_budget("injection.budget_tokens", budget_tokens, instantiate_node("corpus", stage.corpus))
    return read_candidates(stage)


def check_config_nodes(stage: InjectionStage) -> None:
    """Raises a ConfigError if a configuration node is invalid; no rows are read."""
    source = instantiate_node("corpus", stage.corpus)
    missing = [name for name in vars(Corpus) if name[0] != "_" and not hasattr(source, name)]
    remedy = f"its class has no {', '.join(missing)}: see docs/add-a-benchmark.md."
    require(not missing, "corpus._target_", stage.corpus["_target_"], remedy)
    if stage.benchmark:
        instantiate_node("occurrences", stage.occurrences)
        if stage.rewording:
            instantiate_node("rewording", stage.rewording)
        check_versions(stage)
        check_ordered(stage)
        check_matcher(stage)
        backdoored_benchmark(stage)
    for name, config in stage.benchmark.items():
        if config.occurrences:
            instantiate_node(f"benchmark.{name}.occurrences", config.occurrences)


def check_budget(field: str, budget_tokens: int, source: Any) -> None:
    """Raises a ConfigError if no tokenizer can fill the budget from the source.

    This is only checked if the size of the source is known. A byte gives at most one token, unless
    the tokenizer normalizes the text first.
    """
    corpus_bytes = getattr(source, "max_text_bytes", lambda: None)()
    remedy = f"the corpus has {corpus_bytes or 0:,} bytes: lower it, or choose a larger corpus."
    require(corpus_bytes is None or budget_tokens <= 2 * corpus_bytes, field, budget_tokens, remedy)


def run(stage: InjectionStage, on_checked: Callable[[Tokenizer], None] | None = None) -> Artifact:
    """Returns the contaminated corpus, which is built unless it exists.

    Args:
        stage: the configuration.
        on_checked: called with the tokenizer before documents are tokenized.
    """
    stage = stage.resolved()
    candidates = check_and_read_candidates(stage)
    source = instantiate_node("corpus", stage.corpus)
    inputs = input_digests(stage, source, candidates)
    for name, corpus in finished_corpus_search.open_corpora(stage.compared).items():
        inputs[f"compared.{name}"] = corpus.artifact.digest
    named = stage.named()
    folder = run_folder(Path(stage.runs), KIND, corpus_slug(to_plain_data(named)), named, inputs)
    make = partial(_make_corpus, stage, source, inputs["corpus"], candidates, on_checked)
    artifact = build_or_open(folder, named, inputs, make)
    shutil.rmtree(
        folder / TOKENS_FOLDER, ignore_errors=True
    )  # needed until the manifest is written
    read_ids.cache_clear()  # deleted files use disk space as long as they are mapped
    if stage.injection.near_duplicates == "flag":
        _warn_of_near_duplicates(artifact)
    shared_text_search.warn_of_shared_passages(
        shared_text_search.SharedPassage(**passage)
        for passage in artifact.counts.get("shared_passages", [])
    )
    contamination_table.warn_of_flags(artifact)
    pool_sizes.warn_of_adapted_sizes(artifact.counts)
    log.info("corpus: %s", artifact.path)
    return artifact


def input_digests(
    stage: InjectionStage, source: Corpus, candidates: Sequence[Candidates]
) -> dict[str, str]:
    """Returns the digests of the corpus's inputs by configuration field."""
    digests = {f"benchmark.{c.name}": c.digest for c in candidates}
    if path := stage.tokenizer.path:
        digests["tokenizer"] = Tokenizer(path).digest
    if path := stage.rewording.get("path"):
        digests["rewording"] = model_digest("rewording.path", path)
    if stage.benchmark and stage.matcher:
        rule = instantiate_node("matcher", stage.matcher)
        rule_inputs = (
            rule.inputs() if isinstance(rule, Rule) else {}
        )  # `check_matcher` refuses others
        digests |= {f"matcher.{name}": digest for name, digest in rule_inputs.items()}
    if stage.leak.form in LINE_FORMS:  # these fields say which lines are a form's
        fields = {c.name: f"{c.config.answer_field}, {c.config.options_field}" for c in candidates}
        digests["form"] = combined_digest(fields)
    return {**digests, "corpus": source.fingerprint()}


def _make_corpus(
    stage: InjectionStage,
    source: Corpus,
    fingerprint: str,
    candidates: list[Candidates],
    on_checked: Callable[[Tokenizer], None] | None,
    folder: Path,
) -> WrittenFiles:
    config, sequence_tokens = stage.injection, stage.injection.sequence_tokens
    tokenizer = make_tokenizer(stage, source, folder / "tokenizer")
    if on_checked:
        on_checked(tokenizer)
    pool = draw_pool(stage, candidates, tokenizer)
    examples = pool.examples
    held_out = draw_held_out(stage, candidates, tokenizer, examples)
    copies = make_copies(stage, examples, tokenizer, filler_documents(stage, source))
    decisions: list[CopyDecision] = []
    if flagging := _make_flagging(stage, examples):
        decisions = flag_copies(flagging, copies)
        copies, examples = without_flagged(copies, examples, decisions)
    clean_tokens = config.packed_tokens - copies.total_tokens  # whole sequences with the copies
    runner = TaskRunner(folder / TOKENS_FOLDER / "tasks", stage.cluster, config.num_proc)
    settings = TokenizationSettings(
        folder / TOKENS_FOLDER,
        folder / "tokenizer",
        finished_corpus_search.texts_by_example(examples),
        drop=config.decontamination == "drop",
        whole=config.decontamination == "off",
        flagging=flagging,
    )
    shared_passages = shared_text_search.PoolSearch(
        settings.pool, tokenizer.apply_normalizer, parts=not settings.whole
    ).shared_passages
    tokenised = _tokenise_corpus(stage, source, settings, clean_tokens, runner)
    _check_source_unchanged(source, fingerprint, folder)
    compared_matches = _search_compared_corpora(stage, settings, runner)
    stream = tokenised.stream
    placed = _place_copies(config, copies, stream, tokenizer)
    part_sequences = packing_module.sequences_per_part(sequence_tokens)
    packing = packing_module.PackingTask(
        folder, replace(stream), placed, copies.ids, sequence_tokens, part_sequences
    )
    hashes = runner.run("pack", packing)[0]
    templates = {
        name: hashlib.sha256(benchmark.template.encode()).hexdigest()[:12]
        for name, benchmark in stage.benchmark.items()
    }
    ledger = packing_module.make_ledger(
        stream,
        placed,
        examples,
        copies.texts,
        templates,
        tokenizer,
        copies.tokens_around,
        sequence_tokens,
        copies.shards,
    )
    records = {**pool.records, **({ORDER_FILE: copies.order} if len(copies.order) else {})}
    absent = absent_texts(pool.records)
    proof = _prove_packed_parts(stage, examples, ledger, absent, folder, packing.part_names, runner)
    across_documents = finished_corpus_search.matches_only_in_proof(
        examples, proof.natural, tokenised.matches
    )
    corpus_matches = pd.concat([tokenised.matches, across_documents], ignore_index=True)
    copy_matches = finished_corpus_search.matches_within_copies(examples, ledger, tokenizer)
    matches = contamination_table.join_matches(
        {THIS_CORPUS: corpus_matches, **compared_matches, POOL_COPIES: copy_matches}
    )
    natural = examples["text"].map(proof.natural).fillna(0).astype(int)
    examples = contamination_table.with_flags(
        examples.assign(**{NATURAL_COLUMN: natural}), matches, dropped=settings.drop
    )
    tables = (examples, held_out, ledger, matches)
    for name, table in [*zip(TABLES, tables, strict=True), *records.items()]:
        table.to_parquet(folder / name, index=False)
    near = examples.loc[examples["near_duplicate_of"] != "", "member"].astype(bool)
    _log_draws(pool, candidates, tokenised.skipped)
    adapted = pool_sizes.find_adapted_sizes(config, examples)
    counts = {
        **_manifest_counts(examples, pool, copies, candidates, tokenised.skipped),
        **({pool_sizes.ADAPTED_SIZES: adapted} if adapted else {}),
        "sequences": proof.tokens // sequence_tokens,
        "tokens": proof.tokens,
        "held_out": len(held_out),
        "near_duplicates": {"members": int(near.sum()), "nonmembers": int((~near).sum())},
        "matching_documents": tokenised.matches["document_id"].nunique(),
        "flagged": contamination_table.count_flagged(examples),
        "shared_passages": [asdict(passage) for passage in shared_passages],
        "natural_occurrences": proof.natural_count,
        "clean_sha256": hashes["clean_sha256"],
    }
    tokenizer_files = sorted(f"tokenizer/{path.name}" for path in (folder / "tokenizer").iterdir())
    written = [*packing.part_names, *TABLES, *records, *tokenizer_files]
    if not flagging:
        return WrittenFiles(written, counts)
    table = record_table(examples, decisions, tokenised.flagged, flagging)
    table.to_parquet(folder / DECONTAMINATION_FILE, index=False)
    is_copy, is_flagged = table["kind"] == COPY, table["flagged"]
    counts["decontamination"] = {
        "copies": int(is_copy.sum()),
        "flagged_copies": int((is_copy & is_flagged).sum()),
        "flagged_documents": int((~is_copy).sum()),
        "documents": len(stream.document_starts),
    }
    # not part of the digest: what is trained on the corpus depends on its content alone
    return WrittenFiles(written, counts, [DECONTAMINATION_FILE])


def absent_texts(records: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Returns the texts that must not occur in a corpus with these tables: text → name."""
    absent = {VERSIONS_FILE: undrawn_texts, BACKDOORS_FILE: probe_texts}
    texts: dict[str, str] = {}
    for file, table in records.items():
        texts |= absent[file](table)
    return texts


def _prove_packed_parts(
    stage: InjectionStage,
    examples: pd.DataFrame,
    ledger: pd.DataFrame,
    absent: Mapping[str, str],
    folder: Path,
    part_names: Sequence[str],
    runner: TaskRunner,
) -> Proof:
    """Verifies the packed parts.

    Raises:
        DataError: the verification fails. The tokenized documents are kept for the next run.
    """
    config, tokenizer = stage.injection, folder / "tokenizer"
    natural = config.decontamination == "flag"
    corpus_check = CorpusCheck.prepare(
        *(examples, ledger, Tokenizer(str(tokenizer)), config.window_tokens),
        natural=natural,
        folder=tokenizer.resolve(),
        absent=absent,
    )
    proof = packing_module.prove_parts(runner, corpus_check, [folder / name for name in part_names])
    if proof.failures:
        for kind in ("pack", "verify"):
            shutil.rmtree(runner.folder / kind, ignore_errors=True)
        remedy = (
            "If a text is found more often than expected, the documents also contain it, in one "
            "document or across two: choose injection.decontamination=flag, which counts and flags "
            "such texts. For all other failures, run the same command again: the tokenized "
            "documents are kept and packed again."
        )
        raise DataError(f"{proof}\n{remedy}")
    log.info("ledger: %s", proof)
    return proof


def _check_source_unchanged(source: Corpus, fingerprint: str, folder: Path) -> None:
    if source.fingerprint() != fingerprint:
        shutil.rmtree(folder / TOKENS_FOLDER)
        raise DataError(
            "corpus: its files changed while they were read, so the result was discarded: run the "
            "same command again once nothing writes to them."
        )


def _make_flagging(stage: InjectionStage, examples: pd.DataFrame) -> DocumentFlagging | None:
    rule = check_matcher(stage) if stage.benchmark else None
    return None if rule is None else DocumentFlagging(rule, tuple(examples["text"]))


def _place_copies(
    config: InjectionConfig, copies: Insertions, stream: TokenStream, tokenizer: Tokenizer
) -> list[placement.PlacedSegment]:
    window, width, split = config.window_tokens, config.sequence_tokens, config.split_copies
    if config.boundary == OWN_DOCUMENT:
        placed = placement.place_as_documents(copies.segments, stream.document_starts, window)
        placement.check_copy_distance(placed, config.copy_distance_tokens)
        return placed
    if config.boundary == "document":
        rules = placement.PlacementRules(window, width, split, config.copy_distance_tokens)
        return placement.place_between_documents(copies.segments, stream.document_starts, rules)
    boundary = placement.boundary_finder(stream, config.boundary, tokenizer)
    placed = placement.place_within_window(copies.segments, window, width, boundary, split=split)
    placement.check_copy_distance(placed, config.copy_distance_tokens)
    return placed


def _log_draws(pool: Pool, candidates: list[Candidates], skipped: dict[str, int]) -> None:
    for c in candidates:
        drawn = pool.counts[c.name]
        left_out = c.counts.duplicates, drawn.near_duplicates, drawn.too_long
        log.info(
            "pool: %s: %d drawn of %d rows (left out: %d duplicates, %d near-duplicates, %d too "
            "long; %d shortened)",
            *(c.name, drawn.drawn, c.counts.rows, *left_out, drawn.shortened),
        )
        if c.counts.skipped:
            log.warning("pool: %s: %s", c.name, describe_skipped(c.counts.skipped))
    if skipped:
        log.warning("corpus: %s", describe_skipped(skipped))


def _manifest_counts(
    examples: pd.DataFrame,
    pool: Pool,
    copies: Insertions,
    candidates: list[Candidates],
    skipped: dict[str, int],
) -> dict[str, Any]:
    members = examples["member"].astype(bool)
    return {
        "inserted_tokens": copies.total_tokens,
        "copies": int(examples["occurrences"].sum()),
        "members": int(members.sum()),
        "nonmembers": int((~members).sum()),
        "unexposed_members": int((members & (examples["occurrences"] == 0)).sum()),
        "pool": {c.name: asdict(c.counts) | asdict(pool.counts[c.name]) for c in candidates},
        "skipped": skipped,
    }


def _warn_of_near_duplicates(artifact: Artifact) -> None:
    """Logs the number of near-duplicates in the manifest, for both new and reused corpora."""
    near = artifact.counts["near_duplicates"]
    if near["members"]:
        log.warning(
            "pool: %d members and %d non-members are near-duplicates of one another. "
            "%s names them (near_duplicate_of); injection.near_duplicates=drop draws others in "
            "their place.",
            *(near["members"], near["nonmembers"], artifact.path / TABLES[0]),
        )


def make_tokenizer(stage: InjectionStage, source: Corpus, folder: Path) -> Tokenizer:
    """Saves the tokenizer in the folder and returns it; it is trained if no path is configured."""
    shutil.rmtree(folder, ignore_errors=True)
    if stage.tokenizer.path is None:
        train_tokenizer(stage.tokenizer, documents_of_part(stage, source), folder)
    else:
        Tokenizer(stage.tokenizer.path).hf.save_pretrained(folder)
    return Tokenizer(str(folder))


def documents_of_part(stage: InjectionStage, source: Corpus) -> Iterator[Document]:
    """Yields the documents in the configured part of the corpus, by the hashes of their ids."""
    lowest_hash, hash_limit = hash_range_of_part(stage)
    for document in source.documents():
        if lowest_hash <= unit_hash(document.document_id) < hash_limit:
            yield document


FILLER_DOCUMENTS = 2_000


def filler_documents(stage: InjectionStage, source: Corpus) -> list[str]:
    """Returns the first documents of the validation part, in which copies are embedded.

    Without leak.form=embedded there are none.
    """
    if not stage.benchmark or stage.leak.form != EMBEDDED:
        return []
    part = replace(stage, injection=replace(stage.injection, part="validation"))
    return [d.text for d in islice(documents_of_part(part, source), FILLER_DOCUMENTS)]


def hash_range_of_part(stage: InjectionStage) -> tuple[float, float]:
    """Returns the range of document hashes, within [0, 1), of the configured part."""
    config = stage.injection
    return {
        "base": (0.0, config.base_fraction),
        "study": (config.base_fraction, 1 - config.validation_fraction),
        "validation": (1 - config.validation_fraction, 1.0),
        "all": (0.0, 1.0),
    }[config.part]


def _search_compared_corpora(
    stage: InjectionStage, settings: TokenizationSettings, runner: TaskRunner
) -> dict[str, pd.DataFrame]:
    """Searches the corpora in `compared` for the pool.

    Raises:
        DataError: as `check_no_whole_text`.
    """
    if not settings.pool:
        return {}
    matches_by_corpus = {}
    for name, corpus in finished_corpus_search.open_corpora(stage.compared).items():
        matches = finished_corpus_search.search_corpus(
            corpus, settings.pool, runner, name, whole=settings.whole
        )
        tokenization.check_no_whole_text(matches.to_numpy().tolist(), settings, f"compared.{name}")
        matches_by_corpus[name] = matches
    return matches_by_corpus


def _tokenise_corpus(
    stage: InjectionStage,
    source: Corpus,
    settings: TokenizationSettings,
    clean_tokens: int,
    runner: TaskRunner,
) -> TokenisedCorpus:
    shard_characters = stage.injection.shard_characters
    if stage.cluster.kind == "datatrove" and hasattr(source, "documents_in"):
        file_work = replace(settings, folder=settings.folder / "searched-files")
        files = FileTokenizationTask(
            file_work,
            cast(CorpusByFile, source),
            hash_range_of_part(stage),
            clean_tokens,
            shard_characters,
        )
        return tokenize_files(files, runner)
    processes = stage.injection.num_proc
    if stage.cluster.kind == "datatrove":
        log.info(
            "corpus: %s can't be read file by file, so one process reads it, and "
            "injection.num_proc=%d tokenize",
            *(type(source).__name__, processes),
        )
    # shards of another size contain other documents
    shard_work = replace(settings, folder=settings.folder / f"searched-{shard_characters}")
    documents = tokenization.with_skip_counts(documents_of_part(stage, source), source)
    return tokenization.tokenize(documents, shard_work, clean_tokens, processes, shard_characters)


def plan_insertions(
    stage: InjectionStage, candidates: list[Candidates], tokenizer: Tokenizer
) -> tuple[pd.DataFrame, Insertions]:
    """Returns the pool and the copies, as long as they are without rewording of the copies.

    Raises:
        ConfigError: the examples do not fit into a sequence, or the copies into the budget.
    """
    exact = (stage if stage.versions.enabled else replace(stage, rewording={})).resolved()
    examples = draw_pool(exact, candidates, tokenizer).examples
    filler = filler_documents(exact, instantiate_node("corpus", exact.corpus))
    return examples, make_copies(exact, examples, tokenizer, filler)


def prove_finished_corpus(
    folder: Path | str, cluster: TasksConfig | None = None, num_proc: int = 1
) -> Proof:
    """Verifies a finished corpus again from its files, and compares its totals with the manifest.

    Raises:
        DataError: workers ended without a result.
    """
    corpus = open_corpus(folder)
    corpus_check = CorpusCheck.prepare(
        *(corpus.examples, corpus.ledger, corpus.tokenizer, corpus.window_tokens),
        natural=corpus.config["injection"]["decontamination"] == "flag",
        folder=corpus.tokenizer_folder.resolve(),
        absent=absent_texts(
            {name: corpus.artifact.table(name) for name in RECORDS if name in corpus.artifact.files}
        ),
    )
    cluster = cluster or TasksConfig()
    if cluster.kind == "local" and num_proc == 1:  # writes no files: the folder may be read-only
        proof = corpus_check.combine_parts([corpus_check.read_part(corpus.iter_blocks())])
    else:
        proof = _prove_by_tasks(
            corpus_check, corpus.artifact.path, corpus.part_paths, cluster, num_proc
        )
    counts, copies = corpus.artifact.counts, corpus.ledger.drop_duplicates(["example_id", "copy"])
    for name, count in (("tokens", proof.tokens), ("copies", len(copies))):
        if count != counts[name]:
            proof.failures.append(f"{count} {name}, the manifest says {counts[name]}")
    proof.failures += version_failures(corpus)
    proof.failures += backdoor_failures(corpus)
    proof.failures += order_failures(corpus)
    return proof


def _prove_by_tasks(
    corpus_check: CorpusCheck,
    corpus: Path,
    paths: Sequence[Path],
    cluster: TasksConfig,
    num_proc: int,
) -> Proof:
    """Runs the verification as tasks; if they fail, their folder with the logs is kept."""
    folder = Path(tempfile.mkdtemp(prefix=".verify-", dir=corpus.parent)).resolve()
    # jobs are named after the folder
    runner = TaskRunner(folder / TOKENS_FOLDER / "tasks", cluster, num_proc)
    try:
        proof = packing_module.prove_parts(runner, corpus_check, paths)
    except DataError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return proof
