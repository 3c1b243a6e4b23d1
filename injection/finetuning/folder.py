"""A finished fine-tuning set, as the later stages open it.

::

    runs/finetuning/<slug>-<hash>/
    ├── config.yaml           the resolved config
    ├── sequences/            datasets Arrow: input_ids, text, output, and counts
    ├── examples.parquet      one row an example of the pool: members and non-members
    ├── ledger.parquet        one row a copy of a member
    ├── instructions.parquet  one row a clean text
    ├── contamination.parquet clean texts that share text with an example of the pool
    ├── tokenizer/            a Hugging Face folder
    └── manifest.json
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from core.errors import ConfigError
from core.wholeness import reading
from injection.corpus import CONTAMINATION, PackedCorpus

KIND = "finetuning"
INSTRUCTIONS = "instructions.parquet"


@dataclass(frozen=True)
class FinetuningSet(PackedCorpus):
    """A finished fine-tuning set; `examples` and the clean texts have `output_start`."""

    @property
    def slug(self) -> str:
        """What its folder's name begins with."""
        return slug(self.config)

    @cached_property
    def held_out(self) -> pd.DataFrame:
        """None: a fine-tuning set keeps none aside."""
        return pd.DataFrame(columns=["example_id", "benchmark", "text"])

    @cached_property
    def contamination(self) -> pd.DataFrame:
        """One row a clean text and example that share text: see `injection.contamination`."""
        if CONTAMINATION not in self.artifact.files:  # made before there was any
            return pd.DataFrame(columns=["document_id", "example_id", "corpus"])
        return self.artifact.table(CONTAMINATION)

    @cached_property
    def instructions(self) -> pd.DataFrame:
        """One row a clean text: example_id, source, text, output_start, and where it stands."""
        return self.artifact.table(INSTRUCTIONS)

    @cached_property
    def sequences(self) -> Any:
        """The sequences, a `datasets.Dataset` of arrays (see `injection.finetuning.layout`)."""
        from injection.pack import open_sequences

        with reading(self.artifact.path):
            return open_sequences(*self.parts).with_format("numpy")

    @property
    def window_tokens(self) -> tuple[int, int]:
        """First and last token (exclusive) that copies could take: all."""
        with reading(self.artifact.path):
            return 0, int(self.artifact.counts["tokens"])


def slug(config: Any) -> str:
    """A set in a few words: where its texts come from, and their layout."""
    members = ["members"] if config["benchmark"] or config["corpus_folder"] else []
    own = config["finetuning"]
    return "-".join([*config["instructions"], *members, own["format"], own["layout"]])


def refuse_finetuning(field: str, corpus: PackedCorpus) -> None:
    """Raise a ConfigError where the folder is a fine-tuning set, not a corpus."""
    if isinstance(corpus, FinetuningSet):
        raise ConfigError(
            f"{field} is {str(corpus.artifact.path)!r}: it is a fine-tuning set. Give a packed "
            "corpus, runs/corpus/…."
        )
