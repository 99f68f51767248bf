"""Weights of an exported folder: safetensors whose tensors can be used where the file is mapped.

Kernels load vectors of up to 64 bytes, which fault elsewhere than at multiples of 64. So the
header is padded, and between two tensors stands a tensor of bytes that nothing names; safetensors
allows no gaps.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from autopipe.compiler.library.loaded_model import ALIGNMENT
from autopipe.errors import PackageError

_LENGTH: Final = 8
"""Bytes of the number that states how long the header is."""
_LARGEST_HEADER: Final = 100_000_000
"""Bytes of a header, which safetensors itself takes."""
_DTYPES: Final = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8",
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlacedWeight:
    """A weight in the file."""

    dtype: str
    """Name of the element type, as TVM writes it."""
    offset: int
    """Bytes from the start of the file; a multiple of `ALIGNMENT`."""
    shape: tuple[int, ...]
    """Elements."""


def align(source: Path, out: Path, halves: frozenset[str]) -> dict[str, PlacedWeight]:
    """Write a safetensors file with every tensor aligned; return where each lies, by name.

    Those of `halves` are float16 in the source and become float32, as the library takes them.
    Raises PackageError if the source is damaged.
    """
    with source.open("rb") as file:
        start, entries = _read_header(file)
        for name in halves:
            if entries.get(name, {}).get("dtype") != "F16":
                raise PackageError(f"{source.name}: {name} is not float16")
        header, base = _layout(entries, halves)
        placed = {}
        with out.open("wb") as to:
            to.write(header)
            for name, entry in entries.items():
                _pad(to, base)
                begin, end = entry["data_offsets"]
                file.seek(start + begin)
                data = file.read(end - begin)
                if len(data) != end - begin:
                    raise PackageError(f"{source.name}: it ends within {name}")
                if name in halves:
                    data = np.frombuffer(data, np.float16).astype(np.float32).tobytes()
                dtype = "float32" if name in halves else _DTYPES[entry["dtype"]]
                placed[name] = PlacedWeight(dtype, to.tell(), tuple(entry["shape"]))
                to.write(data)
            _pad(to, base)
    return placed


def _pad(to: BinaryIO, base: int) -> None:
    to.write(bytes(-(to.tell() - base) % ALIGNMENT))


def _read_header(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """Return where the data begins, and the entries in the order of their data."""
    length = int.from_bytes(file.read(_LENGTH), "little")
    if length > _LARGEST_HEADER:
        raise PackageError("weights.safetensors: its header is too long")
    try:
        entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        ordered = sorted(entries.items(), key=lambda item: (*item[1]["data_offsets"], item[0]))
        if unknown := {entry["dtype"] for _, entry in ordered} - _DTYPES.keys():
            raise PackageError(f"weights.safetensors: unknown dtypes {', '.join(sorted(unknown))}")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise PackageError(f"weights.safetensors: not a header: {error}") from None
    return _LENGTH + length, dict(ordered)


def _layout(entries: Mapping[str, Any], halves: frozenset[str]) -> tuple[bytes, int]:
    """Return the header of the aligned file, and where its data begins."""
    stated: dict[str, object] = {}
    at = 0
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        wide = name in halves
        size = (end - begin) * (2 if wide else 1)
        stated[name] = {
            "dtype": "F32" if wide else entry["dtype"],
            "shape": entry["shape"],
            "data_offsets": [at, at + size],
        }
        at += size
        if gap := -at % ALIGNMENT:
            stated[f"{name}/padding"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [at, at + gap],
            }
            at += gap
    text = json.dumps(stated, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + _LENGTH) % ALIGNMENT)
    return len(text).to_bytes(_LENGTH, "little") + text, _LENGTH + len(text)
