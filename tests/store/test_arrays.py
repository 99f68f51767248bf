"""Files of arrays are those that safetensors writes, byte for byte."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from autopipe.host import copy_file
from autopipe.store import arrays

DTYPES = [
    "bool", "uint8", "int8", "int16", "uint16", "float16", "int32", "uint32", "float32", "float64",
    "int64", "uint64",
]  # fmt: skip
ALL = {f"{place % 5}{dtype}": np.arange(7).astype(dtype) for place, dtype in enumerate(DTYPES)} | {
    "3half": np.arange(7).astype(ml_dtypes.bfloat16)
}


@pytest.mark.parametrize(
    "named",
    [
        {},
        ALL,
        {"b": np.arange(6, dtype="f").reshape(2, 3).T.copy(), "a": np.float32(3), "": np.zeros(1)},
        {"none": np.zeros((3, 0), np.float32), "after": np.arange(3)},
        {'quoted "\\/\n\x01\x7f': np.zeros(1), "\u00e4\u6a21\U0001f680": np.ones(2)},
        {"same": np.zeros(2, np.int8), "sam": np.ones(1, np.int8)},
    ],
)
def test_the_bytes_are_those_of_safetensors(tmp_path, named):
    arrays.save(named, tmp_path / "ours")
    save_file({name: np.asarray(array) for name, array in named.items()}, tmp_path / "theirs")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_arrays_in_another_order_in_memory_are_written_in_theirs(tmp_path):
    turned = {"a": np.arange(6, dtype=">i4").reshape(2, 3).T}
    arrays.save(turned, tmp_path / "ours")
    assert np.array_equal(load_file(tmp_path / "ours")["a"], turned["a"])


def test_the_bytes_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "STRETCH", 8)
    monkeypatch.setattr(copy_file, "MIB", 1)
    counts = []

    def begin(total):
        counts.append(total)
        return counts.append

    arrays.save({"a": np.arange(5, dtype="f")}, tmp_path / "ours", begin)
    assert counts == [20, 8, 8, 4]
