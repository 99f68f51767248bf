"""Weights as safetensors whose tensors are used in place in the mapped file.

Kernels load vectors of up to 64 bytes, which fault if they are not aligned to 64 bytes. So the
header is padded, and between two tensors is a padding tensor, because safetensors allows no gaps.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import numpy as np

ALIGNMENT: Final = 64
"""Bytes; loads and stores that TVM generates fault on a smaller alignment."""

_LENGTH: Final = 8
"""Bytes of the length of the header."""
_LARGEST_HEADER: Final = 100_000_000
"""Maximum bytes of a header in safetensors."""
_NAMES: Final = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8",
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64",
}  # fmt: skip
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_PADDING: Final = "/padding"
"""Suffix of the names of padding tensors."""
_CODES: Final = {name: code for code, name in _NAMES.items()}


class PlacedWeight(NamedTuple):
    """A weight in a file."""

    dtype: str
    """Name of the element type, as TVM writes it."""
    offset: int
    """Bytes from the start of the safetensors file."""
    shape: tuple[int, ...]
    """Elements."""

    @property
    def size(self) -> int:
        """Return its bytes."""
        return math.prod(self.shape) * _to_storage_dtype(self.dtype).itemsize


class Writer(Protocol):
    """A sink for the bytes of a file."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Write the next bytes. Raises OSError."""


def read_header(data: memoryview) -> dict[str, PlacedWeight]:
    """Return the weights of a safetensors file by name, in the order of their data.

    Raises ValueError for a file that is damaged.
    """
    length = int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or length > min(_LARGEST_HEADER, len(data) - _LENGTH):
        raise ValueError("its header is cut or too long")
    try:
        entries = json.loads(bytes(data[_LENGTH : _LENGTH + length]))
        entries.pop("__metadata__", None)
        sorted_entries = sorted(
            entries.items(), key=lambda item: (*item[1]["data_offsets"], item[0])
        )
        start = _LENGTH + length
        weights = {
            name: _read_entry(name, entry, start, len(data)) for name, entry in sorted_entries
        }
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a header: {error}") from None
    return {name: one for name, one in weights.items() if not _is_padding(name, one, weights)}


def _is_padding(name: str, weight: PlacedWeight, weights: Mapping[str, PlacedWeight]) -> bool:
    is_neighbour = name[: -len(_PADDING)] in weights
    return is_neighbour and name.endswith(_PADDING) and weight.size < ALIGNMENT


def _read_entry(name: str, entry: Mapping[str, Any], start: int, end: int) -> PlacedWeight:
    if entry["dtype"] not in _NAMES:
        raise ValueError(f"{name} has the unknown dtype {entry['dtype']}")
    first, last = (start + int(offset) for offset in entry["data_offsets"])
    shape = tuple(int(size) for size in entry["shape"])
    weight = PlacedWeight(_NAMES[entry["dtype"]], first, shape)
    inside = start <= first <= last <= end and min(shape, default=0) >= 0
    if not inside or last - first != weight.size:
        raise ValueError(f"it ends within {name}, or {name} has other bytes than its shape")
    return weight


def map_bytes(file: BinaryIO, start: int, size: int) -> np.ndarray[Any, Any]:
    """Map bytes of a file as a uint8 array over read-only pages that processes share.

    Later changes of the file are visible: a truncated file ends the process (SIGBUS).
    """
    if size == 0:
        return np.empty(0, np.uint8)
    lead = start % mmap.ALLOCATIONGRANULARITY
    memory = mmap.mmap(
        file.fileno(), size + lead, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ,
        offset=start - lead,
    )  # fmt: skip
    if _ADVICE is not None:
        with suppress(OSError):  # large pages, if the system has them for files
            memory.madvise(_ADVICE)
    return np.frombuffer(memory, np.uint8, size, lead)


def view_weight(data: np.ndarray[Any, Any], weight: PlacedWeight) -> np.ndarray[Any, Any]:
    """Return a weight as a view of the bytes of its file; bfloat16 as uint16.

    It is marked writable, because DLPack does not export read-only arrays. It must not be written.
    """
    part = data[weight.offset : weight.offset + weight.size]
    return np.asarray(_Exposed(part, _to_storage_dtype(weight.dtype), weight.shape))


class _Exposed:
    """An array that shares the memory of another one and keeps it alive."""

    def __init__(
        self, part: np.ndarray[Any, Any], dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self._part = part
        self.__array_interface__ = {
            "version": 3, "shape": shape, "typestr": dtype.str, "data": (part.ctypes.data, False)
        }  # fmt: skip


def write_weights(
    write: Callable[[bytes | memoryview], object],
    plan: Mapping[str, tuple[str, tuple[int, ...]]],
    read: Callable[[str], np.ndarray[Any, Any]],
) -> dict[str, PlacedWeight]:
    """Write a safetensors file with every tensor aligned; return the placed weights by name.

    `plan` has the dtype and shape of each, in the order of writing; `read` returns the array of a
    name, and `write` takes the next bytes. Raises OSError.
    """
    header, placed_weights = _lay_out(plan)
    write(header)
    for name, weight in placed_weights.items():
        array = np.ascontiguousarray(read(name))
        write(array.reshape(-1).view(np.uint8).data)
        write(bytes(-weight.size % ALIGNMENT))
    return placed_weights


def _lay_out(
    plan: Mapping[str, tuple[str, tuple[int, ...]]],
) -> tuple[bytes, dict[str, PlacedWeight]]:
    """Return the header of an aligned file, and the placed weights."""
    entries: dict[str, object] = {}
    relative = {}
    at = 0
    for name, (dtype, shape) in plan.items():
        relative[name] = weight = PlacedWeight(dtype, at, shape)
        entries[name] = _build_header_entry(_CODES[dtype], shape, at, weight.size)
        at += weight.size
        if gap := -at % ALIGNMENT:
            entries[f"{name}{_PADDING}"] = _build_header_entry("U8", (gap,), at, gap)
            at += gap
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + _LENGTH) % ALIGNMENT)
    start = _LENGTH + len(text)
    placed_weights = {
        name: one._replace(offset=start + one.offset) for name, one in relative.items()
    }
    return len(text).to_bytes(_LENGTH, "little") + text, placed_weights


def _build_header_entry(code: str, shape: tuple[int, ...], at: int, size: int) -> dict[str, object]:
    return {"dtype": code, "shape": shape, "data_offsets": [at, at + size]}


def widen_weights(
    data: np.ndarray[Any, Any], halves: Collection[str], out: Writer
) -> dict[str, PlacedWeight]:
    """Write weights aligned, and convert those of `halves` from float16 to float32.

    Raises ValueError if the data is damaged, OSError.
    """
    stored_weights = read_header(data.data)
    for name in halves:
        if name not in stored_weights or stored_weights[name].dtype != "float16":
            raise ValueError(f"{name} is not float16")
    plan = {
        name: ("float32" if name in halves else one.dtype, one.shape)
        for name, one in stored_weights.items()
    }

    def read(name: str) -> np.ndarray[Any, Any]:
        array = view_weight(data, stored_weights[name])
        return array.astype(np.float32) if name in halves else array

    return write_weights(out.write, plan, read)


def are_aligned(weights: Mapping[str, PlacedWeight]) -> bool:
    """Return whether all weights are aligned."""
    return all(one.offset % ALIGNMENT == 0 for one in weights.values())


def _to_storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype that stores a type: uint16 for bfloat16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)
