"""A hash of a model's weights alone, the same however the files are named, divided or annotated.

The order and the names of the tensors do not count, nor does a tensor that is stored twice, such as
tied embeddings. Weights in another dtype are other weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from contamination.core.stored_files import parse_json

BLOCK_BYTES = 1 << 20
MAX_HEADER_BYTES = 10**8  # the limit of the format


@dataclass(frozen=True)
class Tensor:
    """A tensor that need not be in memory.

    Attributes:
        dtype: as safetensors calls it, such as F32.
        shape: the sizes of its dimensions.
        size: the number of its bytes.
        blocks: yields its bytes.
    """

    dtype: str
    shape: Sequence[int]
    size: int
    blocks: Callable[[], Iterable[bytes]]

    @property
    def digest(self) -> str:
        """The SHA-256 of dtype, shape and bytes."""
        sha256 = hashlib.sha256(f"{self.dtype} {tuple(self.shape)}\n".encode())
        for block in self.blocks():
            sha256.update(block)
        return sha256.hexdigest()


def tensors_digest(tensors: Iterable[Tensor]) -> str:
    """Returns the SHA-256 of the set of tensors."""
    digests = sorted({tensor.digest for tensor in tensors})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def stored_tensors(folder: Path) -> list[Tensor]:
    """Returns the tensors of a folder's safetensors files; none if they can't be read."""
    try:
        files = sorted(folder.glob("*.safetensors"))
        return [tensor for file in files for tensor in _tensors_of_file(file)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # whoever loads the weights reports the problem


def _tensors_of_file(file: Path) -> Iterator[Tensor]:
    with file.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        if header_bytes > MAX_HEADER_BYTES:
            raise ValueError("the header is too long")
        header: dict[str, Any] = parse_json(stream.read(header_bytes).decode())
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = map(int, entry["data_offsets"])
            offset = 8 + header_bytes + start
            yield Tensor(
                str(entry["dtype"]), [int(length) for length in entry["shape"]], end - start,
                partial(_read_blocks, file, offset, end - start),
            )  # fmt: skip


def _read_blocks(file: Path, offset: int, size: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        stream.seek(offset)
        while size > 0 and (block := stream.read(min(size, BLOCK_BYTES))):
            size -= len(block)
            yield block


def loaded_tensors(state: Iterable[Any]) -> list[Tensor]:
    """Returns torch's tensors, each storage once."""
    by_place = {(t.data_ptr(), tuple(t.shape)): t for t in state}
    return [
        Tensor(
            _DTYPES.get(str(t.dtype), str(t.dtype)), tuple(t.shape), t.numel() * t.element_size(),
            partial(_iter_bytes, t),
        )
        for t in by_place.values()
    ]  # fmt: skip


_DTYPES = {"torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16"}
_DTYPES |= {"torch.float64": "F64", "torch.int64": "I64", "torch.uint8": "U8", "torch.int8": "I8"}


def _iter_bytes(tensor: Any) -> Iterator[bytes]:
    import torch

    flat = tensor.detach().cpu().contiguous().flatten()
    yield flat.view(torch.uint8).numpy().tobytes()
