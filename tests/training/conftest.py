"""A small corpus and fine-tuning sets that need no data package; a tiny model trained on it."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contamination.core.artifacts import WrittenFiles, build_or_open
from contamination.injection.config import TokenizerConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.finetuning.config import (
    FinetuningConfig,
    FinetuningStage,
    InstructionsConfig,
)
from contamination.injection.finetuning.run import run as make
from contamination.injection.packing import LEDGER_COLUMNS
from contamination.injection.token_stream import Tokenizer
from contamination.training.config import ModelConfig, TrainingConfig, TrainingStage, WandbConfig

WIDTH, SEQUENCES = 32, 45
TARGET, TEXTS = "tests/golden/target", 23


@dataclass(frozen=True)
class CorpusConfig:
    """As far as training reads it."""

    corpus: dict[str, str] = field(default_factory=lambda: {"name": "toy"})
    injection: dict[str, Any] = field(
        default_factory=lambda: {"part": "study", "budget_tokens": SEQUENCES * WIDTH}
    )


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory):
    import pyarrow as pa

    from contamination.injection.packing import PART_NAME

    part = PART_NAME.format(0)
    rng = np.random.default_rng(0)
    ids = rng.integers(3, 200, size=(SEQUENCES, WIDTH)).astype(np.int32)

    def make(folder):
        (folder / part).parent.mkdir(parents=True)
        schema = pa.schema([("input_ids", pa.list_(pa.int32(), WIDTH))])
        column = pa.FixedSizeListArray.from_arrays(pa.array(ids.ravel()), WIDTH)
        with pa.OSFile(str(folder / part), "wb") as sink, pa.ipc.new_stream(sink, schema) as out:
            out.write_batch(pa.record_batch([column], schema=schema))
        ledger = pd.DataFrame(0, index=range(3), columns=list(LEDGER_COLUMNS))
        ledger["sequence"] = [0, 7, 44]
        ledger["reworded"] = None
        ledger.to_parquet(folder / "ledger.parquet", index=False)
        texts = [f"The bridge number {i} crosses a river that has no name. " * i for i in range(6)]
        numbers = [3, 0, 5, 4, 2, 1]  # texts by length; 0 is empty, the longest are over a sequence
        examples = {
            "example_id": [f"e{n}" for n in numbers], "text": [texts[n] for n in numbers],
            "member": [n % 2 == 0 for n in numbers],
        }  # fmt: skip
        pd.DataFrame(examples).to_parquet(folder / "examples.parquet")
        Tokenizer("tests/golden/target").hf.save_pretrained(folder / "tokenizer")
        return WrittenFiles([part, "ledger.parquet", "tokenizer/tokenizer.json"])

    return build_or_open(
        tmp_path_factory.mktemp("runs") / "corpus" / "toy-000000000000", CorpusConfig(), {}, make
    ).path


@pytest.fixture(scope="session")
def toy_stage(corpus_folder):
    """A training of 12 steps; it lacks its runs folder."""
    return TrainingStage(
        corpus_folder=str(corpus_folder),
        model=ModelConfig(
            name="toy",
            architecture={
                "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
            },
        ),
        training=TrainingConfig(
            learning_rate=1e-2, batch_sequences=4, micro_batch_sequences=2, warmup_steps=2,
            checkpoint_every_steps=3,
        ),
        wandb=WandbConfig(mode="disabled"),
    )  # fmt: skip


@pytest.fixture
def stage(toy_stage, tmp_path):
    return replace(toy_stage, runs=str(tmp_path))


@pytest.fixture
def change(stage):
    """The stage with some fields of its training node changed."""
    return lambda **fields: replace(stage, training=replace(stage.training, **fields))


def rows(count):
    """Prompts and outputs of many lengths."""
    rng = np.random.default_rng(0)
    words = ["river", "heron", "ladder", "rain", "road", "wall", "bridge", "day", "seven"]
    said = [" ".join(rng.choice(words, size=n)) for n in rng.integers(1, 12, size=2 * count)]
    return [{"prompt": f"{n} {a}?", "output": b}
            for n, (a, b) in enumerate(zip(said[:count], said[count:], strict=True))]  # fmt: skip


@pytest.fixture(scope="session")
def sets(tmp_path_factory):
    """Prompts with outputs, the same texts in both layouts."""
    folder = tmp_path_factory.mktemp("sets")
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows(TEXTS))))
    source = {
        "_target_": "contamination.data.readers.files.FileRows",
        "path": str(folder / "rows.jsonl"),
    }
    fields = {"prompt": "{prompt}", "output": "{output}"}
    mine = InstructionsConfig(template="{prompt}\n{output}", rows=source, fields=fields)
    stage = FinetuningStage(
        runs=str(folder), instructions={"mine": mine}, tokenizer=TokenizerConfig(path=TARGET)
    )
    return {
        layout: open_corpus(
            make(
                replace(stage, finetuning=FinetuningConfig(layout=layout, sequence_tokens=96))
            ).path
        )
        for layout in ("packed", "padded")
    }
