"""Named arrays as files of safetensors."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe.host.copy_file import STRETCH, CountBytes, count_nothing

if TYPE_CHECKING:
    import numpy as np

_CODES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16",
    "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "float64": "F64",
    "int64": "I64", "uint64": "U64",
}  # fmt: skip
"""Dtypes by name, in the order of safetensors, which writes the last of them first."""
_ALIGNMENT: Final = 8
"""Bytes to which the header is padded."""


def save(arrays: "Mapping[str, np.ndarray]", path: Path, count: CountBytes = count_nothing) -> None:
    """Write arrays under their names, with the bytes that safetensors itself would write.

    That would not count them. Raises OSError.
    """
    import numpy as np

    ranks = {dtype: rank for rank, dtype in enumerate(_CODES)}
    names = sorted(arrays, key=lambda name: (-ranks[arrays[name].dtype.name], name))
    header, size = {}, 0
    for name in names:
        array = arrays[name]
        places = [size, size + array.nbytes]
        code = _CODES[array.dtype.name]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": places}
        size += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    report = count(size)
    try:
        with path.open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                array = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
                data = array.reshape(-1).view(np.uint8).data
                for start in range(0, len(data), STRETCH):
                    out.write(part := data[start : start + STRETCH])
                    report(len(part))
    except OSError as error:
        error.filename = os.fspath(path)  # an error of a write has none
        raise
