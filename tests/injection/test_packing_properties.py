"""Placement, packing, the ledger and the proof, for layouts that are drawn at random."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contamination.core.errors import ConfigError
from contamination.injection import packing
from contamination.injection.placement import (
    PlacementRules,
    Segment,
    place_between_documents,
    place_within_window,
)
from contamination.injection.verification import verify
from tests.properties import SEEDS

SEPARATOR = 1
MARK = 1_000  # a separator; the clean stream has the tokens 0, 1, …
POSITIONS = st.floats(0, 1, exclude_max=True)


class Stream:
    """Tokens 0, 1, 2, … in documents of some lengths."""

    def __init__(self, documents):
        self.ids = np.arange(sum(documents), dtype=np.int32)
        self.starts = np.cumsum([0, *documents])[:-1]

    def __len__(self):
        return len(self.ids)

    def read(self, start, stop):
        return self.ids[start:stop]

    def document_before(self, position):
        row = int(np.searchsorted(self.starts, position)) - 1
        return f"d{row}", int(self.starts[row])


@st.composite
def layouts(draw):
    """Texts of examples with their copies, and a sequence's length."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    copies = draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    assume(sum(copies))
    segments = [
        Segment(example, copy, example, length + 2 * SEPARATOR, draw(POSITIONS))
        for example, (length, number) in enumerate(zip(lengths, copies, strict=True))
        for copy in range(number)
    ]
    width = draw(st.integers(4, 16))
    documents = draw(st.lists(st.integers(2, 20), min_size=3, max_size=9))
    inserted = sum(segment.tokens for segment in segments)
    documents[-1] += -(sum(documents) + inserted) % width + 3 * width
    return lengths, copies, segments, width, documents


def ids_of(example, length):
    return np.arange(length, dtype=np.int32) + 100 * (example + 1) + 1_000


def pool(lengths, copies):
    """Examples whose texts are their tokens, and the tokens of each with its separators."""
    texts = [" ".join(map(str, ids_of(e, n))) for e, n in enumerate(lengths)]
    examples = pd.DataFrame(
        {"example_id": [f"x{e}" for e in range(len(lengths))], "text": texts, "benchmark": "b",
         "member": [number > 0 for number in copies], "occurrences": copies}
    )  # fmt: skip
    mark = np.array([MARK], np.int32)
    return examples, texts, [np.r_[mark, ids_of(e, n), mark] for e, n in enumerate(lengths)]


TOKENIZER = SimpleNamespace(
    decode=lambda ids: "".join(f" {i}" for i in ids), encode=lambda text: [*map(int, text.split())]
)


