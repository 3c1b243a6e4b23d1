"""OLMo-core's own reading: every instance in order, and packed by its metadata, and its order.

python read_olmo.py FILE SEQUENCE_LENGTH VOCABULARY WORK_FOLDER OUT.npz
"""

import sys

import numpy as np
from olmo_core.data import NumpyFSLDatasetConfig, NumpyPackedFSLDatasetConfig, TokenizerConfig

if __name__ == "__main__" and len(sys.argv) > 1:
    file, length, vocabulary, work, out = sys.argv[1:]
    tokenizer = TokenizerConfig(vocab_size=int(vocabulary), eos_token_id=2, pad_token_id=0)
    shared = {
        "paths": [file], "sequence_length": int(length), "tokenizer": tokenizer, "work_dir": work
    }  # fmt: skip
    instances = NumpyFSLDatasetConfig(**shared).build()
    packed = NumpyPackedFSLDatasetConfig(**shared, use_array_if_local=False).build()
    packed.prepare()
    print(instances.dtype)
    np.savez(
        out,
        instances=np.stack([instances[i]["input_ids"].numpy() for i in range(len(instances))]),
        packed=np.stack([packed[i]["input_ids"].numpy() for i in range(len(packed))]),
    )
