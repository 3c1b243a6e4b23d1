"""Task accuracy of members and non-members: does the model answer seen questions better?

Each example is answered by likelihood over its options (Shi et al. 2024, table 8): every option is
put into the example's own template, and the option with the likeliest tokens is chosen. An
option's tokens are those after the prompt's; if its first letters merge with the prompt's last
ones into one token, that token belongs to the option. `detection.tasks.questions` defines several
criteria of choice, which all use the same forward pass. If a benchmark has accepted answers in
place of options, the model writes an answer by greedy decoding, which is compared with them
(`detection.tasks.exact_match`). The run folder contains `accuracy.parquet`, with one row per
example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.errors import DataError
from contamination.core.integrity import errors_naming_folders
from contamination.data.examples import examples_digest, make_text
from contamination.detection.config import DetectionConfig
from contamination.detection.examples import open_examples
from contamination.detection.forward.reader import Tokens, run_continuations
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.tasks.config import AccuracyStage
from contamination.detection.tasks.questions import (
    LeftOut,
    Question,
    QuestionSet,
    common_prefix_length,
    format_left_out,
    left_out_rows,
    make_answer_table,
    make_questions,
    questions_digest,
)
from contamination.detection.workers import run_slices, uses_several_processes
from contamination.injection.corpus import open_corpus

KIND = "accuracy"
FILE = "accuracy.parquet"
LENGTH_STEP = 8
"""A free answer may have 8 to 15 tokens more than the right one; its length is a multiple of 8."""
WRITTEN_EXTRA = 2 * LENGTH_STEP - 1


@dataclass(frozen=True)
class TokenizedQuestion:
    """A question as token ids.

    Attributes:
        question: the question.
        token_ids: the tokens of each option's text, then of each letter's text.
        prompt_length: the number of leading tokens that are not part of the answer.
    """

    question: Question
    token_ids: list[list[int]]
    prompt_length: int


def run(stage: AccuracyStage) -> Artifact:
    """Answers the examples with `model`, unless the artefact exists; returns the artefact.

    Raises:
        ConfigError: the model does not exist, or answer_field is no field of the examples.
        DataError: there is no corpus, or none of its examples can be asked.
        ArtifactError: the corpus or model folder is unfinished.
    """
    stage.detection.require_whole_texts("each option is read after its question")
    handle = open_model("model", stage.model, stage.runs)
    question_set = corpus_questions(stage)
    inputs = {
        "model": handle.digest,
        "tokenizer": handle.tokenizer_digest,
        "examples": examples_digest(open_examples(stage.examples)),
        "questions": questions_digest(question_set.questions),
    }
    settings = {"detection": stage.detection.pass_settings}
    folder = run_folder(Path(stage.runs), KIND, handle.slug, settings, inputs)
    make = partial(_answer_and_write, stage, handle, question_set)
    return build_or_open(folder, stage, inputs, make, named=settings)


def corpus_questions(stage: AccuracyStage) -> QuestionSet:
    """Returns the examples' questions.

    Raises:
        DataError: `examples.path` is no corpus folder, or none of its examples can be asked.
    """
    path = Path(stage.examples.path).expanduser()
    if not path.is_dir():
        raise DataError(
            f"examples.path is {stage.examples.path!r}: accuracy needs the questions and answers "
            "that a corpus keeps with its examples. Give a folder of runs/corpus/."
        )
    with errors_naming_folders(path):
        question_set = make_questions(open_corpus(path), stage.benchmark)
    if not question_set.questions:
        reasons = format_left_out(question_set.left_out)
        raise DataError(
            f"examples.path is {stage.examples.path!r}: none of its examples can be asked "
            f"({reasons or 'it has none'}). Name answer_field and options in the benchmark's YAML."
        )
    return question_set


def tokenize_questions(
    loaded: LoadedModel, question_set: QuestionSet
) -> tuple[list[TokenizedQuestion], LeftOut]:
    """Returns the tokenized questions, and the numbers left out by (benchmark, reason)."""
    tokenized: list[TokenizedQuestion] = []
    left_out: LeftOut = Counter()
    context = loaded.source.context
    for question in question_set.questions:
        room = None if context is None else context - WRITTEN_EXTRA * question.is_free
        texts = [question.prompt.rstrip(), *question.texts, *question.letter_texts]
        prompt_ids, *ids = loaded.tokenizer(texts, verbose=False)["input_ids"]
        prompt_length = shared_prompt_length(prompt_ids, ids)
        if prompt_length == 0:
            left_out[question.benchmark, "no token is before the options"] += 1
        elif room is not None and max(map(len, ids)) > room:
            left_out[question.benchmark, "an option's text is longer than the model's context"] += 1
        else:
            tokenized.append(TokenizedQuestion(question, ids, prompt_length))
    return tokenized, left_out


def shared_prompt_length(prompt_ids: Sequence[int], text_ids: Sequence[Sequence[int]]) -> int:
    """Returns how many tokens the prompt and all rows share at the start; each row keeps one."""
    return min(common_prefix_length(prompt_ids, *text_ids), *(len(ids) - 1 for ids in text_ids))


def answer_logprobs(
    handle: ModelHandle, settings: DetectionConfig, questions: Sequence[TokenizedQuestion]
) -> list[list[np.ndarray[Any, Any]]]:
    """Returns the log-probabilities (float64) of the answer's tokens, per question and row."""
    from contamination.detection.forward.batches import run_sequences  # imports torch

    ids = [row for question in questions for row in question.token_ids]
    names = [
        f"{tokenized.question.example_id}, option {n}"
        for tokenized in questions
        for n in range(len(tokenized.token_ids))
    ]
    task, title = partial(run_sequences, batch_tokens=settings.batch_tokens), handle.bar_title(KIND)
    if uses_several_processes(settings):
        stats = run_slices(task, handle, settings, ids, names, title=title)
    else:
        stats = task(handle.load(settings), ids, names, progress=title)
    rows = iter(stats)  # entry i of a row is about token i + 1
    return [
        [next(rows).logprob[q.prompt_length - 1 :].astype(np.float64) for _ in q.token_ids]
        for q in questions
    ]


