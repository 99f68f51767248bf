"""A model that is called step by step keeps its states, and copies none of them."""

import numpy as np
import pytest
import tvm_ffi

from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.runtime import LoadedModel
from autopipe.errors import ConfigError, StageError
from tests.support.table import each_row

FLOATS = {"shape": (2,), "dtype": "float32"}
STATES = {"h": "h_next", "c": "c_next"}


def added(one, two):
    values: np.ndarray = np.add(np.from_dlpack(one), np.from_dlpack(two))
    return tvm_ffi.from_dlpack(values)


class Cell:
    """h_next = h + x, and c_next is the memory of x itself, as of a model that passes it on."""

    def __init__(self):
        self.given = []
        self.made = []
        self.fails = False

    def __call__(self, h, x, c):
        if self.fails:
            raise RuntimeError("out of paper")
        self.given.append((h, c))
        made = added(h, x)
        self.made.append(made)
        both = added(h, c)
        return [both, made, x]


@pytest.fixture
def cell():
    return Cell()


@pytest.fixture
def model(cell):
    signature = Signature(
        inputs=tuple(Port(name=name, **FLOATS) for name in ("h", "x", "c")),
        outputs=tuple(Port(name=name, **FLOATS) for name in ("y", "h_next", "c_next")),
        weights=(),
        threads=1,
    )
    return LoadedModel(signature, {"main": cell}, [], KernelThreads(1))


def frame(value):
    return {"x": np.full(2, value, "float32")}


def test_states_go_from_call_to_call(model):
    stream = model.stream(STATES)
    outputs = [stream(frame(value)) for value in (1, 10, 100)]
    assert [list(step) for step in outputs] == [["y"]] * 3
    assert [step["y"].tolist() for step in outputs] == [[0, 0], [2, 2], [21, 21]]
    assert {name: state.tolist() for name, state in stream.states.items()} == {
        "h": [111, 111], "c": [100, 100],
    }  # fmt: skip


def test_a_state_is_given_on_where_it_lies(model, cell):
    stream = model.stream(STATES)
    stream(frame(1))
    stream(frame(2))
    assert cell.given[1][0].data_ptr() == cell.made[0].data_ptr()


def test_two_streams_of_one_model_do_not_mix(model):
    one, two = model.stream(STATES), model.stream({"h": "h_next"}, {"h": np.ones(2, "float32")})
    one(frame(5))
    two({**frame(7), "c": np.zeros(2, "float32")})
    assert one.states["h"].tolist() == [5, 5]
    assert two.states["h"].tolist() == [8, 8]


def test_a_stream_begins_anew(model):
    stream = model.stream(STATES, {"c": np.full(2, 4, "float32")})
    assert stream.states["c"].tolist() == [4, 4]
    first = stream(frame(1))["y"]
    stream(frame(1))
    stream.reset({"c": np.full(2, 4, "float32")})
    assert stream(frame(1))["y"].tolist() == first.tolist() == [4, 4]


def test_after_an_error_the_states_are_those_before_it(model, cell):
    stream = model.stream(STATES)
    stream(frame(3))
    cell.fails = True
    with pytest.raises(StageError, match="out of paper"):
        stream(frame(4))
    cell.fails = False
    assert stream.states["h"].tolist() == [3, 3]
    stream(frame(4))
    assert stream.states["h"].tolist() == [7, 7]


@each_row(
    "states, start, message",
    [
        ({"g": "h_next"}, None, "no input 'g'; it has h, x, c"),
        ({"h": "g"}, None, "no output 'g'; it has y, h_next, c_next"),
        ({"h": "h_next"}, {"c": np.zeros(2, "float32")}, "no input 'c'"),
        ({"h": "h_next"}, {"h": np.zeros(3, "float32")}, r"'h' is float32 \[3\]"),
    ],
)
def test_what_does_not_fit_is_told(states, start, message, model):
    with pytest.raises(ConfigError, match=message):
        model.stream(states, start)


def test_an_output_of_another_shape_can_not_be_a_state():
    signature = Signature(
        inputs=(Port(name="h", **FLOATS),),
        outputs=(Port(name="h_next", shape=(3,), dtype="float32"),),
        weights=(),
        threads=1,
    )
    model = LoadedModel(signature, {"main": lambda h: h}, [], KernelThreads(1))
    with pytest.raises(ConfigError, match=r"'h_next' float32 \[3\] cannot be input 'h' float32"):
        model.stream({"h": "h_next"})
