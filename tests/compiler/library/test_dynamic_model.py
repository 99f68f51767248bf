"""Dispatch by size, on functions in the place of libraries: which runs, with what, and what not."""

import numpy as np
import pytest

from autopipe.artifacts.signature import LIBRARY, Port, Signature, SizedLibrary
from autopipe.compiler.library import open_model, runtime
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.open_model import OpenModel
from autopipe.compiler.library.ports import solve_sizes
from autopipe.config.dimension import Dimension
from autopipe.errors import ConfigError
from tests.support.table import each_row

BATCH, HEIGHT = Dimension(max=8, likely=(4,)), Dimension(min=2, max=16, multiple=2, likely=(6,))
X = Port(name="x", shape=(-1, 3, -1), dtype="float32", dimensions=("batch", "", "height"))
MASK = Port(name="mask", shape=(-1, 1), dtype="int64", dimensions=("batch", ""))
LIKELY = {"batch": 4, "height": 6}
SIGNATURE = Signature(
    inputs=(X, MASK), outputs=(Port(name="y", shape=(-1, 3, -1), dtype="float32"),),
    weights=(), threads=1, dimensions={"batch": BATCH, "height": HEIGHT},
    entries=(SizedLibrary(library="lib.0.so", sizes=LIKELY, weights=()),),
)  # fmt: skip


@pytest.fixture
def called():
    return []


@pytest.fixture
def model(called):
    """A model that returns its first input, and tells which library ran and with which steps."""
    runtime._load_runtime()

    def main(library):
        def run(x, _, steps):
            called.append((library, tuple(steps)))
            return x

        return run

    names = (LIBRARY, "lib.0.so")
    return OpenModel(
        SIGNATURE,
        {name: {"main": main(name)} for name in names},
        dict.fromkeys(names, ()),
        KernelThreads(1),
    )


def arrays(batch, height, mask=None):
    generator = np.random.default_rng(batch * 100 + height)
    x = generator.standard_normal((batch, 3, height)).astype("float32")
    return {"x": x, "mask": np.ones((mask or batch, 1), "int64")}


def test_likely_sizes_have_their_own_library_and_all_others_share_one(model, called):
    for batch, height in ((4, 6), (4, 8), (1, 2), (8, 16), (4, 6)):
        given = arrays(batch, height)
        np.testing.assert_array_equal(model(given)["y"], given["x"])
    assert called == [
        ("lib.0.so", (4, 3)), (LIBRARY, (4, 4)), (LIBRARY, (1, 1)), (LIBRARY, (8, 8)),
        ("lib.0.so", (4, 3)),
    ]  # fmt: skip


def test_the_library_for_every_size_can_be_asked_at_likely_ones(model, called):
    given = arrays(4, 6)
    np.testing.assert_array_equal(model(given, generic=True)["y"], given["x"])
    np.testing.assert_array_equal(model(given)["y"], given["x"])
    assert [library for library, _ in called] == [LIBRARY, "lib.0.so"]


def test_buffers_of_few_sizes_are_kept(model):
    for _ in range(3):
        for batch in range(1, 9):
            for height in range(2, 17, 2):
                given = arrays(batch, height)
                np.testing.assert_array_equal(model(given)["y"], given["x"])
    assert len(model._ready) <= 8


def test_memory_of_earlier_sizes_is_given_back_once_it_is_much(model, monkeypatch):
    given_back = []
    monkeypatch.setattr(open_model, "give_back", lambda: given_back.append(len(model._ready)))
    monkeypatch.setattr(open_model, "resident", lambda: 1 << 40)
    model(arrays(1, 2))
    assert given_back == [1]  # the process has grown by more than it may
    for batch in range(1, 9):
        model(arrays(batch, 4))
    assert given_back == [1]
    model(arrays(8, 4))
    for height in range(6, 17, 2):
        model(arrays(8, height))
        model(arrays(7, height))
    assert len(given_back) == 2  # the sixteenth new size since then


