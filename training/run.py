"""The training stage: pretraining, continual pretraining or fine-tuning, with exported models."""

from __future__ import annotations

import gc
import logging
import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from contamination.core import artifacts
from contamination.core.artifacts import Artifact, WrittenFiles, run_folder
from contamination.core.config import identity_data
from contamination.core.config_diff import log_nearest_folder
from contamination.core.distributed import World, launched_process_count
from contamination.core.errors import require
from contamination.core.integrity import SCHEMA
from contamination.core.lock import exclusive_build
from contamination.core.models import full_shape
from contamination.injection.corpus import (
    FinetuningSet,
    PackedCorpus,
    check_not_finetuning_set,
    open_corpus,
)
from contamination.training import checkpoints, trained_model, unlearning
from contamination.training import deepspeed_engine as engines
from contamination.training.checkpoints import SavedCheckpoint
from contamination.training.config import LIKELIHOOD, TrainingStage
from contamination.training.data import SequenceOrder, make_exposure_table
from contamination.training.deepspeed_engine import join_process_group
from contamination.training.loop import (
    TokenIdsBySet,
    TrainingLoop,
    check_recipe,
    evaluation_token_ids,
)
from contamination.training.loss import check_texts_are_separate
from contamination.training.metrics import TrainingRecord
from contamination.training.models import check_architecture, load_or_create_model, model_digest
from contamination.training.objectives.choose import make_objective
from contamination.training.objectives.retained import check_reference
from contamination.training.resources import flops_per_token
from contamination.training.trained_model import RANDOM_WEIGHTS, ancestry_of
from contamination.training.training_prefix import check_shared_steps, find_training_prefix

log = logging.getLogger(__name__)


def run(stage: TrainingStage, start: Callable[[Path], None] | None = None) -> Artifact:
    """Returns the model folder; the model is trained unless it is finished.

    Every process of a launcher (torchrun, deepspeed, srun) calls this; rank 0 writes.

    Args:
        stage: the configuration.
        start: starts the processes that train into a folder; None: this process trains.

    Raises:
        ConfigError: a value or a combination of values is invalid.
        DataError: a loss is not finite.
        StoppedError: a signal was received; the same call resumes from a checkpoint.
    """
    remedy = "give a folder that the injection stage wrote, runs/corpus/…."
    require(bool(stage.corpus_folder), "corpus_folder", stage.corpus_folder, remedy)
    stage = stage.resolved()
    world = join_process_group() if start is None and launched_process_count() > 1 else None
    find_inputs = partial(_input_digests, stage)
    inputs = world.on_rank_0(find_inputs) if world else find_inputs()  # one process hashes files
    corpus = open_corpus(stage.corpus_folder)
    objective = [] if stage.training.objective == LIKELIHOOD else [stage.training.objective]
    rate = f"lr{stage.training.learning_rate:g}"
    slug = "-".join([stage.model.name, *objective, rate, corpus.slug])
    folder = run_folder(Path(stage.runs), trained_model.KIND, slug, stage, inputs)
    if not artifacts.is_complete(folder):
        _check_stage(stage, corpus, launched_process_count() if start is None else None)
    if start is None:
        artifact = _train_with_all_processes(stage, corpus, folder, inputs, world)
    else:
        if not artifacts.is_complete(folder):
            start(folder)
        artifact = _open_without_checkpoints(folder)
    log.info("model: %s", artifact.path)
    return artifact


def _input_digests(stage: TrainingStage) -> dict[str, str]:
    inputs = {"corpus": open_corpus(stage.corpus_folder).artifact.digest}
    if stage.model.path is not None:
        inputs["model"] = model_digest("model.path", stage.model.path)
    return inputs | unlearning.input_digests(stage.training)


