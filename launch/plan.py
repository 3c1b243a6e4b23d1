"""The plan of a cell: the configurations of its stages, checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from contamination.core.config import convert_config, instantiate_node
from contamination.core.errors import ConfigError, require
from contamination.core.models import resolve_model_path
from contamination.detection.config import DetectionStage, NeighborModelConfig, PrefixConfig
from contamination.detection.methods.registry import build_methods
from contamination.detection.requirements import all_needs, choose_methods
from contamination.detection.view_resources import open_prefix
from contamination.injection.config import InjectionConfig, InjectionStage
from contamination.launch.config import LaunchSettings, PipelineNodes, SecondStage
from contamination.launch.second_stage import check_second_stage
from contamination.training.config import PretrainingConfig, TrainingConfig, TrainingStage
from contamination.training.data import SequenceOrder
from contamination.training.deepspeed_engine import check_dtype
from contamination.training.loop import check_recipe
from contamination.training.models import check_architecture, hf_folder, model_digest
from contamination.training.schedules import check_schedule

BASE = "base"
"""The value of `reference.path` that means the model before the training."""


@dataclass(frozen=True)
class CellPlan:
    """A cell's stages, checked. Paths of artefacts that the cell makes are filled in as it runs."""

    injection: InjectionStage
    training: TrainingStage
    detection: DetectionStage
    second: SecondStage
    base_corpus: dict[str, Any]  # the node of what a base model made from nothing is pretrained on
    benchmarks: Mapping[str, str] = field(default_factory=dict)  # the digests of the rows, if read

    @property
    def makes_base_model(self) -> bool:
        """Whether the base model is trained from random weights."""
        return self.training.model.path is None

    @property
    def pretraining(self) -> PretrainingConfig | None:
        """How the base model is trained from random weights; None if a model is given."""
        return self.training.model.pretraining if self.makes_base_model else None

    @property
    def makes_reference(self) -> bool:
        """Whether a reference model is trained: a method needs one, and the user names none."""
        is_needed = "reference" in all_needs(build_methods(self.detection.method))
        return self.makes_base_model and is_needed and self.detection.reference.given is None

    @property
    def makes_masked_lm(self) -> bool:
        """Whether a masked language model is trained: a method needs one, and none is named."""
        is_needed = "masked_lm" in all_needs(build_methods(self.detection.method))
        return self.pretraining is not None and is_needed and self.detection.masked_lm.path is None

    @property
    def last_training(self) -> TrainingConfig:
        """The recipe of the last training, whose exports are scored."""
        return self.second.training if self.has_second_stage else self.training.training

    @property
    def has_second_stage(self) -> bool:
        """Whether the trained model is fine-tuned, too."""
        return self.second.members_in is not None

    @property
    def sequence_order(self) -> SequenceOrder:
        """The batches and epochs of the contaminated training, without the seed of its order."""
        config, sequences = self.training.training, self.injection.injection.n_sequences
        return SequenceOrder(sequences, config.batch_sequences, None, config.epochs)


def plan(
    config: DictConfig, *, read_benchmarks: bool = True, check_base_model: bool = True
) -> CellPlan:
    """Returns the stages that the pipeline's configuration describes, after checking them.

    Args:
        config: a cell's configuration, as `conf/pipeline.yaml` composes it.
        read_benchmarks: whether to read and check the benchmarks' rows as well.
        check_base_model: whether to check a base model's architecture with transformers, which
            takes seconds to import; not needed where such a model has been trained already.

    Raises:
        UserError: a value, or a combination of values, that some stage would refuse later.
    """
    import contamination.injection.run

    # not `model`, which is the trained model here, and the scored one there
    nodes = ["name", "seed", "runs", "method", "detection", "reference", "masked_lm", "prefix"]
    all_but_cluster = [str(name) for name in config if name != "cluster"]
    injection = convert_config(OmegaConf.masked_copy(config, all_but_cluster), InjectionStage)
    cluster = convert_config(config, LaunchSettings).cluster
    stages = CellPlan(
        replace(injection, cluster=cluster.tasks),
        convert_config(config, TrainingStage),
        convert_config(OmegaConf.masked_copy(config, nodes), DetectionStage),
        convert_config(config, PipelineNodes).second_stage,
        convert_config(config, PipelineNodes).base_corpus,
    )
    # a second stage's set of texts, whose members are scored, holds none out
    has_held_out = stages.injection.injection.held_out and not stages.has_second_stage
    held_out = "the corpus's own" if has_held_out else None
    prefix = PrefixConfig(path=stages.detection.prefix.path or held_out)
    check_methods(stages, replace(stages.detection, prefix=prefix))
    _check_order_for_window(stages.injection.injection, stages.training.training)
    if stages.training.model.path is not None:
        hf_folder("model.path", stages.training.model.path)
    else:
        _check_base_model(stages, with_transformers=check_base_model)
    for role, path in _named_model_paths(stages.detection).items():
        resolve_model_path(f"{role}.path", path)
    if stages.detection.prefix.path is not None:
        open_prefix(stages.detection.prefix.path)
    training, width = stages.training, stages.injection.injection.sequence_tokens
    check_recipe(training.training, training.deepspeed, stages.sequence_order, width)
    if stages.has_second_stage:
        check_second_stage(
            stages.second, training.deepspeed, stages.injection, read=read_benchmarks
        )
    training.wandb.check_login()
    if not read_benchmarks:
        contamination.injection.run.check_config_nodes(stages.injection)
        return stages
    if stages.pretraining:
        budget = stages.pretraining.budget_tokens
        source = instantiate_node("base_corpus", stages.base_corpus)
        contamination.injection.run.check_budget("model.pretraining.budget_tokens", budget, source)
    candidates = contamination.injection.run.check_and_read_candidates(stages.injection)
    return replace(stages, benchmarks={f"benchmark.{c.name}": c.digest for c in candidates})


