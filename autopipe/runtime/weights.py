"""Weights as safetensors whose tensors are used where the file is mapped.

Kernels load vectors of up to 64 bytes, which fault elsewhere than at multiples of 64. So the
header is padded, and between two tensors stands a tensor of bytes that nothing names; safetensors
allows no gaps.
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
"""Bytes; TVM compiles loads and stores that fault on anything less."""

_LENGTH: Final = 8
"""Bytes of the number that states how long the header is."""
_LARGEST_HEADER: Final = 100_000_000
"""Bytes of a header, which safetensors itself takes."""
_NAMES: Final = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8",
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64",
}  # fmt: skip
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_PADDING: Final = "/padding"
"""How the names of tensors end that only fill gaps."""
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
    """Takes the bytes of a file, one part after the other."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Take the next bytes. Raises OSError."""


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
        ordered = sorted(entries.items(), key=lambda item: (*item[1]["data_offsets"], item[0]))
        start = _LENGTH + length
        placed = {name: _read_entry(name, entry, start, len(data)) for name, entry in ordered}
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a header: {error}") from None
    return {name: one for name, one in placed.items() if not _is_padding(name, one, placed)}


def _is_padding(name: str, weight: PlacedWeight, placed: Mapping[str, PlacedWeight]) -> bool:
    padded = name[: -len(_PADDING)] in placed
    return padded and name.endswith(_PADDING) and weight.size < ALIGNMENT


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
    """Return bytes of a file as an array of uint8 over read-only pages that processes share.

    It reads what the file holds at that moment: a file that is cut ends the process (SIGBUS).
    """
    if size == 0:
        return np.empty(0, np.uint8)
    skipped = start % mmap.ALLOCATIONGRANULARITY
    memory = mmap.mmap(
        file.fileno(), size + skipped, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ,
        offset=start - skipped,
    )  # fmt: skip
    if _ADVICE is not None:
        with suppress(OSError):  # large pages, if the system has such of files
            memory.madvise(_ADVICE)
    return np.frombuffer(memory, np.uint8, size, skipped)


def view_weight(data: np.ndarray[Any, Any], weight: PlacedWeight) -> np.ndarray[Any, Any]:
    """Return a weight as an array over the bytes of its file; bfloat16 as uint16.

    NumPy takes it for writable, as DLPack does not pass on what is not. It must not be written.
    """
    part = data[weight.offset : weight.offset + weight.size]
    return np.asarray(_Exposed(part, _to_storage_dtype(weight.dtype), weight.shape))


class _Exposed:
    """An array that keeps another one, whose memory it uses, alive."""

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
    """Write a safetensors file with every tensor aligned; return where each lies, by name.

    `plan` has the dtype and shape of each, in the order in which they are written; `read` returns
    the array of a name, and `write` takes the bytes one part after the other. Raises OSError.
    """
    header, placed = _lay_out(plan)
    write(header)
    for name, weight in placed.items():
        array = np.ascontiguousarray(read(name))
        write(array.reshape(-1).view(np.uint8).data)
        write(bytes(-weight.size % ALIGNMENT))
    return placed


def _lay_out(
    plan: Mapping[str, tuple[str, tuple[int, ...]]],
) -> tuple[bytes, dict[str, PlacedWeight]]:
    """Return the header of an aligned file, and where each weight lies."""
    stated: dict[str, object] = {}
    relative = {}
    at = 0
    for name, (dtype, shape) in plan.items():
        relative[name] = weight = PlacedWeight(dtype, at, shape)
        stated[name] = _build_header_entry(_CODES[dtype], shape, at, weight.size)
        at += weight.size
        if gap := -at % ALIGNMENT:
            stated[f"{name}{_PADDING}"] = _build_header_entry("U8", (gap,), at, gap)
            at += gap
    text = json.dumps(stated, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + _LENGTH) % ALIGNMENT)
    start = _LENGTH + len(text)
    placed = {name: one._replace(offset=start + one.offset) for name, one in relative.items()}
    return len(text).to_bytes(_LENGTH, "little") + text, placed


def _build_header_entry(code: str, shape: tuple[int, ...], at: int, size: int) -> dict[str, object]:
    return {"dtype": code, "shape": shape, "data_offsets": [at, at + size]}


def widen_weights(
    data: np.ndarray[Any, Any], halves: Collection[str], out: Writer
) -> dict[str, PlacedWeight]:
    """Write weights aligned, and those of `halves`, which are float16, as float32.

    Raises ValueError if the data is damaged, OSError.
    """
    stored = read_header(data.data)
    for name in halves:
        if name not in stored or stored[name].dtype != "float16":
            raise ValueError(f"{name} is not float16")
    plan = {
        name: ("float32" if name in halves else one.dtype, one.shape)
        for name, one in stored.items()
    }

    def read(name: str) -> np.ndarray[Any, Any]:
        array = view_weight(data, stored[name])
        return array.astype(np.float32) if name in halves else array

    return write_weights(out.write, plan, read)


def are_aligned(weights: Mapping[str, PlacedWeight]) -> bool:
    """Return whether all weights can be used where they are."""
    return all(one.offset % ALIGNMENT == 0 for one in weights.values())


def _to_storage_dtype(dtype: str) -> np.dtype[Any]:
    """Return how NumPy holds elements of a type."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)
