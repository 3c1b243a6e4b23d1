"""The texts to score: a corpus's examples, or rows of a file, a data set or standard input."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contamination.core.errors import DataError
from contamination.core.statistics.estimates import ALL
from contamination.data.readers.rows import Row, Tally, skips
from contamination.data.rows import folded, is_missing, said_names, word
from contamination.data.texts import Text, Texts

LABELS = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "member"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "nonmember"), False),
    "": None,
}
NON_MEMBER = re.compile(r"non[\s_\u2010-\u2015-]+member")
"""Ways to write it, in small letters."""
OUTPUT_START = "output_start"
FIELDS = ("id", "text", "label", "benchmark", OUTPUT_START, "cluster")
RESERVED = {ALL: "the mean over benchmarks", "pooled": "all texts together"}
log = logging.getLogger(__name__)


def texts_of(rows: Iterable[Row], tally: Tally, source: str) -> Texts:
    """The rows' texts, in their order.

    A row has a `text` and may have an `id` (else its number from 0 is its id), a `label`, a
    `benchmark`, a `cluster` (what it is a piece of) and an `output_start`, the number of its
    output's first character; or, in place of text and output_start, a `prompt` and an `output`. In
    these names, capital letters and blanks around them don't count.

    Args:
        rows: the rows.
        tally: decides on a row that can't be used.
        source: what they come from, for errors.

    Raises:
        DataError: a row that can't be used, an id twice, a benchmark called "all", or no row.
    """
    texts = (_text(row, tally) for row in said_names(rows, source))
    found = Texts.of(text for text in texts if text is not None)
    if tally.skipped:
        log.warning("%s: %s", source, skips(tally.skipped))
    return _checked(source, found)


def examples_digest(examples: Sequence[Text]) -> str:
    """A hash of the ids and texts in any order: not of membership, so cells share clean scores."""
    texts = Texts.of(examples)
    ordered = texts.take(texts.order("sha256", "example_id"))
    return lines_digest(f"{e.sha256} {e.example_id}" for e in ordered)


def texts_digest(texts: Sequence[Text]) -> str:
    """A hash of the texts alone, in the given order."""
    return lines_digest(t.sha256 for t in texts)


def lines_digest(lines: Iterable[str]) -> str:
    """A hash of the lines, with a newline between them."""
    found = hashlib.sha256()
    for number, line in enumerate(lines):
        found.update((f"\n{line}" if number else line).encode())
    return found.hexdigest()


def make_text(
    example_id: str,
    text: str,
    label: bool | None,
    benchmark: str,
    output_start: int | None = None,
) -> Text:
    """An example with its text's hash."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return Text(example_id, text, sha256, label, benchmark, output_start)


def label_of(value: Any) -> bool | None:
    """Whether it names a member: 1, true, yes, "member" in any case; None where it is empty.

    "non-member", "non_member", "non member" and "nonmember" are one label.

    Raises:
        ValueError: it names neither a member nor a non-member; NaN is a number, and not empty.
    """
    if is_missing(value) and not isinstance(value, Real):
        return None
    if isinstance(value, str):
        name = NON_MEMBER.sub("nonmember", value.strip().lower())
        if name in LABELS:
            return LABELS[name]
    if isinstance(value, np.bool_ | Real) and value in (0, 1):
        return bool(value)
    raise ValueError(value)


def id_of(row: Row) -> str:
    """The row's `id`, else its number from 0."""
    named = {folded(name): value for name, value in row.value.items()}
    return word(named.get("id")) or str(row.number - 1)


def _checked(source: str, examples: Texts) -> Texts:
    if not examples:
        raise DataError(f"{source}: it has no example. Give at least one text.")
    ids = examples.take(examples.order("example_id")).column("example_id").combine_chunks()
    twice = ids[1:].filter(pc.equal(ids[1:], ids[:-1]))
    if len(twice):
        raise DataError(
            f"{source}: the id {twice[0].as_py()!r} is there twice. Give each row its own `id`, or "
            "none: a row without one has its number, from 0."
        )
    for name, means in RESERVED.items():
        place = pc.index(examples.column("benchmark"), name).as_py()
        if place >= 0:
            raise DataError(
                f"{source}: {examples[place].example_id!r} is of a benchmark called {name!r}, "
                f"which names {means}. Give it another name."
            )
    _warn_of_both_labels(source, examples)
    return examples


