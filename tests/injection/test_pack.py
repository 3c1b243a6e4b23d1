"""The packed sequences and the ledger, held against lists that are put together token by token."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.injection import packing
from contamination.injection.placement import PlacedSegment, Segment

WIDTH, SEPARATOR = 8, 2
TEXTS = ["one", "two", "other words"]
SEGMENTS = [np.arange(start, start + n, dtype=np.int32) for start, n in
            ((100, 5), (200, 4 + 2 * WIDTH), (300, 4 + WIDTH))]  # fmt: skip


class Stream:
    """Tokens 0, 1, 2, … in documents that start at 0, 5, 20 and 33."""

    def __init__(self, tokens):
        self.ids, self.starts = np.arange(tokens, dtype=np.int32), [0, 5, 20, 33]

    def __len__(self):
        return len(self.ids)

    def read(self, start, stop):
        return self.ids[start:stop]

    def document_before(self, position):
        start = max(s for s in self.starts if s < position)
        return f"d{start}", start


def placed(*places):
    """(clean position, example, copy, text) each, in order."""
    found, inserted = [], 0
    for clean, example, copy, text in places:
        segment = Segment(example, copy, text, len(SEGMENTS[text]), 0.0)
        found.append(PlacedSegment(segment, clean, clean + inserted))
        inserted += segment.tokens
    return found


LAYOUT = placed((1, 0, 0, 0), (5, 1, 0, 1), (6, 0, 1, 0), (6, 1, 1, 2), (40, 0, 2, 0))
CLEAN = 9 * WIDTH - sum(p.segment.tokens for p in LAYOUT) % WIDTH


def spliced(clean, layout):
    """Each packed token, and of which copy (a place in the layout) which token it is."""
    whole = [(token, None, None) for token in range(clean)]
    for number, item in reversed(list(enumerate(layout))):
        ids = SEGMENTS[item.segment.text].tolist()
        whole[item.clean : item.clean] = [(token, number, i) for i, token in enumerate(ids)]
    return whole


@pytest.mark.parametrize("block", [1, 7, 16, 1 << 20])
def test_sequences_hold_the_spliced_stream(tmp_path, monkeypatch, block):
    monkeypatch.setattr(packing, "BLOCK_TOKENS", block)
    expected = [token for token, *_ in spliced(CLEAN, LAYOUT)]
    path = tmp_path / "new" / "folder" / "sequences.arrow"
    for _ in range(2):  # once more over what is there
        count = packing.write_sequences(path, Stream(CLEAN + 9), CLEAN, LAYOUT, SEGMENTS, WIDTH)
    blocks = [*packing.read_blocks(path)]
    assert (count, type(count)) == (len(expected) / WIDTH, int)
    assert {b.shape[1] for b in blocks} == {WIDTH}
    assert np.concatenate(blocks).ravel().tolist() == expected
    opened = packing.open_sequences(path)
    assert opened.column_names == ["input_ids"]
    assert np.ravel(opened["input_ids"]).tolist() == expected


@pytest.mark.parametrize("sequences", [1, 2, 4, 9])
def test_parts_together_are_the_whole(tmp_path, sequences):
    expected = np.reshape([token for token, *_ in spliced(CLEAN, LAYOUT)], (-1, WIDTH))
    numbers = [*range(0, len(expected), sequences)]
    paths = [tmp_path / f"{first}.arrow" for first in numbers]
    stream = Stream(CLEAN + 9)
    for first, path in zip(numbers, paths, strict=True):
        part = first * WIDTH, min(first + sequences, len(expected)) * WIDTH
        count = packing.write_sequences(path, stream, CLEAN, LAYOUT, SEGMENTS, WIDTH, part)
        own = expected[first : first + sequences]
        assert np.concatenate([*packing.read_blocks(path)]).tolist() == own.tolist()
        assert count == packing.count_sequences(path) == len(own)
    assert np.concatenate([*packing.read_blocks(*paths)]).tolist() == expected.tolist()
    assert packing.open_sequences(*paths)["input_ids"][:] == expected.tolist()
    for tokens in (0, 1, WIDTH, WIDTH + 1, 5 * WIDTH, expected.size, expected.size + 1):
        rows = -(-tokens // WIDTH)
        tail = packing.read_last_tokens(paths, tokens)
        assert tail.tolist() == expected[max(0, len(expected) - rows) :].ravel().tolist()
    assert packing.read_last_tokens([], 3).dtype == np.int32


def test_pieces_are_joined_up_to_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "BLOCK_TOKENS", 16)
    layout = [PlacedSegment(Segment(0, n, 0, 1, 0.0), n + 1, 2 * n + 1) for n in range(32)]
    path = tmp_path / "sequences.arrow"
    packing.write_sequences(path, Stream(64), 64, layout, [np.array([7], np.int32)], 4)
    assert [b.size for b in packing.read_blocks(path)] == [16] * 6
    with pytest.raises(AssertionError, match="^the budget is a whole number of sequences"):
        packing.write_sequences(path, Stream(64), 63, layout, [np.array([7], np.int32)], 4)


def test_the_ledger_has_a_row_for_what_each_sequence_holds_of_a_copy():
    examples = pd.DataFrame(
        {"example_id": ["x", "y"], "text": ["one", "two"], "benchmark": ["g", "h"]}
    )
    tokenizer = SimpleNamespace(decode=lambda ids: "ab" * len(ids))
    templates, stream = {"g": "0a", "h": "0b"}, Stream(CLEAN)
    found = packing.make_ledger(
        stream, LAYOUT, examples, TEXTS, templates, tokenizer, (SEPARATOR, SEPARATOR), WIDTH
    )
    held = {}  # (copy, sequence) → the tokens of the copy, without its separators
    for at, (_, number, i) in enumerate(spliced(CLEAN, LAYOUT)):
        if number is not None and SEPARATOR <= i < LAYOUT[number].segment.tokens - SEPARATOR:
            held.setdefault((number, at // WIDTH), []).append((at % WIDTH, i - SEPARATOR))
    expected = []
    for (number, sequence), places in held.items():
        item = LAYOUT[number]
        name, start = stream.document_before(item.clean)
        example, text = examples.iloc[item.segment.example], TEXTS[item.segment.text]
        parts = sum(copy == number for copy, _ in held)
        expected.append((
            example["example_id"], item.segment.copy, name, 2 * (item.clean - start), sequence,
            places[0][0], places[-1][0] + 1, places[0][1], parts > 1,
            text if item.segment.text == 2 else None, templates[example["benchmark"]],
        ))  # fmt: skip
    assert [*found.itertuples(index=False, name=None)] == expected
    assert {row[8] for row in expected} == {True, False}
    assert found["reworded"].dtype == object
    none = packing.make_ledger(
        stream, [], examples, TEXTS, templates, tokenizer, (SEPARATOR, SEPARATOR), WIDTH
    )
    assert [*none.columns] == [*found.columns] == [*packing.LEDGER_COLUMNS]


@pytest.mark.parametrize("tokens", [100, 1 << 16, (1 << 17) + 5])
def test_hashes_are_of_the_first_tokens(monkeypatch, tokens):
    monkeypatch.setattr(packing, "BLOCK_TOKENS", 50_000)
    lengths = [n for n in (1 << 16, 1 << 17) if n < tokens] + [tokens]
    whole = np.arange(tokens, dtype="<i4").tobytes()
    expected = {str(n): hashlib.sha256(whole[: 4 * n]).hexdigest() for n in lengths}
    assert packing.prefix_hashes(Stream(tokens)) == expected
