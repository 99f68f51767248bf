"""Weights of several libraries: what two of them want alike is kept once."""

import numpy as np

from autopipe.building.weight_pool import WeightPool
from autopipe.compiler.module_io import save_aligned_weights
from autopipe.compiler.step_counter import count_with
from autopipe.host import copy_file


def test_later_libraries_share_what_is_there():
    pool = WeightPool()
    ones, twos = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    assert pool.add([ones, twos, ones]) == ("w00000", "w00001", "w00002")
    assert pool.add([twos.copy(), np.zeros(1), ones]) == ("w00001", "w00003", "w00000")
    assert list(pool.arrays) == ["w00000", "w00001", "w00002", "w00003"]


def test_the_same_bytes_of_another_shape_or_type_are_another_weight():
    pool = WeightPool()
    values = np.arange(6, dtype="int32")
    pool.add([values])
    others = [values.reshape(2, 3), values.view("float32"), values.reshape(3, 2).T.reshape(2, 3)]
    assert len(set(pool.add(others)) | {"w00000"}) == 3 + 1


def test_order_in_memory_does_not_matter():
    pool = WeightPool()
    values = np.arange(6.0).reshape(2, 3)
    pool.add([values])
    assert pool.add([np.asfortranarray(values)]) == ("w00000",)


def test_the_bytes_of_packed_weights_are_counted_while_they_are_digested_and_written(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(copy_file, "MIB", 1)
    counts = []
    pool = WeightPool()
    with count_with(lambda message, total, **_: lambda done: counts.append((message, done, total))):
        pool.add([np.ones(16, "float32"), np.zeros(16, "float32")])
        save_aligned_weights(pool.arrays, tmp_path / "weights")
    assert counts[:2] == [("weights digested", 0, 2), ("weights digested", 1, 2)]
    written = [done for message, done, _ in counts if message == "MiB of weights written"]
    assert written == sorted(written)
    assert written[-1] >= 128