def input_digests(plan: CellPlan) -> dict[str, str]:
    """Returns the digests of all inputs that the configuration names, since files may change.

    Raises:
        UserError: an input does not exist.
    """
    import contamination.injection.run

    injection, detection = plan.injection, plan.detection
    corpus = instantiate_node("corpus", injection.corpus)
    inputs = contamination.injection.run.input_digests(injection, corpus, ())
    digests: dict[str, str] = {**inputs, **plan.benchmarks}
    if plan.pretraining:
        digests["base_corpus"] = instantiate_node("base_corpus", plan.base_corpus).fingerprint()
    roles = all_needs(build_methods(detection.method))
    models = {role: path for role, path in _named_model_paths(detection).items() if role in roles}
    if plan.training.model.path is not None:
        models["model"] = plan.training.model.path
    digests |= {role: model_digest(f"{role}.path", path) for role, path in models.items()}
    if "prefix" in roles and detection.prefix.path:
        digests["prefix"] = open_prefix(detection.prefix.path).digest
    return digests


def _named_model_paths(stage: DetectionStage) -> dict[str, str]:
    """Returns the paths of the reference and the masked LM that the user names, by role."""
    paths = {"reference": stage.reference.path, "masked_lm": stage.masked_lm.path}
    return {role: path for role, path in paths.items() if path is not None and path != BASE}


def _check_order_for_window(injection: InjectionConfig, training: TrainingConfig) -> None:
    """Requires training in the corpus's order if copies are inserted in only a part of it."""
    has_window = injection.last_tokens is not None or injection.token_window is not None
    is_whole = not has_window and injection.window == [0, 1]
    remedy = (
        "give training.order=corpus with injection.window, injection.token_window or "
        "injection.last_tokens: a shuffled order spreads the copies over the whole training."
    )
    require(
        is_whole or training.order == "corpus",
        "training.order",
        training.order,
        remedy,
    )


def _check_base_model(plan: CellPlan, *, with_transformers: bool) -> None:
    """Raises a ConfigError if the base model can't be pretrained, or trained further, as asked."""
    pretraining, width = plan.pretraining, plan.injection.injection.sequence_tokens
    if pretraining is None:
        raise ConfigError(
            "model.pretraining is None: say how the base model is pretrained, or give model.path."
        )
    longer = (
        f"the base model is pretrained on sequences of {pretraining.sequence_tokens}, its context. "
        "Lower it, or raise model.pretraining.sequence_tokens."
    )
    require(width <= pretraining.sequence_tokens, "injection.sequence_tokens", width, longer)
    tokenizer = plan.injection.tokenizer.path
    remedy = "a base model that is made here has its own tokenizer: leave it out."
    require(tokenizer is None, "tokenizer.path", tokenizer, remedy)
    if with_transformers:
        model = plan.training.model
        check_architecture(model, pretraining.vocab_size, pretraining.sequence_tokens)
    order = SequenceOrder(pretraining.n_sequences, pretraining.batch_sequences, None)
    check_schedule(pretraining, order.steps)
    check_dtype(pretraining, pretraining.deepspeed)


def run_names_by_stage(plan: CellPlan) -> dict[str, list[str]]:
    """Returns the names of the runs of each stage that can run as separate processes."""
    steps = plan.last_training.export_steps
    return {
        "train": [
            *["base"] * plan.makes_base_model,
            "study",
            *["finetuning"] * plan.has_second_stage,
            *["reference"] * plan.makes_reference,
        ],
        "detect": ["clean", "contaminated", *(f"step-{step:08d}" for step in steps)],
    }


def check_methods(plan: CellPlan, stage: DetectionStage) -> None:
    """Raises a ConfigError if a method chosen by name will lack a model or another input."""
    trained_here = "its own" if plan.makes_base_model else None
    choose_methods(stage_with_models(stage, stage.reference.given or trained_here, trained_here))


def stage_with_models(
    stage: DetectionStage, reference: str | None, masked_lm: str | None
) -> DetectionStage:
    """Returns the stage with these models for methods; a masked LM of the user has priority.

    If the base model is the reference, its own scores by reference methods are all 0, which serves
    as a check.
    """
    return replace(
        stage,
        reference=replace(stage.reference, path=reference),
        masked_lm=NeighborModelConfig(path=stage.masked_lm.path or masked_lm),
    )
