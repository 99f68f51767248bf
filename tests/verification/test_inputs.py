from itertools import product

import numpy as np
import pytest

from autopipe.artifacts.signature import Port
from autopipe.verification.inputs import Case, cases, nudged
from tests.support.table import each_row

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]


def drawn(dtype, limits=None, shape=(4, 50), seed=0):
    port = Port(name="x", shape=shape, dtype=dtype)
    return {case.name: case for case in cases([port], limits or {}, count=3, seed=seed)}


def values(case):
    return case.arrays["x"]


@each_row("dtype, shape", product(DTYPES, [(), (0,), (2, 3)]))
def test_every_case_has_the_shape_and_dtype_of_the_port(dtype, shape):
    for case in drawn(dtype, shape=shape).values():
        assert (values(case).shape, values(case).dtype) == (shape, np.dtype(dtype))


def test_the_same_seed_gives_the_same_inputs_and_others_differ():
    first, again, other = drawn("float32"), drawn("float32"), drawn("float32", seed=1)
    assert all(np.array_equal(values(first[name]), values(again[name])) for name in first)
    assert not np.array_equal(values(first["random-0"]), values(other["random-0"]))
    assert not np.array_equal(values(first["random-0"]), values(first["random-1"]))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_floats_meet_their_edges_and_stay_finite_and_normal(dtype):
    found = drawn(dtype)
    assert list(found) == [
        "random-0", "random-1", "random-2", "zeros", "ones", "large", "small", "negative",
    ]  # fmt: skip
    assert [name for name in found if not found[name].edge] == list(found)[:3]
    assert not values(found["zeros"]).any()
    assert (values(found["ones"]) == 1).all()
    assert 50 < np.abs(values(found["large"])).max() < 1000
    assert 0 < np.abs(values(found["small"])).max() < 0.01
    assert (values(found["negative"]) <= 0).all()
    for case in found.values():
        array = np.abs(values(case).astype("float32"))
        assert np.isfinite(array).all()
        assert (array[array > 0] >= np.finfo("float32").smallest_normal).all()


def test_an_input_that_selects_stays_in_its_table():
    for case in drawn("int64", {"x": 5}).values():
        assert ((values(case) >= 0) & (values(case) < 5)).all()
    assert values(drawn("int64", {"x": 5})["large"]).max() == 4
    assert all(not values(case).any() for case in drawn("int64", {"x": 1}).values())


def test_bytes_use_their_whole_range():
    assert values(drawn("int8", shape=(5000,))["random-0"]).min() == -128
    assert values(drawn("uint8")["large"]).min() == 255
    assert set(np.unique(values(drawn("bool")["random-0"]))) == {False, True}


def test_a_nudge_moves_each_float_by_a_rounding_and_leaves_integers():
    case = Case("large", edge=True, arrays={"x": np.full(100, 3.0, "f"), "i": np.arange(4)})
    moved = nudged(case, seed=0).arrays
    step = np.abs(moved["x"] - np.float32(3.0))
    assert (step > 0).all()
    assert (step < 3 * 3e-7).all()
    assert (moved["i"] == np.arange(4)).all()
