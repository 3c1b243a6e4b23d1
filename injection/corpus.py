"""The injection stage's artefact, as the later stages open it.

::

    runs/corpus/<slug>-<hash>/
    ├── config.yaml       the resolved config
    ├── sequences/        packed sequences, datasets Arrow: part-00000.arrow, part-00001.arrow, …
    ├── examples.parquet  one row an example: members and non-members
    ├── held_out.parquet  more examples of each benchmark, neither inserted nor evaluated
    ├── ledger.parquet    one row an inserted copy
    ├── contamination.parquet  documents that share text with an example of the pool
    ├── tokenizer/        the tokenizer that packed, a Hugging Face folder
    └── manifest.json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from core.artifacts import Artifact, is_complete, open_artifact
from core.errors import DataError, near_names
from core.wholeness import read_manifest, reading
from injection.config import InjectionConfig
from injection.tokens import Ids, Tokenizer

KIND = "corpus"
HELD_OUT = "held_out.parquet"
CONTAMINATION = "contamination.parquet"
SEQUENCES = "sequences/"


@dataclass(frozen=True)
class Contaminated:
    """A finished folder with examples, the ledger of their copies, and a tokenizer."""

    artifact: Artifact

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config of the stage."""
        return self.artifact.config()

    @cached_property
    def examples(self) -> pd.DataFrame:
        """One row an example: example_id, benchmark, text, member, occurrences and more.

        Of a corpus, `contamination` names the corpora of its cell that share text with the example
        beside its copies (empty for most), and `natural_occurrences` counts its whole text there.
        """
        return self.artifact.table("examples.parquet")

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """One row an inserted copy: example_id, copy, document_id, sequence and more."""
        return self.artifact.table("ledger.parquet")

    def example(self, example_id: str) -> Any:
        """The example's row.

        Raises:
            DataError: there is none of that id.
        """
        names = self.examples["example_id"]
        found = self.examples[names == example_id]
        if found.empty:
            near = near_names(example_id, names) if len(names) <= 20 else f"One is {names.iloc[0]}."
            folder = self.artifact.path
            raise DataError(f"example_id is {example_id!r}: {folder} has no such example. {near}")
        return found.iloc[0]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that packed."""
        return Tokenizer(str(self.tokenizer_folder))

    @property
    def tokenizer_folder(self) -> Path:
        """The tokenizer's Hugging Face folder."""
        return self.artifact.path / "tokenizer"


@dataclass(frozen=True)
class PackedCorpus(Contaminated):
    """A finished corpus folder."""

    @property
    def slug(self) -> str:
        """What its folder's name begins with, whatever the folder is called now."""
        return slug(self.config)

    @cached_property
    def examples(self) -> pd.DataFrame:
        """See `Contaminated`; of a folder that lacks the flags they are made of its matches."""
        from injection.contamination import with_known_flags  # which imports this module

        return with_known_flags(super().examples, self)

    @cached_property
    def held_out(self) -> pd.DataFrame:
        """One row a non-member beyond the examples: example_id, benchmark, text and more."""
        if HELD_OUT not in self.artifact.files:  # made before there were any
            return pd.DataFrame(columns=["example_id", "benchmark", "text"])
        return self.artifact.table(HELD_OUT)

    @cached_property
    def contamination(self) -> pd.DataFrame:
        """One row a document and example that share text: see `injection.contamination`."""
        return self.artifact.table(CONTAMINATION)

    @cached_property
    def sequences(self) -> Any:
        """The packed sequences, a `datasets.Dataset` with `input_ids` of equal length."""
        from injection.pack import open_sequences

        with reading(self.artifact.path):
            return open_sequences(*self.parts)

    @property
    def parts(self) -> list[Path]:
        """The files of the packed sequences, in order."""
        names = sorted(name for name in self.artifact.files if name.startswith(SEQUENCES))
        return [self.artifact.path / name for name in names]

    def blocks(self) -> Iterator[Ids]:
        """The packed sequences in blocks of shape (n, sequence_tokens), read and not mapped."""
        from injection.pack import read_blocks

        return read_blocks(*self.parts)

    @property
    def sequence_tokens(self) -> int:
        """Tokens of one packed sequence."""
        with reading(self.artifact.path):
            return len(self.sequences[0]["input_ids"])

    @property
    def window_tokens(self) -> tuple[int, int]:
        """First and last token (exclusive) of the packed corpus that copies could take."""
        with reading(self.artifact.path):
            return InjectionConfig(**self.config["injection"]).window_tokens

    @property
    def vocabulary(self) -> int:
        """Entries that a model needs for its tokens: some tokenizers leave numbers out."""
        return int(max(self.tokenizer.hf.get_vocab().values())) + 1


def slug(config: Mapping[str, Any]) -> str:
    """A corpus in a few words: its source, its part and its tokens, from the resolved config."""
    own = config["injection"]
    return f"{config['corpus'].get('name', 'corpus')}-{own['part']}-{own['budget_tokens']}"


def open_corpus(path: Path | str) -> PackedCorpus:
    """Open a finished corpus folder, or a fine-tuning set.

    Raises:
        ArtifactError: there is none, or it is unfinished.
    """
    from injection.finetuning.folder import KIND as FINETUNING  # which imports this module
    from injection.finetuning.folder import FinetuningSet

    if is_complete(Path(path)) and read_manifest(Path(path)).get("kind") == FINETUNING:
        return FinetuningSet(open_artifact(path, FINETUNING))
    return PackedCorpus(open_artifact(path, KIND))