@settings(max_examples=15)
@given(layouts(), st.booleans(), st.booleans())
def test_every_copy_is_packed_where_the_ledger_says_and_nothing_else_changes(
    tmp_path_factory, layout, split, between
):
    lengths, copies, segments, width, documents = layout
    stream, inserted = Stream(documents), sum(segment.tokens for segment in segments)
    window = 0, len(stream) + inserted
    try:
        if between:
            rules = PlacementRules(window, width, split)
            placed = place_between_documents(segments, stream.starts, rules)
        else:
            placed = place_within_window(segments, window, width, lambda p: p, split=split)
    except ConfigError:
        assume(False)
    assert sorted(map(str, (item.segment for item in placed))) == sorted(map(str, segments))
    assert [item.packed for item in placed] == sorted(item.packed for item in placed)
    examples, texts, tokens = pool(lengths, copies)
    path = tmp_path_factory.getbasetemp() / "drawn.arrow"
    packing.write_sequences(path, stream, len(stream), placed, tokens, width)
    blocks = [*packing.read_blocks(path)]
    packed = np.concatenate(blocks).ravel()

    # the stream without the copies is the clean one, and each copy is whole at its place
    is_copy = np.zeros(len(packed), bool)
    for item in placed:
        span = slice(item.packed, item.packed + item.segment.tokens)
        assert not is_copy[span].any()
        is_copy[span] = True
        assert packed[span].tolist() == tokens[item.segment.text].tolist()
        assert item.clean == (~is_copy[: item.packed]).sum()
        if between:
            assert item.clean in stream.starts
        if not split:
            assert item.packed // width == (item.packed + item.segment.tokens - 1) // width
    assert packed[~is_copy].tolist() == stream.ids.tolist()

    ledger = packing.make_ledger(
        stream, placed, examples, texts, {"b": "0a"}, TOKENIZER, (SEPARATOR, SEPARATOR), width
    )
    counts = ledger.groupby("example_id")["copy"].nunique().reindex(examples["example_id"])
    assert counts.fillna(0).tolist() == copies
    table = packed.reshape(-1, width)
    for (name, _), rows in ledger.groupby(["example_id", "copy"]):
        read = [table[r.sequence, r.token_start : r.token_end] for r in rows.itertuples()]
        example = int(name[1:])
        assert np.concatenate(read).tolist() == ids_of(example, lengths[example]).tolist()
        ends = (rows["token_end"] - rows["token_start"]).cumsum()
        assert rows["copy_start"].tolist() == [0, *ends[:-1]]
        assert set(rows["truncated"]) == {len(rows) > 1}
    proof = verify(blocks, examples, ledger, TOKENIZER, window)
    assert proof.failures == []
    assert (proof.rows, proof.tokens) == (len(ledger), len(packed))

    # parts are what the whole is
    whole = (len(packed) // width + 1) // 2 * width
    paths = [tmp_path_factory.getbasetemp() / f"part {n}.arrow" for n in range(2)]
    for part, own in zip(((0, whole), (whole, len(packed))), paths, strict=True):
        packing.write_sequences(own, stream, len(stream), placed, tokens, width, part)
    assert np.concatenate([*packing.read_blocks(*paths)]).ravel().tolist() == packed.tolist()


@settings(max_examples=10)
@given(layouts(), SEEDS)
def test_the_proof_finds_a_changed_token_and_a_changed_ledger(layout, seed):
    lengths, copies, segments, width, documents = layout
    stream, rng = Stream(documents), np.random.default_rng(seed)
    window = 0, len(stream) + sum(segment.tokens for segment in segments)
    placed = place_within_window(segments, window, width, lambda p: p, split=True)
    examples, texts, tokens = pool(lengths, copies)
    packed, clean = [], 0
    for item in placed:
        packed += [*stream.ids[clean : item.clean], *tokens[item.segment.text]]
        clean = item.clean
    packed = np.array([*packed, *stream.ids[clean:]], np.int32).reshape(-1, width)
    ledger = packing.make_ledger(
        stream, placed, examples, texts, {"b": "0a"}, TOKENIZER, (SEPARATOR, SEPARATOR), width
    )
    assert verify([packed], examples, ledger, TOKENIZER, window).failures == []
    row = ledger.iloc[rng.integers(len(ledger))]
    changed = packed.copy()
    changed[row["sequence"], rng.integers(row["token_start"], row["token_end"])] = MARK
    assert verify([changed], examples, ledger, TOKENIZER, window).failures
    for column, other in (
        ("token_start", row["token_start"] + 1), ("sequence", row["sequence"] + 1),
        ("copy_start", row["copy_start"] + 1), ("token_end", row["token_end"] - 1),
    ):  # fmt: skip
        wrong = ledger.copy()
        wrong.loc[row.name, column] = other
        assert verify([packed], examples, wrong, TOKENIZER, window).failures, column
    assert verify([packed], examples, ledger.drop(row.name), TOKENIZER, window).failures
    if len(same := ledger[ledger["example_id"] == row["example_id"]]) > 1:
        place = ["sequence", "token_start", "token_end", "copy_start", "truncated"]
        other = same.index[same.index != row.name][0]
        twice = ledger.copy()  # one copy listed twice, another not at all
        twice.loc[row.name, place] = ledger.loc[other, place]
        assert verify([packed], examples, twice, TOKENIZER, window).failures
    last = int(ledger["sequence"].max()) * width + int(ledger["token_end"].iloc[-1])
    outside = verify([packed], examples, ledger, TOKENIZER, (0, last - 1))
    assert any("outside of the window" in failure for failure in outside.failures)
