"""Opens finished corpora and fine-tuning sets, and shows an example's copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contamination.core.artifacts import Artifact, is_complete, open_artifact
from contamination.core.errors import ConfigError, DataError, near_names
from contamination.core.integrity import errors_naming_folders, read_manifest
from contamination.injection.config import THIS_CORPUS, InjectionConfig
from contamination.injection.contamination_table import CONTAMINATION_COLUMN, with_flags
from contamination.injection.token_stream import Ids, Tokenizer

if TYPE_CHECKING:
    import pandas as pd

KIND = "corpus"
HELD_OUT_FILE = "held_out.parquet"
CONTAMINATION_FILE = "contamination.parquet"
SEQUENCES = "sequences/"


@dataclass(frozen=True)
class ContaminatedFolder:
    """A finished folder with examples, the ledger of their copies, and a tokenizer."""

    artifact: Artifact

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config of the stage."""
        return self.artifact.config()

    @cached_property
    def examples(self) -> pd.DataFrame:
        """One row per example: example_id, benchmark, text, member, occurrences and more.

        For a corpus, `contamination` names the corpora of its cell that share text with the
        example, apart from its copies (empty for most), and `natural_occurrences` counts its whole
        text there.
        """
        return self.artifact.table("examples.parquet")

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """One row per inserted copy: example_id, copy, document_id, sequence and more."""
        return self.artifact.table("ledger.parquet")

    def example_row(self, example_id: str) -> Any:
        """Returns the example's row.

        Raises:
            DataError: there is no example with this id.
        """
        example_ids = self.examples["example_id"]
        matching_rows = self.examples[example_ids == example_id]
        if matching_rows.empty:
            hint = (
                near_names(example_id, example_ids)
                if len(example_ids) <= 20
                else f"One is {example_ids.iloc[0]}."
            )
            folder = self.artifact.path
            raise DataError(f"example_id is {example_id!r}: {folder} has no such example. {hint}")
        return matching_rows.iloc[0]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the packed tokens."""
        return Tokenizer(str(self.tokenizer_folder))

    @property
    def tokenizer_folder(self) -> Path:
        """The tokenizer's Hugging Face folder."""
        return self.artifact.path / "tokenizer"


@dataclass(frozen=True)
class PackedCorpus(ContaminatedFolder):
    """A finished corpus folder."""

    @property
    def slug(self) -> str:
        """The beginning of the folder's original name, even if the folder was renamed."""
        return corpus_slug(self.config)

    @cached_property
    def examples(self) -> pd.DataFrame:
        """See `ContaminatedFolder`; for older folders the flags are computed from the matches."""
        examples = super().examples
        if CONTAMINATION_COLUMN in examples or CONTAMINATION_FILE not in self.artifact.files:
            return examples
        matches = self.contamination
        matches = matches.assign(occurrences=matches.get("occurrences", 0), corpus=THIS_CORPUS)
        dropped = self.config["injection"].get("decontamination") == "drop"
        return with_flags(examples, matches, dropped=dropped)

    @cached_property
    def held_out(self) -> pd.DataFrame:
        """One row per non-member beyond the examples: example_id, benchmark, text and more."""
        import pandas as pd

        if HELD_OUT_FILE not in self.artifact.files:  # an older corpus
            return pd.DataFrame(columns=["example_id", "benchmark", "text"])
        return self.artifact.table(HELD_OUT_FILE)

    @cached_property
    def contamination(self) -> pd.DataFrame:
        """One row per document and example that share text: see `contamination_table`."""
        return self.artifact.table(CONTAMINATION_FILE)

    @cached_property
    def sequences(self) -> Any:
        """The packed sequences, a `datasets.Dataset` with `input_ids` of equal length."""
        from contamination.injection.packing import open_sequences

        with errors_naming_folders(self.artifact.path):
            return open_sequences(*self.part_paths)

    @property
    def part_paths(self) -> list[Path]:
        """The files of the packed sequences, in order."""
        names = sorted(name for name in self.artifact.files if name.startswith(SEQUENCES))
        return [self.artifact.path / name for name in names]

    def iter_blocks(self) -> Iterator[Ids]:
        """Yields packed sequences in blocks of shape (n, sequence_tokens); maps no files."""
        from contamination.injection.packing import read_blocks

        return read_blocks(*self.part_paths)

    @property
    def sequence_tokens(self) -> int:
        """The number of tokens per packed sequence."""
        with errors_naming_folders(self.artifact.path):
            return len(self.sequences[0]["input_ids"])

    @property
    def window_tokens(self) -> tuple[int, int]:
        """The first token and the end (exclusive) of the window for copies in the packed corpus."""
        with errors_naming_folders(self.artifact.path):
            return InjectionConfig(**self.config["injection"]).window_tokens

    @property
    def vocabulary_size(self) -> int:
        """The vocabulary size that a model needs: the largest token id + 1."""
        return int(max(self.tokenizer.hf.get_vocab().values())) + 1