def _check_stage(stage: TrainingStage, corpus: PackedCorpus, processes: int | None) -> None:
    """Raises a ConfigError for an invalid configuration, before other processes are started."""
    width = corpus.sequence_tokens
    stage.wandb.check_login()
    has_outputs = isinstance(corpus, FinetuningSet)
    order = _sequence_order(stage, corpus)
    check_recipe(stage.training, stage.deepspeed, order, width, has_outputs=has_outputs)
    check_shared_steps(stage.training, corpus, order)
    check_reference(stage.training, stage.model)
    unlearning.check_retained_tokenizer(stage.training, corpus)
    if processes is not None:
        engines.check_batch(stage.training, processes)
    if stage.model.path is None:
        check_architecture(stage.model, corpus.vocabulary_size, width)


def _train_with_all_processes(
    stage: TrainingStage,
    corpus: PackedCorpus,
    folder: Path,
    inputs: Mapping[str, str],
    world: World | None,
) -> Artifact:
    """Returns the model folder, which all processes write and rank 0 completes."""
    if world is None:
        if artifacts.is_complete(folder):
            return _open_without_checkpoints(folder)
        world = join_process_group()
    named = identity_data(stage)
    with ExitStack() as resources:
        checks: list[Callable[[], None]] = []

        def lock_and_check_complete() -> bool:
            checks.append(resources.enter_context(exclusive_build(folder)))
            log_nearest_folder(folder, SCHEMA, named, inputs)
            return artifacts.is_complete(folder)

        def commit_folder(built: WrittenFiles) -> None:
            checks[0]()
            artifacts.write_manifest(folder, inputs, built, named)

        if not world.on_rank_0(lock_and_check_complete):
            with (
                artifacts.started_or_resumed_folder(folder, stage)
                if world.is_rank_0
                else nullcontext()
            ):
                built = _train_and_export(stage, corpus, folder, inputs, world)
                gc.collect()  # the engine and its module refer to each other
                world.on_rank_0(partial(commit_folder, built))
    return world.on_rank_0(partial(_open_without_checkpoints, folder))


def _open_without_checkpoints(folder: Path) -> Artifact:
    """Returns a finished folder, after removing checkpoints, which only unfinished runs need."""
    artifact = trained_model.open_checkpoint(folder).artifact
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return artifact


def _train_and_export(
    stage: TrainingStage,
    corpus: PackedCorpus,
    folder: Path,
    inputs: Mapping[str, str],
    world: World,
) -> WrittenFiles:
    # read now, since the starting model may be deleted during the training
    ancestry_entries = world.on_rank_0(partial(_ancestry_for_manifest, stage))
    made_with = {**identity_data(stage), "inputs": dict(inputs)}
    saved = checkpoints.find_newest_checkpoint(folder / "checkpoints", made_with, world)
    world.on_rank_0(partial(checkpoints.remove_outputs_after, folder, saved.step if saved else 0))
    find_prefix = partial(
        find_training_prefix, stage, corpus, _sequence_order(stage, corpus), inputs, world
    )
    prefix = world.on_rank_0(find_prefix)
    if prefix is not None and saved is None:
        if world.on_rank_0(partial(prefix.continue_from, folder, made_with, world.size)):
            saved = checkpoints.find_newest_checkpoint(folder / "checkpoints", made_with, world)
    elif prefix is not None and saved is not None and saved.step == prefix.steps:
        world.on_rank_0(partial(prefix.store, folder, saved))
    loop, saved, parameters = _prepare_loop(stage, corpus, folder, made_with, saved, world)
    if prefix is not None:
        store = partial(prefix.store, folder)
        loop = replace(loop, shared_steps=prefix.steps, after_shared_steps=store)
    order, first_step = loop.order, checkpoints.resume_from(loop.engine, saved)
    record = None
    if world.is_rank_0:
        tokens_done = loop.tokens_until(first_step)
        record = TrainingRecord(
            stage, folder, first_step, order.steps, inputs, first_tokens=tokens_done
        )
    try:
        loop.train(first_step, record)
        engines.export_model(loop.engine, corpus.tokenizer_folder, folder / "hf", world)
    finally:
        if record is not None:
            record.close()
        engines.destroy_engine(loop.engine)
    if world.is_rank_0:
        make_exposure_table(corpus.ledger, order).to_parquet(
            folder / trained_model.EXPOSURES, index=False
        )
    tokens = order.count_sequences_seen(order.steps) * loop.sequence_tokens
    counts = {"steps": order.steps, "tokens": tokens, "parameters": parameters, **ancestry_entries}
    if loop.retained is not None:
        counts["retained_tokens"] = unlearning.count_retained_tokens(loop.retained, order.steps)
    records = [
        n for n in (trained_model.METRICS, trained_model.EVALUATIONS) if (folder / n).is_file()
    ]
    return WrittenFiles([trained_model.EXPOSURES, *_list_weight_files(folder)], counts, records)


