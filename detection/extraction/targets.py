"""What the model should give back.

That is the end of each text behind some of the tokens before it, or an example's answer behind its
question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from detection.accuracy.questions import Asked
from detection.accuracy.run import tokenize
from detection.examples import lines_digest
from detection.forward.reader import Tokens
from detection.forward.windows import leading_special
from detection.loaded import LoadedModel
from detection.texts import Text

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
