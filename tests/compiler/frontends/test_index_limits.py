"""Inputs of ONNX graphs whose values are indices into a table, and how many entries it has."""

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from autopipe.compiler.frontends.onnx.facts.index_limits import find_index_limits
from autopipe.compiler.frontends.onnx.load import load_model
from tests.compiler.frontends.control.control_models import parsed
from tests.compiler.frontends.models import model, node, save, tensor, value

IDS = value("ids", [2], TensorProto.INT64)


def gather(table, ids, output="y", axis=0):
    return node("Gather", [table, ids], output, axis=axis)


def limits(nodes, tables):
    stored = [tensor(name, *shape) for name, shape in tables.items()]
    made = model(nodes, [IDS], [value("y", None)], stored)
    return find_index_limits(made.graph, ["ids"])


def test_the_size_of_the_table_is_the_limit():
    assert limits([gather("t", "ids")], {"t": (7, 3)}) == {"ids": 7}
    assert limits([gather("t", "ids", axis=-1)], {"t": (7, 3)}) == {"ids": 3}


@pytest.mark.parametrize(("first", "second"), [("long", "short"), ("short", "long")])
def test_the_smallest_of_several_tables_counts_through_casts(first, second):
    nodes = [
        node("Cast", ["ids"], "small", to=TensorProto.INT32),
        gather(first, "ids", "a"),
        gather(second, "small", "b"),
        node("Add", ["a", "b"]),
    ]
    assert limits(nodes, {"long": (9, 3), "short": (4, 3)}) == {"ids": 4}


def test_a_table_of_unknown_size_allows_its_first_entry():
    nodes = [node("Relu", ["t"], "computed"), gather("computed", "ids")]
    assert limits(nodes, {"t": (7, 3)}) == {"ids": 1}


def test_an_input_that_is_no_index_has_no_limit():
    assert limits([node("Cast", ["ids"], to=TensorProto.FLOAT)], {}) == {}


def test_indices_are_followed_into_the_body_of_a_loop():
    made = parsed("""
        g (int64[2] ids, float[7, 3] t) => (float[3, 2, 3] y) {
          count = Constant<value = int64 {3}>()
          always = Constant<value = bool {1}>()
          last, y = Loop(count, always, ids) <
            body = step (int64 i, bool c, int64[2] at)
              => (bool c2, int64[2] next, float[2, 3] row) {
              c2 = Identity(c)
              next = Identity(at)
              row = Gather<axis = 0>(t, at)
            }>
        }""")  # fmt: skip
    assert find_index_limits(made.graph, ["ids", "t"]) == {"ids": 7}


def test_an_imported_model_states_its_indices_and_no_weights(tmp_path):
    """A long list of constant indices is a weight, which is an input of the graph for a while."""
    made = model(
        [gather("x", "ids", "a"), gather("x", "places", "b"), node("Concat", ["a", "b"], axis=0)],
        [IDS, value("x", [7, 3])],
        [value("y", [9002, 3])],
        [numpy_helper.from_array(np.arange(9000) % 7, "places")],
    )
    loaded = load_model(save(made, tmp_path), {}, None, None)
    assert "places" in loaded.weights
    assert loaded.selects == {"ids": 7}
