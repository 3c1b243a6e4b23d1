"""megatron-core's own reading: every document, and every sample of one epoch with its document.

python read_megatron.py PREFIX SEQUENCE_LENGTH CACHE OUT.npz
"""

import sys
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split

if len(sys.argv) > 1:
    prefix, length, cache, out = sys.argv[1:]
    documents = IndexedDataset(prefix)
    tokenizer = SimpleNamespace(
        eod=0, pad=-1, vocab_size=None, unique_identifiers=OrderedDict(name="toy")
    )
    config = GPTDatasetConfig(
        random_seed=7, sequence_length=int(length), tokenizer=tokenizer, path_to_cache=cache,
        reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
        create_attention_mask=False, split="1",
    )  # fmt: skip
    whole = np.arange(len(documents), dtype=np.int32)
    samples = GPTDataset(documents, prefix, whole, None, Split.train, config)
    order = samples.document_index[samples.shuffle_index]
    np.savez(
        out,
        documents=np.stack([documents[i] for i in range(len(documents))]).astype(np.int64),
        ends=documents.document_indices,
        samples=np.stack([samples[i]["tokens"].numpy() for i in range(len(samples))]),
        order=order,
    )
