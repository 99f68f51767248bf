"""Weights are aligned in files that stay safetensors, and are used where these are mapped."""

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from autopipe.compiler import module_io
from autopipe.compiler.library.model_instances import ModelInstances
from autopipe.compiler.library.runtime import LoadedModel, map_weights
from autopipe.packaging.open import open_package
from autopipe.runtime.weights import (
    are_aligned,
    map_bytes,
    read_header,
    view_weight,
    widen_weights,
)
from tests.support.table import each_row

ARRAYS = {
    "d": np.full((), 7.0), "a": np.arange(3, dtype="int8"), "b": np.ones((2, 5), "float16"),
    "c": np.zeros((0, 4), "float32"), "e": np.full((3,), 1.5, ml_dtypes.bfloat16),
    "f": np.arange(33, dtype="float32").reshape(3, 11).T,
}  # fmt: skip


def test_aligned_weights_are_safetensors_and_views_of_the_file(tmp_path):
    path = tmp_path / "w"
    module_io.save_aligned_weights(ARRAYS, path)
    data = map_weights(path)
    placed = read_header(data.data)
    assert list(placed) == list(ARRAYS), "in the order in which they are written"
    assert are_aligned(placed)
    loaded = load_file(path)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)
        view = view_weight(data, placed[name])
        assert (view.shape, placed[name].dtype) == (array.shape, array.dtype.name)
        assert view.tobytes() == array.tobytes()
        assert view.size == 0 or view.ctypes.data == data.ctypes.data + placed[name].offset
    module_io.save_aligned_weights(ARRAYS, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_weights_that_are_not_aligned_or_float16_are_rewritten(tmp_path):
    arrays = {name: np.array(array, order="C") for name, array in ARRAYS.items() if name != "e"}
    save_file(arrays, tmp_path / "source")
    source = map_weights(tmp_path / "source")
    assert not are_aligned(read_header(source.data))
    with (tmp_path / "out").open("wb") as out:
        placed = widen_weights(source, {"b"}, out)
        with pytest.raises(ValueError, match="a is not float16"):
            widen_weights(source, {"a"}, out)
    assert are_aligned(placed)
    for name, array in load_file(tmp_path / "out").items():
        if name in arrays:
            wanted = arrays[name].astype("float32") if name == "b" else arrays[name]
            np.testing.assert_array_equal(array, wanted)
            assert placed[name].dtype == wanted.dtype.name


def test_a_mapping_starts_anywhere_and_may_be_empty(tmp_path):
    path = tmp_path / "bytes"
    content = bytes(range(256)) * 64
    path.write_bytes(content)
    with path.open("rb") as file:
        for start, size in ((0, 16384), (512, 1000), (4096, 1), (5000, 11384), (7, 0)):
            assert map_bytes(file, start, size).tobytes() == content[start : start + size]


def header(text, data=b""):
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    document = {"w": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}
    return header(json.dumps(document).encode(), bytes(8))


@each_row(
    "content, reason",
    [
        (b"", "cut or too long"),
        (b"1234567", "cut or too long"),
        ((1 << 62).to_bytes(8, "little"), "cut or too long"),
        (header(b"[1]"), "not a header"),
        (header(b"\xff"), "can't decode"),
        (header(b"[" * 90000), "not a header"),
        (header(b'{"w": 1}'), "not a header"),
        (entry(dtype="F8"), "unknown dtype"),
        (entry(offsets=(0, 9)), "ends within w"),
        (entry(offsets=(4, 12)), "ends within w"),
        (entry(offsets=(-8, 0)), "ends within w"),
        (entry(offsets=(8, 0)), "ends within w"),
        (entry(shape=(3,)), "ends within w"),
        (entry(shape=(-1, -2)), "ends within w"),
        (entry(shape=(1 << 62, 1 << 62)), "ends within w"),
    ],
)
def test_a_damaged_header_is_one_line(content, reason):
    with pytest.raises(ValueError, match=re.escape(reason)) as raised:
        read_header(memoryview(content))
    assert "\n" not in str(raised.value)


def mapped_ranges(path):
    """The addresses at which a file is mapped without being written."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    parts = [line.split() for line in lines if line.endswith(str(path))]
    assert {part[1] for part in parts} <= {"r--p"}
    return [tuple(int(end, 16) for end in part[0].split("-")) for part in parts]


@pytest.mark.parametrize("copies", [False, True])
def test_instances_read_weights_where_the_package_is_mapped(package, copies):
    model = open_package(package, instances=2, threads=1, copy_weights=copies)
    assert isinstance(model, ModelInstances)
    instances = [one for one in model._instances if isinstance(one, LoadedModel)]
    weights = [one._arguments[len(one.signature.inputs) :] for one in instances]
    places = [[tensor.data_ptr() for tensor in each] for each in weights]
    assert places[0] == places[1]
    assert places[0]
    ranges = mapped_ranges(package)
    assert all(any(a <= at < b for a, b in ranges) != copies for at in places[0])
    model.close()
    del model, instances, weights
    assert not mapped_ranges(package)
