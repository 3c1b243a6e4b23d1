"""Exports of tokens, read by readers of their own: by the formats' descriptions alone."""

import gzip
import struct
from pathlib import Path
from shutil import copytree

import numpy as np
import pandas as pd
import pytest

from contamination.core.artifacts import WrittenFiles, write_manifest
from contamination.core.errors import ArtifactError, ConfigError
from contamination.injection.export.run import prove_finished_export
from contamination.injection.export.token_formats import Megatron, Olmo
from tests.injection.export.conftest import EXAMPLES, WIDTH

NAMES = ("megatron", "datatrove", "olmo")


def megatron(folder):
    """(bytes of the tokens, their type, first and last byte of each document)."""
    index = (folder / "tokens.idx").read_bytes()
    magic, version, code, count, ends = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    kind = {8: "<u2", 4: "<i4"}[code]
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    offsets = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
    documents = struct.unpack_from(f"<{ends}q", index, 34 + 12 * count)
    assert len(index) == 34 + 12 * count + 8 * ends
    assert documents == tuple(range(count + 1))
    size = np.dtype(kind).itemsize
    spans = [(at, at + n * size) for at, n in zip(offsets, lengths, strict=True)]
    return (folder / "tokens.bin").read_bytes(), kind, spans


def datatrove(folder):
    name, tokens, _ = (folder / "tokens.ds.metadata").read_text().split("\n")
    size, index = int(name.split("|")[1]), (folder / "tokens.ds.index").read_bytes()
    ends = struct.unpack(f"<{len(index) // 8}Q", index)
    assert ends[-1] == int(tokens)
    spans = [(start * size, stop * size) for start, stop in zip((0, *ends), ends, strict=False)]
    return (folder / "tokens.ds").read_bytes(), {2: "<u2", 4: "<u4"}[size], spans


def olmo(folder, vocabulary):
    kind = "<u2" if vocabulary - 1 <= 65_535 else "<u4"
    size, text = np.dtype(kind).itemsize, gzip.decompress((folder / "tokens.csv.gz").read_bytes())
    rows = [line.split(",") for line in text.decode().splitlines()]
    spans = [(int(row[0]) * size, int(row[1]) * size) for row in rows]
    return (folder / "tokens.npy").read_bytes(), kind, spans


@pytest.mark.parametrize("kind", ["bytes bos", "many"])
@pytest.mark.parametrize("name", NAMES)
def test_each_document_is_a_sequence_and_each_copy_stands_at_its_bytes(
    exported, name, kind, monkeypatch
):
    monkeypatch.setattr("contamination.injection.export.token_formats.BLOCK_TOKENS", 5 * WIDTH)
    corpus, made = exported(name, kind)
    readers = {"megatron": megatron, "datatrove": datatrove,
               "olmo": lambda folder: olmo(folder, corpus.vocabulary_size)}  # fmt: skip
    data, dtype, spans = readers[name](made.path)
    sequences = np.array(corpus.sequences["input_ids"])
    found = [np.frombuffer(data[start:stop], dtype) for start, stop in spans]
    assert np.array_equal(found, sequences)
    assert len(data) == spans[-1][1] == sequences.size * np.dtype(dtype).itemsize
    ledger, texts = pd.read_parquet(made.path / "ledger.parquet"), {e[0]: e[1] for e in EXAMPLES}
    assert len(ledger) == len(corpus.ledger) > 4
    for row in ledger.itertuples():
        tokens = corpus.tokenizer.encode(texts[row.example_id])[row.copy_start :]
        own = np.frombuffer(data[row.byte_start : row.byte_end], dtype)
        assert own.tolist() == tokens[: len(own)]
        assert spans[row.document][0] <= row.byte_start < row.byte_end <= spans[row.document][1]
    assert str(prove_finished_export(made.path)) == (
        f"{len(ledger)} ledger rows proved in {sequences.size} tokens: all right"
    )


def flip(folder, files):
    row = pd.read_parquet(folder / "ledger.parquet").iloc[0]
    data = bytearray((folder / files[0]).read_bytes())
    data[row.byte_start] ^= 1
    (folder / files[0]).write_bytes(data)


def cut(folder, files):
    path = folder / files[0]
    path.write_bytes(path.read_bytes()[: -2 * WIDTH])  # a whole document


def cut_within(folder, files):
    path = folder / files[0]
    path.write_bytes(path.read_bytes()[:-3])


def lengthen(folder, files):
    with (folder / files[0]).open("ab") as stream:
        stream.write(bytes(2 * WIDTH))


def edit_index(folder, files):
    path = folder / files[1]
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    data = data.replace(data[-24:], bytes(24))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def lengthen_index(folder, files):
    path = folder / files[1]
    more = bytes(8)
    with path.open("ab") as stream:
        stream.write(gzip.compress(more) if path.suffix == ".gz" else more)


def move(**columns):
    def edit(folder, files):
        table = pd.read_parquet(folder / "ledger.parquet")
        for name, by in columns.items():
            table.loc[0, name] += by
        table.to_parquet(folder / "ledger.parquet", index=False)

    return edit


FILES = {
    "megatron": ("tokens.bin", "tokens.idx"), "datatrove": ("tokens.ds", "tokens.ds.index"),
    "olmo": ("tokens.npy", "tokens.csv.gz"),
}  # fmt: skip
EDITS = {
    "a token of a copy": (flip, "differ from the example"),
    "a document less": (cut, "tokens, "),
    "half a document less": (cut_within, "ends within a document"),
    "a document more": (lengthen, "tokens, "),
    "the index": (edit_index, "differs from the index that was written"),
    "a longer index": (lengthen_index, "differs from the index that was written"),
    "a row moved": (move(token_start=1, token_end=1, byte_start=2, byte_end=2), "differ from"),
    "a row's bytes": (move(byte_start=2), "are not sequence"),
    "a row's document": (move(document=1), "are not sequence"),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_edited_is_caught_by_its_hash_and_without_it(exported, name, edit, tmp_path):
    """The hashes are made anew after the edit: the proof alone has to find it."""
    made, (change, words) = exported(name)[1], EDITS[edit]
    folder = Path(copytree(made.path, tmp_path / "export" / "edited"))
    change(folder, FILES[name])
    with pytest.raises(ArtifactError, match="damaged"):
        prove_finished_export(folder)
    write_manifest(folder, made.inputs, WrittenFiles([*made.files], made.counts))
    failures = prove_finished_export(folder).failures
    assert any(words in line for line in failures), failures


def test_the_type_is_the_first_with_room(exported):
    assert [Megatron()._choose_dtype(n) for n in (65_536, 65_537)] == ["uint16", "int32"]
    assert [Olmo()._choose_dtype(n) for n in (256, 257, 65_536, 65_537)] == [
        "uint8", "uint16", "uint16", "uint32"
    ]  # fmt: skip
    assert exported("megatron", dtype="int32")[1].counts["bytes_a_token"] == 4
    for name in ("uint16", "float32"):
        with pytest.raises(ConfigError, match=f"format.dtype is '{name}': .* has 70,260 entries"):
            exported("megatron", "many", dtype=name)
    with pytest.raises(ConfigError, match="Choose from other formats"):
        Megatron()._choose_dtype(1 << 40)
