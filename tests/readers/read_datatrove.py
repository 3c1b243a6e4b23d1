"""datatrove's own reading, which nanotron calls: every window, and the places in its documents.

python read_datatrove.py FOLDER SEQ_LEN TOKEN_SIZE OUT.npz
"""

import sys

import numpy as np
from datatrove.utils.dataset import DatatroveFolderDataset

if len(sys.argv) > 1:
    folder, length, size, out = sys.argv[1:]
    windows = DatatroveFolderDataset(
        folder, int(length), token_size=int(size), return_positions=True
    )
    items = [windows[i] for i in range(len(windows))]
    names = {"windows": "input_ids", "positions": "positions"}
    np.savez(
        out, **{key: np.stack([item[n].numpy() for item in items]) for key, n in names.items()}
    )
