"""Which examples the model gives back word for word (Carlini et al. 2023, definition 3.1).

An example is extracted with k tokens of context where greedy decoding behind the k tokens before
them returns its last 50 tokens, each one. An answer is extracted where it is returned behind its
question.

::

    runs/extraction/<model>-<hash>/
    ├── config.yaml
    ├── extraction.parquet  one row an example and number of tokens before
    └── manifest.json
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

from contamination.core.artifacts import Artifact, Built, build, locate
from contamination.core.config import Range, Ranged, at_least, limited, one_of
from contamination.core.errors import DataError
from contamination.core.statistics.estimates import Estimate
from contamination.core.terminal import fit
from contamination.data.examples import lines_digest
from contamination.data.texts import Text
from contamination.detection.examples import occurrences_of, open_examples
from contamination.detection.forward.reader import Tokens, leading_special, run_written
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models import open_model
from contamination.detection.models.base import ModelHandle
from contamination.detection.tasks.accuracy import AccuracyStage, ask_corpus, tokenize
from contamination.detection.tasks.accuracy_summary import AVERAGE, cell, lines, p_values, p_words
from contamination.detection.tasks.questions import Asked, questions_digest

QUESTION = "question"


@dataclass(frozen=True)
class Target:
    """Tokens to be given back, and the prompt, with the tokenizer's leading special tokens.

    `prefix` is the number of a text's tokens in the prompt, or QUESTION; `occurrences` is None
    where they are not known.
    """

    text: Text
    occurrences: int | None
    prefix: str
    prompt: list[int]
    ids: list[int]

    @property
    def tokens(self) -> Tokens:
        """The prompt as a reader takes it."""
        return Tokens(self.text, 0, self.prompt, truncated=False)


@dataclass
class Targets:
    """The targets, and what there is none of: (benchmark, reason) → number of examples."""

    found: list[Target] = field(default_factory=list)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)


def targets_digest(texts: Sequence[Text], occurrences: Mapping[str, int]) -> str:
    """A hash of all that is asked for and of membership, in any order."""
    each = ((t.benchmark, t.example_id, t.sha256, t.label) for t in texts)
    return lines_digest(sorted(f"{row} {occurrences.get(row[1])}" for row in each))


def text_targets(
    loaded: LoadedModel,
    texts: Sequence[Text],
    occurrences: Mapping[str, int],
    tokens: int,
    prefixes: Sequence[int],
) -> Targets:
    """The last `tokens` tokens of each labelled text, behind each number of those before them.

    The same tokens are asked for at every number, so that only what stands before them differs.
    """
    found, context = Targets(), loaded.source.context
    lead = loaded.tokenizer("a")["input_ids"][: leading_special(loaded.tokenizer)]
    for text in texts:
        if text.label is None:
            found.left_out[text.benchmark, "no label, or inserted no time"] += 1
            continue
        ids = loaded.tokenizer(text.text, add_special_tokens=False, verbose=False)["input_ids"]
        for prefix in prefixes:
            prompt = [*lead, *ids[-tokens - prefix : -tokens]]
            if len(ids) < tokens + prefix:
                found.left_out[text.benchmark, f"fewer than {prefix} + {tokens} tokens"] += 1
            elif context is not None and len(prompt) + tokens > context:
                found.left_out[text.benchmark, "longer than the model's context"] += 1
            else:
                known = occurrences.get(text.example_id)
                one = Target(text, known, str(prefix), prompt, ids[-tokens:])
                found.found.append(one)
    return found


def answer_targets(loaded: LoadedModel, texts: Sequence[Text], asked: Asked) -> Targets:
    """Each question's answer, behind the example's text before it; see `accuracy.tokenize`."""
    rows, unread = tokenize(loaded, asked)
    found = Targets(left_out=asked.left_out + unread)
    by_id = {text.example_id: text for text in texts}
    for row in rows:
        question, ids = row.question, row.ids[row.question.answer]
        text = by_id[question.example_id]
        if text.label is None:
            found.left_out[text.benchmark, "no label, or inserted no time"] += 1
            continue
        prompt, answer = ids[: row.prompt], ids[row.prompt :]
        found.found.append(Target(text, question.occurrences, QUESTION, prompt, answer))
    return found


KIND = "extraction"
FILE = "extraction.parquet"
TEXT, ANSWER = "text", "answer"
PREFIXES = Range(lambda some: bool(some) and min(some) > 0, "give numbers of 1 or more.")


@dataclass(frozen=True)
class ExtractionConfig(Ranged, node="extraction"):
    """What the model should give back (node `extraction`)."""

    target: str = limited(TEXT, one_of((TEXT, ANSWER)))
    """`text`: the last tokens of each text; `answer`: a corpus's answers, behind the questions."""

    tokens: int = limited(50, at_least(1))
    """How many tokens of a text; the paper's default."""

    prefix_tokens: list[int] = limited([10, 25, 50], PREFIXES)
    """Numbers of tokens before them that the model is given."""


@dataclass(frozen=True)
class ExtractionStage(AccuracyStage):
    """Everything that one run needs."""

    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)


