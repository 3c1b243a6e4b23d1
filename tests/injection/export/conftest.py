"""A corpus put together token by token, with tokenizers of four kinds."""

from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.core.config import CONF
from contamination.injection.config import ExportStage
from contamination.injection.corpus import open_corpus
from contamination.injection.export.run import export_corpus
from contamination.injection.packing import locate_in_part
from contamination.injection.token_stream import Tokenizer

WIDTH = 16
SEPARATOR = "\n\n"
DOCUMENTS = [
    "Zwei Bücher liegen auf dem Tisch, und 三毛猫 schläft.",
    "no more than a line, never inserted, toon",
    "🙂🙃 stand 💧 for a smile, another one, and a drop of water. The end comes late, after words.",
    "It rains 雨 on a roof; a roof has 4 sides.",
]
EXAMPLES = [
    ("a", "A red house: 42.", True, 2),
    ("b", "grün & blau 🐟 swim together in a sea 🌊", True, 1),
    ("c", "never inserted, too", False, 0),  # in a document as other tokens: `on` is one
]
COPIES = ((0, 21, "a", 0), (2, 25, "b", 0), (3, 0, "a", 1))
"""Of which document, before which character, which copy of which example; in order."""


@dataclass(frozen=True)
class ToyConfig:
    corpus: dict[str, str] = field(default_factory=lambda: {"name": "toy"})
    injection: dict[str, Any] = field(
        default_factory=lambda: {"part": "study", "budget_tokens": 1600, "sequence_tokens": WIDTH}
    )


def byte_level(more=0):
    letters = [*pre_tokenizers.ByteLevel.alphabet()]
    names = ["<s>", "</s>", *sorted(letters), "on", "Ġa", *(f"<{n}>" for n in range(more))]
    vocabulary = {token: i for i, token in enumerate(reversed(names))}
    backend = Backend(models.BPE(vocabulary, [("o", "n"), ("Ġ", "a")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def lower_case():
    backend = byte_level()
    backend.normalizer = normalizers.Lowercase()
    return backend


def sentencepiece():
    """As LLaMA's: a blank before each text, bytes for unknown characters, no blank at the start."""
    letters = sorted({*chain(*DOCUMENTS, *(e[1] for e in EXAMPLES))} - {*" 三毛猫雨🙂🙃💧🐟🌊\n"})
    names = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), "▁", *letters]
    vocabulary = {token: i for i, token in enumerate(names)}
    backend = Backend(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    return backend


KINDS = {
    "bytes": (byte_level, False), "bytes bos": (byte_level, True),
    "pieces": (sentencepiece, False), "pieces bos": (sentencepiece, True),
    "lower case": (lower_case, True), "many": (partial(byte_level, 70_000), True),
}  # fmt: skip


def save_tokenizer(kind, folder):
    make, bos = KINDS[kind]
    backend = make()
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            "<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
        )
    PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    return Tokenizer(str(folder))


def stream_of(tokenizer, copies):
    """Tokens of the documents with the copies, and for each token the copy that it is of."""
    ids, owners = [], []
    between = tokenizer.encode(SEPARATOR)
    texts = {e[0]: tokenizer.encode(e[1]) for e in EXAMPLES}
    for number, document in enumerate(DOCUMENTS):
        own = tokenizer.encode_documents([document])[0]
        spans = tokenizer.hf(document, return_offsets_mapping=True)["offset_mapping"]
        done = 0
        for at, place, example, copy in copies:
            if at == number:
                stop = next(i for i, (low, high) in enumerate(spans) if high > max(place, 0))
                stop = 0 if place == 0 else stop  # before the BOS
                stop += 2 * isinstance(place, float)  # within a character
                parts = [(own[done:stop], None), (between, None), (texts[example], (example, copy)),
                         (between, None)]  # fmt: skip
                for part, owner in parts:
                    ids += part
                    owners += [owner] * len(part)
                done = stop
        ids += own[done:]
        owners += [None] * len(own[done:])
    whole = len(ids) // WIDTH * WIDTH
    return np.array(ids[:whole], np.int32), owners[:whole]


def ledger_of(owners):
    places, rows = {}, []
    for at, owner in enumerate(owners):
        if owner:
            places.setdefault(owner, []).append(at)
    for (example, copy), inside in places.items():
        for sequence in sorted({at // WIDTH for at in inside}):
            own = [at % WIDTH for at in inside if at // WIDTH == sequence]
            skipped = sum(at // WIDTH < sequence for at in inside)
            rows.append(
                (example, copy, "d", 0, sequence, own[0], own[-1] + 1, skipped, False, None)
            )
    columns = ["example_id", "copy", "document_id", "char_offset", "sequence", "token_start",
               "token_end", "copy_start", "truncated", "reworded"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype({"reworded": object})


def toy_corpus(folder, kind="bytes bos", copies=COPIES):
    def make(folder):
        tokenizer = save_tokenizer(kind, folder / "tokenizer")
        ids, owners = stream_of(tokenizer, copies)
        name = locate_in_part(0, 1)[0]
        (folder / name).parent.mkdir()
        schema = pa.schema([("input_ids", pa.list_(pa.int32(), WIDTH))])
        with (
            pa.OSFile(str(folder / name), "wb") as sink,
            pa.ipc.new_stream(sink, schema) as out,
        ):
            for part in np.array_split(ids.reshape(-1, WIDTH), 3):  # blocks
                column = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), WIDTH)
                out.write_batch(pa.record_batch([column], schema=schema))
        ledger_of(owners).to_parquet(folder / "ledger.parquet", index=False)
        examples = pd.DataFrame(EXAMPLES, columns=["example_id", "text", "member", "occurrences"])
        examples.to_parquet(folder / "examples.parquet", index=False)
        files = [f"tokenizer/{path.name}" for path in (folder / "tokenizer").iterdir()]
        counts = {"sequences": len(ids) // WIDTH, "tokens": len(ids)}
        return WrittenFiles([name, "ledger.parquet", "examples.parquet", *files], counts)

    return open_corpus(build_or_open(folder / "corpus" / "toy-0", ToyConfig(), {}, make).path)


def node(name, **more):
    return {**yaml.safe_load((CONF / "format" / f"{name}.yaml").read_text()), **more}


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A corpus and its export, by the format and the kind of tokenizer."""
    runs = tmp_path_factory.mktemp("runs")

    @cache
    def corpus(kind, copies):
        return toy_corpus(
            runs / kind.replace(" ", "-") / str(crc32(repr(copies).encode())), kind, copies
        )

    def make(name, kind="bytes bos", copies=COPIES, **more):
        found = corpus(kind, copies)
        stage = ExportStage(str(runs), str(found.artifact.path), format=node(name, **more))
        return found, export_corpus(stage)

    return make