@each_row(
    "given, why",
    [
        (arrays(9, 6), "input 'x': dimension 0 (batch) is 9, which is not from 1 to 8"),
        (arrays(4, 18), "input 'x': dimension 2 (height) is 18, which is not from 2 to 16"),
        (arrays(4, 7), "input 'x': dimension 2 (height) is 7, which is no multiple of 2"),
        (arrays(4, 6, mask=3), "input 'mask': dimension 0 (batch) is 3, and 4 in another place"),
        ({"x": np.zeros((4, 6), "float32")}, "input 'x' has 2 dimensions"),
        ({"mask": arrays(4, 6)["mask"]}, "input 'x' float32 [batch, 3, height] is missing"),
        ({**arrays(4, 6), "y": 1}, "the model has no input 'y'"),
        ({**arrays(4, 6), "mask": np.ones((4, 1), "int32")}, "the model takes int64 [4, 1]"),
        ({**arrays(4, 6), "mask": np.ones((4, 2), "int64")}, "the model takes int64 [4, 1]"),
        ({**arrays(4, 6), "x": np.zeros((4, 2, 6), "float32")}, "takes float32 [4, 3, 6]"),
        ({}, "input 'x' float32 [batch, 3, height] is missing"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_line(model, called, given, why):
    with pytest.raises(ConfigError) as caught:
        model(given)
    assert why in str(caught.value)
    assert caught.value.exit_code == 2
    assert called == []


def test_states_have_one_size(model):
    with pytest.raises(ConfigError, match="build it for one size"):
        model.stream({"x": "y"})


def test_a_size_may_be_in_several_places_and_inputs_without_one_do_not_matter():
    fixed = Port(name="f", shape=(2,), dtype="float32")
    square = Port(name="s", shape=(-1, -1), dtype="float32", dimensions=("batch", "batch"))
    found = solve_sizes((fixed, square), {"batch": BATCH}, {"s": (5, 5)})
    assert found == {"batch": 5}
    with pytest.raises(ConfigError, match=r"dimension 1 \(batch\) is 6, and 5 in another place"):
        solve_sizes((square,), {"batch": BATCH}, {"s": (5, 6)})


def keys(*shape):
    return Port(name="keys", shape=(-1, 8), dtype="float32", dimensions=(*shape, ""))


DECODER = (
    Port(name="mask", shape=(1, -1), dtype="int64", dimensions=("", "past + new + 1")),
    keys("past"),
    Port(name="ids", shape=(-1,), dtype="int64", dimensions=("new",)),
)
PARTS = {"past": Dimension(max=9, likely=(4,)), "new": Dimension(max=4, likely=(1,))}


def test_a_sum_is_what_its_parts_come_to():
    """The sum stands before what it is made of."""
    shapes = {"mask": (1, 10), "keys": (7, 8), "ids": (2,)}
    assert solve_sizes(DECODER, PARTS, shapes) == {"past": 7, "new": 2}
    assert DECODER[0].at({"past": 7, "new": 2}).shape == (1, 10)
    with pytest.raises(ConfigError) as caught:
        solve_sizes(DECODER, PARTS, shapes | {"mask": (1, 9)})
    said = "input 'mask': dimension 1 (past + new + 1) is 9, and should be 10"
    assert str(caught.value) == said


@pytest.mark.fault("E16")
@each_row(
    "extent, why",
    [
        ("new + past", "no input tells one of them"), ("past + other", "other names"),
        ("past + -1", "pattern"), ("past + 1e3", "pattern"), ("+ past", "pattern"),
        ("past" + " + past" * 4, "pattern"), ("past + " + "9" * 11, "pattern"),
    ],
)  # fmt: skip
def test_a_signature_with_a_sum_that_says_nothing_is_refused(extent, why):
    told = {"past": PARTS["past"]} | ({"new": PARTS["new"]} if "new" in extent else {})
    with pytest.raises(ValueError, match=why):
        Signature(
            inputs=(keys("past"), keys(extent)), outputs=(), weights=(), threads=1, dimensions=told
        )


def test_an_array_for_an_output_has_the_size_of_the_call(model):
    given = arrays(4, 8)
    buffer = np.empty((4, 3, 8), "float32")
    assert model(given, outputs={"y": buffer})["y"] is buffer
    np.testing.assert_array_equal(buffer, given["x"])
    with pytest.raises(ConfigError, match=r"output 'y' is \[4, 3, 6\]; its array \[4, 3, 8\]"):
        model(arrays(4, 6), outputs={"y": buffer})