def run(stage: ExtractionStage) -> Artifact:
    """Let `model` write behind the prompts, or find it done.

    Raises:
        ConfigError: a model that there isn't.
        DataError: nothing of the examples can be asked for.
        ArtifactError: a corpus or model folder that is unfinished.
    """
    stage.detection.require_whole("extraction.target says what the model is to write")
    model, texts = open_model("model", stage.model, stage.runs), open_examples(stage.examples)
    asked = ask_corpus(stage) if stage.extraction.target == ANSWER else None
    inputs = {
        "model": model.digest,
        "tokenizer": model.tokenizer_digest,
        "examples": targets_digest(texts, occurrences_of(stage.examples.path)),
        **({"questions": questions_digest(asked.questions)} if asked else {}),
    }
    settings = {"extraction": stage.extraction, "detection": stage.detection.of_a_pass}
    folder = locate(Path(stage.runs), KIND, model.slug, settings, inputs)
    make = partial(_make, stage, model, texts, asked)
    return build(folder, stage, inputs, make, named=settings)


def _make(
    stage: ExtractionStage,
    model: ModelHandle,
    texts: Sequence[Text],
    asked: Asked | None,
    folder: Path,
) -> Built:
    loaded, own = LoadedModel(model, stage.detection), stage.extraction
    if asked:
        targets = answer_targets(loaded, texts, asked)
    else:
        times = occurrences_of(stage.examples.path)
        targets = text_targets(loaded, texts, times, own.tokens, own.prefix_tokens)
    _check(stage, targets)
    table = pd.DataFrame(map(partial(_row, loaded), targets.found, written(loaded, targets.found)))
    table.astype({"occurrences": "Int64"}).to_parquet(folder / FILE, index=False)
    counts = targets.left_out.items()
    named = [{"benchmark": b, "reason": why, "examples": n} for (b, why), n in counts]
    return Built([FILE], {"rows": len(table), "left_out": named})


def written(loaded: LoadedModel, targets: Sequence[Target]) -> list[list[int]]:
    """What greedy decoding gives behind each prompt: as many tokens as the target has, or fewer."""
    budget = loaded.settings.batch_tokens
    task = partial(run_written, n=1, temperature=0.0, batch_tokens=budget)
    most, seeds = [len(target.ids) for target in targets], [0] * len(targets)
    found = loaded.spread(task, KIND, [target.tokens for target in targets], most, seeds)
    return [ids for (ids,) in found]


def _row(loaded: LoadedModel, target: Target, ids: Sequence[int]) -> dict[str, Any]:
    pairs = zip(ids, target.ids, strict=False)
    matched = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return {
        "example_id": target.text.example_id,
        "benchmark": target.text.benchmark,
        "member": target.text.label,
        "occurrences": target.occurrences,
        "prefix": target.prefix,
        "tokens": len(target.ids),
        "matched": matched,
        "extracted": matched == len(target.ids),
        "written": loaded.tokenizer.decode(ids),
    }


def _check(stage: ExtractionStage, targets: Targets) -> None:
    if not targets.found:
        reasons = "; ".join(f"{b}: {why} ({n})" for (b, why), n in targets.left_out.items())
        raise DataError(
            f"examples.path is {stage.examples.path!r}: there is nothing to extract ({reasons}). "
            "Give longer texts with labels, fewer extraction.tokens or extraction.prefix_tokens, "
            "or extraction.target=answer for a corpus of questions."
        )


NONE, ANY = "non-members", "members"


def summary(tables: Mapping[str, pd.DataFrame], left_out: Sequence[Mapping[str, object]]) -> str:
    """A table for each number of tokens before: a row a benchmark and number of occurrences.

    Args:
        tables: the artefacts' rows by what to call the model; the p-values are the first one's.
        left_out: the counts of what could not be asked for.
    """
    first = next(iter(tables.values()))
    parts = [
        "\n".join(_part(prefix, {n: t[t["prefix"] == prefix] for n, t in tables.items()}))
        for prefix in first["prefix"].unique()
    ]
    notes = [f"left out: {o['benchmark']}: {o['examples']}: {o['reason']}" for o in left_out]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def _part(prefix: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    first, *_ = tables.values()
    what, behind = "answers", "their questions"
    if prefix != QUESTION:
        what, behind = f"last {first['tokens'].iloc[0]} tokens", f"the {prefix} tokens before them"
    yield (
        f"share of the examples whose {what} come back word for word behind {behind} "
        "(Wilson's 95% intervals; number of examples)"
    )
    valued = {name: _valued(table) for name, table in tables.items()}
    tested, shares = p_values(_valued(first)), {name: _shares(t) for name, t in valued.items()}
    names = sorted(first["benchmark"].unique())
    rows = []
    for name in [*names, *([AVERAGE] if len(names) > 1 else [])]:
        for group in next(iter(shares.values())):
            cells = [cell(own[group].get(name)) for own in shares.values()]
            p = tested.get(name, (None, None)) if group == ANY else (None, None)
            rows.append([name, group, *cells, *map(p_words, p)])
    yield from fit(["benchmark", "occurrences", *tables, "p", "p Holm"], rows).lines(left=2)


def _valued(table: pd.DataFrame) -> pd.DataFrame:
    """With 1 for what is extracted; members of unknown occurrences count as inserted."""
    value, times = table["extracted"].astype(float), table["occurrences"].fillna(1).astype(int)
    return table.assign(value=value, known=table["occurrences"], occurrences=times)


def _shares(table: pd.DataFrame) -> dict[str, dict[str, Estimate]]:
    """The shares by benchmark: of non-members, of members by known occurrences, of all members."""
    member = table["member"].astype(bool)
    groups = {NONE: table[~member]}
    for times in sorted(set(table.loc[member, "known"].dropna()) - {0}):
        groups[str(times)] = table[member & (table["known"] == times).fillna(False)]
    groups[ANY] = table[member]
    found = {group: lines(rows, wilson=True) for group, rows in groups.items()}
    return {
        group: {name: estimate for name, line in own.items() for estimate in line.values()}
        for group, own in found.items()
    }