def write_answers(loaded: LoadedModel, questions: Sequence[TokenizedQuestion]) -> dict[str, str]:
    """Returns what the model writes after each question with a free answer, by greedy decoding.

    Args:
        loaded: the model.
        questions: the questions; those with options are left out.
    """
    free = [tokenized for tokenized in questions if tokenized.question.is_free]
    prompts, lengths = [], []
    for tokenized in free:
        ids, start = tokenized.token_ids[0], tokenized.prompt_length
        text = make_text(tokenized.question.example_id, tokenized.question.prompt, None, "")
        prompts.append(Tokens(text, 0, ids[:start], truncated=False))
        # few different lengths, since prompts of one length are continued together
        lengths.append(-(-(len(ids) - start) // LENGTH_STEP) * LENGTH_STEP + LENGTH_STEP)
    task = partial(
        run_continuations, n=1, temperature=0.0, batch_tokens=loaded.settings.batch_tokens
    )
    samples = loaded.run_in_processes(task, KIND, prompts, lengths, [0] * len(prompts))
    return {
        tokenized.question.example_id: loaded.tokenizer.decode(ids, skip_special_tokens=True)
        for tokenized, (ids,) in zip(free, samples, strict=True)
    }


def _answer_and_write(
    stage: AccuracyStage, handle: ModelHandle, question_set: QuestionSet, folder: Path
) -> WrittenFiles:
    loaded = LoadedModel(handle, stage.detection)
    questions, unscored = tokenize_questions(loaded, question_set)
    left_out = question_set.left_out + unscored
    if not questions:
        raise DataError(
            f"examples.path is {stage.examples.path!r}: the model can read none of its "
            f"{len(question_set.questions)} questions ({'; '.join(r for _, r in left_out)}). "
            "Give a model of a longer context, or shorter examples."
        )
    logprobs = answer_logprobs(handle, stage.detection, questions)
    written = write_answers(loaded, questions)
    table = make_answer_table([tokenized.question for tokenized in questions], logprobs, written)
    table.to_parquet(folder / FILE, index=False)
    return WrittenFiles([FILE], {"examples": len(table), "left_out": left_out_rows(left_out)})
