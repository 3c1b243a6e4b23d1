"""Verbatim extraction of examples from the model (Carlini et al. 2023, definition 3.1).

An example is extracted with k tokens of context if greedy decoding after the k tokens before its
last 50 tokens returns exactly those 50. An answer is extracted if it is returned after its
question. The run folder contains `extraction.parquet`, with one row per example and number of
context tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from contamination.core.artifacts import Artifact, WrittenFiles, build_or_open, run_folder
from contamination.core.errors import DataError
from contamination.core.statistics.estimates import Estimate
from contamination.core.terminal import fit_columns
from contamination.data.examples import lines_digest
from contamination.data.texts import Text
from contamination.detection.examples import occurrences_by_id, open_examples
from contamination.detection.forward.reader import Tokens, count_leading_special, run_continuations
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.tasks.accuracy import corpus_questions, tokenize_questions
from contamination.detection.tasks.accuracy_summary import (
    AVERAGE,
    estimates_by_benchmark,
    format_estimate_and_size,
    format_p_value,
    p_values_by_benchmark,
)
from contamination.detection.tasks.config import ANSWER, ExtractionStage
from contamination.detection.tasks.questions import (
    LeftOut,
    QuestionSet,
    format_left_out,
    left_out_rows,
    questions_digest,
)

QUESTION = "question"


@dataclass(frozen=True)
class Target:
    """Tokens to extract, and the prompt before them.

    Attributes:
        text: the example.
        occurrences: how often the corpus includes it; None if that is unknown.
        prefix: the number of the text's tokens in the prompt, or QUESTION.
        prompt_ids: token ids, with the tokenizer's leading special tokens.
        target_ids: the token ids to extract.
    """

    text: Text
    occurrences: int | None
    prefix: str
    prompt_ids: list[int]
    target_ids: list[int]

    @property
    def tokens(self) -> Tokens:
        """The prompt as the input of a forward pass."""
        return Tokens(self.text, 0, self.prompt_ids, truncated=False)


@dataclass
class Targets:
    """The targets, and the number of examples without one by (benchmark, reason)."""

    targets: list[Target] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=Counter)


def targets_digest(texts: Sequence[Text], occurrences: Mapping[str, int]) -> str:
    """Returns a hash of the texts, their labels and occurrences, independent of their order."""
    rows = ((t.benchmark, t.example_id, t.sha256, t.label) for t in texts)
    return lines_digest(sorted(f"{row} {occurrences.get(row[1])}" for row in rows))


UNLABELLED = "no label, or never inserted"


def make_text_targets(
    loaded: LoadedModel,
    texts: Sequence[Text],
    occurrences: Mapping[str, int],
    target_length: int,
    prefix_lengths: Sequence[int],
) -> Targets:
    """Returns each labelled text's last `target_length` tokens, after each number of tokens.

    The tokens to extract are the same for every context, so that only the context differs.
    """
    result, context = Targets(), loaded.source.context
    special_ids = loaded.tokenizer("a")["input_ids"][: count_leading_special(loaded.tokenizer)]
    for text in texts:
        if text.label is None:
            result.left_out[text.benchmark, UNLABELLED] += 1
            continue
        ids = loaded.tokenizer(text.text, add_special_tokens=False, verbose=False)["input_ids"]
        for prefix_length in prefix_lengths:
            prompt = [*special_ids, *ids[-target_length - prefix_length : -target_length]]
            if len(ids) < target_length + prefix_length:
                reason = f"fewer than {prefix_length} + {target_length} tokens"
                result.left_out[text.benchmark, reason] += 1
            elif context is not None and len(prompt) + target_length > context:
                result.left_out[text.benchmark, "longer than the model's context"] += 1
            else:
                count = occurrences.get(text.example_id)
                target_ids = ids[-target_length:]
                result.targets.append(Target(text, count, str(prefix_length), prompt, target_ids))
    return result


def make_answer_targets(
    loaded: LoadedModel, texts: Sequence[Text], question_set: QuestionSet
) -> Targets:
    """Returns each question's answer, after the example's text before it."""
    questions, unscored = tokenize_questions(loaded, question_set)
    result = Targets(left_out=question_set.left_out + unscored)
    text_by_id = {text.example_id: text for text in texts}
    for tokenized in questions:
        question = tokenized.question
        text = text_by_id[question.example_id]
        if text.label is None:
            result.left_out[text.benchmark, UNLABELLED] += 1
            continue
        ids = tokenized.token_ids[question.answer]
        prompt, answer = ids[: tokenized.prompt_length], ids[tokenized.prompt_length :]
        result.targets.append(Target(text, question.occurrences, QUESTION, prompt, answer))
    return result


KIND = "extraction"
FILE = "extraction.parquet"


def run(stage: ExtractionStage) -> Artifact:
    """Lets `model` continue the prompts, unless the artefact exists; returns the artefact.

    Raises:
        ConfigError: the model does not exist.
        DataError: the examples have no targets.
        ArtifactError: the corpus or model folder is unfinished.
    """
    stage.detection.require_whole_texts("extraction.target determines the part to extract")
    model, texts = open_model("model", stage.model, stage.runs), open_examples(stage.examples)
    question_set = corpus_questions(stage) if stage.extraction.target == ANSWER else None
    inputs = {
        "model": model.digest,
        "tokenizer": model.tokenizer_digest,
        "examples": targets_digest(texts, occurrences_by_id(stage.examples.path)),
        **({"questions": questions_digest(question_set.questions)} if question_set else {}),
    }
    settings = {"extraction": stage.extraction, "detection": stage.detection.pass_settings}
    folder = run_folder(Path(stage.runs), KIND, model.slug, settings, inputs)
    make = partial(_continue_and_write, stage, model, texts, question_set)
    return build_or_open(folder, stage, inputs, make, named=settings)


def _continue_and_write(
    stage: ExtractionStage,
    model: ModelHandle,
    texts: Sequence[Text],
    question_set: QuestionSet | None,
    folder: Path,
) -> WrittenFiles:
    loaded, config = LoadedModel(model, stage.detection), stage.extraction
    if question_set:
        result = make_answer_targets(loaded, texts, question_set)
    else:
        occurrences = occurrences_by_id(stage.examples.path)
        result = make_text_targets(loaded, texts, occurrences, config.tokens, config.prefix_tokens)
    _check_any_target(stage, result)
    continuations = greedy_continuations(loaded, result.targets)
    table = pd.DataFrame(map(partial(_result_row, loaded), result.targets, continuations))
    table.astype({"occurrences": "Int64"}).to_parquet(folder / FILE, index=False)
    return WrittenFiles([FILE], {"rows": len(table), "left_out": left_out_rows(result.left_out)})


def greedy_continuations(loaded: LoadedModel, targets: Sequence[Target]) -> list[list[int]]:
    """Returns greedy continuations of the prompts, at most as long as the targets."""
    budget = loaded.settings.batch_tokens
    task = partial(run_continuations, n=1, temperature=0.0, batch_tokens=budget)
    lengths, seeds = [len(target.target_ids) for target in targets], [0] * len(targets)
    prompts = [target.tokens for target in targets]
    samples = loaded.run_in_processes(task, KIND, prompts, lengths, seeds)
    return [ids for (ids,) in samples]


def _result_row(loaded: LoadedModel, target: Target, written_ids: Sequence[int]) -> dict[str, Any]:
    pairs = zip(written_ids, target.target_ids, strict=False)
    matched = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return {
        "example_id": target.text.example_id,
        "benchmark": target.text.benchmark,
        "member": target.text.label,
        "occurrences": target.occurrences,
        "prefix": target.prefix,
        "tokens": len(target.target_ids),
        "matched": matched,
        "extracted": matched == len(target.target_ids),
        "written": loaded.tokenizer.decode(written_ids),
    }


def _check_any_target(stage: ExtractionStage, result: Targets) -> None:
    if not result.targets:
        raise DataError(
            f"examples.path is {stage.examples.path!r}: there is nothing to extract "
            f"({format_left_out(result.left_out)}). "
            "Give longer texts with labels, fewer extraction.tokens or extraction.prefix_tokens, "
            "or extraction.target=answer for a corpus of questions."
        )


NONMEMBERS, MEMBERS = "non-members", "members"


def format_summary(
    tables: Mapping[str, pd.DataFrame], left_out: Sequence[Mapping[str, object]]
) -> str:
    """Returns one table per context, with one row per benchmark and number of occurrences.

    Args:
        tables: the artefacts' rows by the model's name; the p-values are of the first.
        left_out: the counts of examples without targets.
    """
    first_table = next(iter(tables.values()))
    sections = [
        "\n".join(_format_section(prefix, {n: t[t["prefix"] == prefix] for n, t in tables.items()}))
        for prefix in first_table["prefix"].unique()
    ]
    notes = [f"left out: {o['benchmark']}: {o['examples']}: {o['reason']}" for o in left_out]
    return "\n\n".join([*sections, *(["\n".join(notes)] if notes else [])])


def _format_section(prefix: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    first_table, *_ = tables.values()
    target, context = "answers", "their questions"
    if prefix != QUESTION:
        target = f"last {first_table['tokens'].iloc[0]} tokens"
        context = f"the {prefix} tokens before them"
    yield (
        f"share of the examples whose {target} are returned word for word after {context} "
        "(Wilson's 95% intervals; number of examples)"
    )
    p_by_benchmark = p_values_by_benchmark(_with_value_column(first_table))
    shares_by_model = {
        model: _shares_by_group(_with_value_column(table)) for model, table in tables.items()
    }
    benchmarks = sorted(first_table["benchmark"].unique())
    rows = []
    for benchmark in [*benchmarks, *([AVERAGE] if len(benchmarks) > 1 else [])]:
        for group in next(iter(shares_by_model.values())):
            shares = [by_group[group].get(benchmark) for by_group in shares_by_model.values()]
            is_tested = group == MEMBERS and benchmark in p_by_benchmark
            p_values = p_by_benchmark[benchmark] if is_tested else (None, None)
            cells = [*map(format_estimate_and_size, shares), *map(format_p_value, p_values)]
            rows.append([benchmark, group, *cells])
    yield from fit_columns(["benchmark", "occurrences", *tables, "p", "p Holm"], rows).lines(
        n_left_aligned=2
    )


def _with_value_column(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the table with value 1 if extracted; unknown occurrences count as inserted."""
    value, counts = table["extracted"].astype(float), table["occurrences"].fillna(1).astype(int)
    return table.assign(value=value, recorded=table["occurrences"], occurrences=counts)


def _shares_by_group(table: pd.DataFrame) -> dict[str, dict[str, Estimate]]:
    """Returns the share of each group by benchmark.

    The groups are the non-members, the members of each recorded number of occurrences, and all
    members.
    """
    member = table["member"].astype(bool)
    groups = {NONMEMBERS: table[~member]}
    for count in sorted(set(table.loc[member, "recorded"].dropna()) - {0}):
        groups[str(count)] = table[member & (table["recorded"] == count).fillna(False)]
    groups[MEMBERS] = table[member]
    shares: dict[str, dict[str, Estimate]] = {}
    for group, rows in groups.items():
        estimates = estimates_by_benchmark(rows, wilson=True)
        shares[group] = {
            name: estimate for name, by_head in estimates.items() for estimate in by_head.values()
        }
    return shares