def _warn_of_both_labels(source: str, examples: Texts) -> None:
    """Warn of texts that are there as members and as non-members: no score tells these apart."""
    columns = {name: examples.column(name) for name in ("sha256", "label", "example_id")}
    labels = pa.table(columns).filter(pc.is_valid(columns["label"])).group_by("sha256")
    groups = labels.aggregate([("label", "min"), ("label", "max"), ("example_id", "list")])
    both = groups.filter(pc.not_equal(groups["label_min"], groups["label_max"]))
    if len(both):
        first, second, *_ = both["example_id_list"][0].as_py()
        log.warning(
            "%s: %d %s there as a member and as a non-member, such as %s and %s. No score can tell "
            "these apart, so every AUROC is nearer to 0.5. Leave them out, or give both one label.",
            *(source, len(both), "text is" if len(both) == 1 else "texts are", first, second),
        )


def _text(row: Row, tally: Tally) -> Text | None:
    """The row's example; None once the tally has it."""
    names = [*map(folded, row.value)]
    fields = dict(zip(names, row.value.values(), strict=True))
    if len(fields) < len(names) and any(names.count(name) > 1 for name in FIELDS):
        tally.bad("two fields of one name", row.where, _fields(row))
        return None
    text, start = _whole(fields)
    if not isinstance(text, str):
        given = "it is missing or null" if is_missing(text) else f"a {type(text).__name__}"
        tally.bad("no string as its `text`", row.where, f"{given}; {_fields(row)}")
        return None
    for field in ("id", "benchmark", "cluster"):
        if isinstance(fields.get(field), list | dict | np.ndarray):
            kind = type(fields[field]).__name__
            tally.bad(f"a nested `{field}`", row.where, f"a {kind}; give a text or a number")
            return None
    name = id_of(row)
    benchmark, cluster = word(fields.get("benchmark")), word(fields.get("cluster"))
    try:
        f"{text}{name}{benchmark}{cluster}".encode()  # JSON may spell half of a surrogate pair
        own = make_text(name, text, None, benchmark, _place(start, text))
        return replace(own, label=label_of(fields.get("label")), cluster=cluster)
    except UnicodeEncodeError as error:
        tally.bad("invalid UTF-8", row.where, str(error))
    except IndexError:
        said = f"give a whole number from 0 to {len(text)}, the characters of its text"
        tally.bad(f"output_start is {start!r}", row.where, said)
    except ValueError as error:
        said = "give 1, true, yes or member; 0, false, no or non-member; or nothing"
        tally.bad(f"label is {error.args[0]!r}", row.where, said)
    return None


def _whole(fields: Mapping[str, Any]) -> tuple[Any, Any]:
    """The text and where its output begins; of a `prompt` and an `output` where it has no text."""
    prompt, output = fields.get("prompt"), fields.get("output")
    if fields.get("text") is None and isinstance(prompt, str) and isinstance(output, str):
        return prompt + output, len(prompt)
    return fields.get("text"), fields.get(OUTPUT_START)


def _place(start: Any, text: str) -> int | None:
    """Where a text's output begins, None where nothing is said of it.

    Raises:
        IndexError: it is no place in the text.
    """
    if is_missing(start) or start == "":
        return None
    try:
        place = int(start)
    except (TypeError, ValueError) as error:
        raise IndexError(start) from error
    if isinstance(start, bool) or place != float(start) or not 0 <= place <= len(text):
        raise IndexError(start)
    return place


def _fields(row: Row) -> str:
    return f"its fields are {', '.join(map(str, row.value)) or 'none'}"
