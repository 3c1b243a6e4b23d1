"""`python -m training which-step`: which training step saw a text.

The answer comes from the record of a training run, or from a given order and batch size. It has one
row per position of a copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.core.errors import DataError, describe_error, require
from contamination.core.integrity import errors_naming_folders
from contamination.core.terminal import fit_columns
from contamination.injection.corpus import ContaminatedFolder, open_corpus
from contamination.injection.export.run import is_export, open_export
from contamination.training.config import WhichStepStage
from contamination.training.data import PADDING
from contamination.training.trained_model import EXPORTS, HF, Checkpoint, open_trained

if TYPE_CHECKING:
    import pandas as pd

POSITION_COLUMNS = [
    "example_id",
    "copy",
    "sequence",
    "token_start",
    "token_end",
    "step",
    "tokens_seen",
]
MODEL_COLUMNS = ["model_before", "model_after"]
PARTIAL_BATCH_NOTE = (
    "its batch is not full. Megatron's sampler and DataLoader(drop_last=True) leave such a batch "
    "out: there it saw nothing."
)


def format_step_table(stage: WhichStepStage) -> str:
    """Returns a table of the examples' copies: position, step, and tokens seen by then.

    Raises:
        ArtifactError: a folder is missing, unfinished or damaged.
        ConfigError: the order does not fit the corpus.
        DataError: there is no such example.
    """
    with errors_naming_folders(*filter(None, (stage.model_folder, stage.corpus_folder))):
        rows, example_ids, partial_step = _rows_of_examples(stage)
    table = fit_columns([*rows.columns], rows.astype(str).to_numpy().tolist())
    unseen = sorted(example_ids - {*rows["example_id"]})
    notes = [f"{name}: no step saw a copy" for name in unseen]
    if partial_step in {*rows["step"]}:
        notes.append(f"step {partial_step}: {PARTIAL_BATCH_NOTE}")
    return "\n".join([*table.lines(n_left_aligned=1), *notes])


def _rows_of_examples(stage: WhichStepStage) -> tuple[pd.DataFrame, set[str], int]:
    """Returns the examples' rows, their names, and the step whose batch is not full, or 0."""
    folder = stage.corpus_folder
    if stage.model_folder is not None:
        model = open_trained("model_folder", stage.model_folder)
        seen, folder, partial_step = (
            _recorded_steps(model),
            folder or model.config["corpus_folder"],
            0,
        )
    else:
        seen, partial_step = _steps_by_given_order(_open_corpus_or_export(str(folder)), stage)
    example_ids = {stage.example_id} & {*seen["example_id"]} or _requested_example_ids(
        stage, _open_corpus_or_export(str(folder))
    )
    rows = seen[seen["example_id"].isin(example_ids)].sort_values(["step", "example_id", "copy"])
    return rows, set(map(str, example_ids)), partial_step


def _recorded_steps(model: Checkpoint) -> pd.DataFrame:
    """Returns the training's record, with the stored models before and after each step."""
    exposures, steps = model.exposures, [*model.exports, model.artifact.counts["steps"]]
    tokens = model.metrics.set_index("step")["tokens"]
    names = ["(start)", *(f"{EXPORTS}/{path.name}" for path in model.exports.values()), HF]
    after = np.searchsorted(steps, exposures["step"])  # an export has seen its step's texts
    exposures = exposures.assign(tokens_seen=exposures["step"].map(tokens))
    models = dict(
        zip(MODEL_COLUMNS, (np.take(names, after), np.take(names, after + 1)), strict=True)
    )
    return exposures[POSITION_COLUMNS].assign(**models)


def _steps_by_given_order(
    corpus: ContaminatedFolder, stage: WhichStepStage
) -> tuple[pd.DataFrame, int]:
    """Returns a row per step that sees a copy, and the step whose batch is not full, or 0."""
    import pandas as pd

    counts = corpus.artifact.counts
    remedy = "it has no sequences: give an export of tokens."
    require("sequences" in counts, "corpus_folder", stage.corpus_folder, remedy)
    order, batch = _read_order(stage.order, counts["sequences"]), int(stage.batch or 0)
    steps = pd.DataFrame({"sequence": order, "step": np.arange(len(order)) // batch + 1})
    tokens_seen = np.cumsum(order != PADDING) * (counts["tokens"] // counts["sequences"])
    steps["tokens_seen"] = tokens_seen[np.minimum(steps["step"] * batch, len(order)) - 1]
    partial_step = len(order) // batch + 1 if len(order) % batch else 0
    return corpus.ledger.merge(steps, on="sequence")[POSITION_COLUMNS], partial_step


def _read_order(order_option: str, sequences: int) -> Any:
    """Returns the numbers of the sequences in training order; PADDING for none."""
    if order_option == "corpus":
        return np.arange(sequences)
    try:
        if Path(order_option).suffix == ".npy":
            numbers: Any = np.lib.format.open_memmap(order_option, mode="r")
        else:
            numbers = np.array(Path(order_option).read_text().split(), dtype=np.int64)
    except (OSError, ValueError, OverflowError, EOFError) as error:
        raise DataError(
            f"order is {order_option!r}: {describe_error(error)}. Give corpus, or a file."
        ) from error
    fits = numbers.ndim == 1 and numbers.dtype.kind in "iu" and len(numbers) > 0
    remedy = (
        f"its numbers must be of the {sequences:,} sequences, from 0; {PADDING} stands for none."
    )
    fits = fits and numbers.min() >= PADDING and numbers.max() < sequences
    require(fits, "order", order_option, remedy)
    return numbers.astype(np.int64)


def _open_corpus_or_export(folder: str) -> ContaminatedFolder:
    return open_export(folder) if is_export(folder) else open_corpus(folder)


def _requested_example_ids(stage: WhichStepStage, corpus: ContaminatedFolder) -> set[str]:
    if stage.text is None:
        return {corpus.example_row(str(stage.example_id))["example_id"]}
    examples = corpus.examples[corpus.examples["text"].str.contains(stage.text, regex=False)]
    if examples.empty:
        folder = corpus.artifact.path
        raise DataError(f"text is {stage.text!r}: no example of {folder} contains it.")
    return {*examples["example_id"]}
