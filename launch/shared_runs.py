"""Which runs of a sweep's cells make the same artefact, known before any of them is made.

A run has a key: the fields that name its artefact's folder, and the keys of its inputs. Cells whose
runs have the same key share the artefact, so only the first of them makes it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from contamination.core.config import identity_data
from contamination.launch.pipeline import injection_stage_with_tokenizer
from contamination.launch.plan import CellPlan
from contamination.launch.shared_artifacts import (
    base_corpus_stage,
    clean_corpus_stage,
    make_base_training_stage,
    validation_corpus_stage,
)
from contamination.launch.stage_runner import Stages

Key = str


def key_by_run(plan: CellPlan, stages: Stages) -> dict[str, Key]:
    """Returns the key of each of the cell's runs, by its title, such as "train base"."""
    keys: dict[str, Key] = {}
    if pretraining := plan.pretraining:
        stage = base_corpus_stage(plan.injection, plan.base_corpus, pretraining)
        processes = stages.processes("train").count
        base = make_base_training_stage(plan.training, pretraining, processes).resolved()
        keys["inject base"] = _key(stage.resolved())
        keys["train base"] = _key(keys["inject base"], base)
        keys["train reference"] = _key(keys["train base"], "reference")
        keys["train masked_lm"] = _key(keys["inject base"], "masked_lm")
    start = keys.get("train base", str(plan.training.model.path))
    study = injection_stage_with_tokenizer(plan, None).resolved()
    tokenizer = trained_tokenizer_key(plan) or str(study.tokenizer.path)
    keys["inject study"] = _key(study.named(), tokenizer)
    keys["inject clean"] = _key(clean_corpus_stage(study), tokenizer)
    evaluated = plan.training.training.evaluate_tokens
    keys["inject validation"] = _key(validation_corpus_stage(study, evaluated), tokenizer)
    keys["inject finetuning"] = _key(keys["inject study"], plan.second)
    corpus = keys["inject clean" if plan.second.members_in == "finetuning" else "inject study"]
    keys["train study"] = _key(plan.training.resolved(), start, corpus)
    keys["train finetuning"] = _key(keys["train study"], keys["inject finetuning"])
    last = keys["train finetuning" if plan.has_second_stage else "train study"]
    scored = plan.detection, keys["inject study"]
    keys["detect clean"] = _key(*scored, start)
    for run in ("contaminated", *(f"step-{step:08d}" for step in plan.last_training.export_steps)):
        keys[f"detect {run}"] = _key(*scored, last, run)
    return keys


def trained_tokenizer_key(plan: CellPlan) -> Key | None:
    """Returns the key of the tokenizer that the base model will have; None: a model is given."""
    if plan.pretraining is None:
        return None
    stage = base_corpus_stage(plan.injection, plan.base_corpus, plan.pretraining)
    config = stage.injection
    return _key(stage.corpus, stage.tokenizer, config.base_fraction, config.validation_fraction)


def _key(*parts: Any) -> Key:
    data = json.dumps([identity_data(part) for part in parts], sort_keys=True)
    return hashlib.sha256(data.encode()).hexdigest()