def corpus_slug(config: Mapping[str, Any]) -> str:
    """Returns the readable name of a corpus: its source, part and tokens."""
    injection = config["injection"]
    source = config["corpus"].get("name", "corpus")
    return f"{source}-{injection['part']}-{injection['budget_tokens']}"


def open_corpus(path: Path | str) -> PackedCorpus:
    """Returns a finished corpus or fine-tuning set.

    Raises:
        ArtifactError: the folder is missing or unfinished.
    """
    if is_complete(Path(path)) and read_manifest(Path(path)).get("kind") == FINETUNING_KIND:
        return FinetuningSet(open_artifact(path, FINETUNING_KIND))
    return PackedCorpus(open_artifact(path, KIND))


CONTEXT_TOKENS = 40


def describe_copies(folder: Path | str, example_id: str) -> str:
    """Returns the example's text and its copies, each between ⟦ and ⟧ and with its context.

    Raises:
        ArtifactError: the folder is not a finished corpus.
        DataError: the corpus has no such example.
    """
    corpus = open_corpus(folder)
    with errors_naming_folders(folder):
        example = corpus.example_row(example_id)
        side = "member" if example["member"] else "non-member"
        head = (
            f"{example_id}: {side} of {example['benchmark']}, {example['occurrences']} "
            f"occurrences, {example['n_tokens']} tokens"
        )
        return "\n\n".join([head, str(example["text"]), *_format_copies(corpus, example_id)])


def _format_copies(corpus: PackedCorpus, example_id: str) -> Iterator[str]:
    decode = corpus.tokenizer.decode
    for row in corpus.ledger[corpus.ledger["example_id"] == example_id].itertuples():
        ids = np.asarray(corpus.sequences[int(row.sequence)]["input_ids"])
        before = decode(ids[max(0, row.token_start - CONTEXT_TOKENS) : row.token_start])
        inside = decode(ids[row.token_start : row.token_end])
        after = decode(ids[row.token_end : row.token_end + CONTEXT_TOKENS])
        yield (
            f"── copy {row.copy}{' (reworded)' if row.reworded else ''}"
            f"{' (part)' if row.truncated else ''}: sequence {row.sequence}, tokens "
            f"{row.token_start}–{row.token_end}, in {row.document_id} at character "
            f"{row.char_offset}\n…{before}⟦{inside}⟧{after}…"
        )


FINETUNING_KIND = "finetuning"
INSTRUCTIONS_FILE = "instructions.parquet"


@dataclass(frozen=True)
class FinetuningSet(PackedCorpus):
    """A finished fine-tuning set; its examples and clean texts have the column `output_start`."""

    @property
    def slug(self) -> str:
        """The beginning of the folder's original name."""
        return finetuning_slug(self.config)

    @cached_property
    def held_out(self) -> pd.DataFrame:
        """An empty table: a fine-tuning set has no held-out examples."""
        import pandas as pd

        return pd.DataFrame(columns=["example_id", "benchmark", "text"])

    @cached_property
    def contamination(self) -> pd.DataFrame:
        """One row per clean text and example that share text: see `contamination_table`."""
        import pandas as pd

        if CONTAMINATION_FILE not in self.artifact.files:  # an older set
            return pd.DataFrame(columns=["document_id", "example_id", "corpus"])
        return self.artifact.table(CONTAMINATION_FILE)

    @cached_property
    def instructions(self) -> pd.DataFrame:
        """One row per clean text: example_id, source, text, output_start, and its position."""
        return self.artifact.table(INSTRUCTIONS_FILE)

    @cached_property
    def sequences(self) -> Any:
        """The sequences, a `datasets.Dataset` of arrays (see `injection.finetuning.layout`)."""
        from contamination.injection.packing import open_sequences

        with errors_naming_folders(self.artifact.path):
            return open_sequences(*self.part_paths).with_format("numpy")

    @property
    def window_tokens(self) -> tuple[int, int]:
        """The first token and the end (exclusive) of the window for copies: the whole set."""
        with errors_naming_folders(self.artifact.path):
            return 0, int(self.artifact.counts["tokens"])


def finetuning_slug(config: Any) -> str:
    """Returns the readable name of a fine-tuning set: its sources and their layout."""
    members = ["members"] if config["benchmark"] or config["corpus_folder"] else []
    finetuning = config["finetuning"]
    layout = finetuning["format"], finetuning["layout"]
    return "-".join([*config["instructions"], *members, *layout])


def check_not_finetuning_set(field: str, corpus: PackedCorpus) -> None:
    """Raises a ConfigError if the folder is a fine-tuning set, not a corpus."""
    if isinstance(corpus, FinetuningSet):
        raise ConfigError(
            f"{field} is {str(corpus.artifact.path)!r}: it is a fine-tuning set. Give a packed "
            "corpus, runs/corpus/…."
        )