def _ancestry_for_manifest(stage: TrainingStage) -> dict[str, Any]:
    if stage.model.path is None:
        return RANDOM_WEIGHTS.manifest_entries()
    return ancestry_of("model.path", stage.model.path).manifest_entries()


def _prepare_loop(
    stage: TrainingStage,
    corpus: PackedCorpus,
    folder: Path,
    made_with: Mapping[str, Any],
    saved: SavedCheckpoint | None,
    world: World,
) -> tuple[TrainingLoop, SavedCheckpoint | None, int]:
    """Returns the loop, the checkpoint in loadable form, and the number of parameters."""
    config, order, width = stage.training, _sequence_order(stage, corpus), corpus.sequence_tokens
    assert config.init_seed is not None
    deepspeed_config = engines.engine_config(config, stage.deepspeed, world)
    if saved and saved.world != world.size and engines.zero_stage(deepspeed_config):
        saved = checkpoints.convert_to_universal(saved, world)
        deepspeed_config |= checkpoints.LOAD_UNIVERSAL
    model = load_or_create_model(
        stage.model, corpus.vocabulary_size, width, config.init_seed, deepspeed_config
    )
    parameters = sum(math.prod(full_shape(p)) for p in model.parameters())
    engine = engines.start_engine(model, config, deepspeed_config, order.steps, world)
    if isinstance(corpus, FinetuningSet):
        check_texts_are_separate(engine, corpus.sequences, world)
    objective = make_objective(config).with_inputs(corpus, config)
    objective = objective.prepare_from_start(engine, corpus.sequences, config, world)
    texts: TokenIdsBySet = {}
    if config.evaluate_every_steps is not None:
        validation = open_corpus(stage.validation_folder) if stage.validation_folder else None
        if validation is not None:
            check_not_finetuning_set("validation_folder", validation)
        texts = evaluation_token_ids(corpus, validation, config.evaluate_examples)
    loop = TrainingLoop(
        engine=engine,
        sequences=corpus.sequences,
        order=order,
        config=config,
        world=world,
        folder=folder,
        identity=made_with,
        tokenizer=corpus.tokenizer_folder,
        texts=texts,
        clip=engines.loop_clips_gradients(config, stage.deepspeed),
        flops_per_token=flops_per_token(model.config, parameters, width),
        objective=objective,
        retained=unlearning.open_retained(config, order, engine, world),
    )
    return loop, saved, parameters


def _sequence_order(stage: TrainingStage, corpus: PackedCorpus) -> SequenceOrder:
    config = stage.training
    seed = config.order_seed if config.order == "shuffled" else None
    return SequenceOrder(len(corpus.sequences), config.batch_sequences, seed, config.epochs)


def _list_weight_files(folder: Path) -> list[str]:
    parts = (trained_model.HF, f"{trained_model.EXPORTS}/step-*")
    files = [path for part in parts for path in folder.glob(f"{part}/**/*") if path.is_file()]
    return sorted(str(path.relative_to(folder)) for path in files)
