"""Operators whose results are as long as values say, against onnxruntime."""

# mypy: disable-error-code="call-overload,attr-defined"
# ruff: noqa: E501

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load
from autopipe.errors import ModelError
from tests.compiler.frontends.models import FLOAT, machine, model, node, run, save, value
from tests.support.table import each_row

INT = TensorProto.INT64

OPERATORS = {
    "nonzero": [("NonZero", "x", "p"), ("Transpose", "p", "q"), ("GatherND", "x q", "y")],
    "line": [("NonZero", "x", "y")],
    "kept": [("Greater", "x limit", "g"), ("Compress", "x g", "y")],
    "columns": [("Cast", "c", "g", {"to": 9}), ("Compress", "x g", "y", {"axis": 1})],
    "best": [("TopK", "x k", "y p", {"axis": 1})],
    "different": [("Unique", "x", "y f i c")],
    "first": [("Unique", "x", "y f i c", {"sorted": 0})],
    "range": [("Range", "a b c", "y")],
    "expand": [("Expand", "x k", "e"), ("Relu", "e", "y")],
    "reshape": [("Reshape", "x k", "y")],
    "slice": [("Slice", "x a b axes steps", "y")],
    "resize": [("Resize", "x  k", "y", {"mode": "nearest"})],
    "rows": [
        ("NonZero", "m", "p"),
        ("Squeeze", "p axis", "q"),
        ("Gather", "x q", "r"),
        ("MatMul", "r w", "d"),
        ("Softmax", "d", "y"),
    ],
    "summed": [
        ("NonZero", "m", "p"),
        ("Squeeze", "p axis", "q"),
        ("Gather", "x q", "r"),
        ("ReduceSum", "r axis", "y", {"keepdims": 0}),
        ("ReduceMax", "r", "top", {"axes": [0]}),
        ("ReduceMean", "r", "mean", {"axes": [0]}),
        ("ReduceLogSumExp", "r", "logarithm", {"axes": [0]}),
        ("Einsum", "r r", "each", {"equation": "ni,nj->ij"}),
        ("Transpose", "r", "t"),
        ("MatMul", "t r", "product"),
    ],
    "boxes": [("NonMaxSuppression", "b s most overlap least", "y")],
    "centers": [("NonMaxSuppression", "b s most overlap", "y", {"center_point_box": 1})],
}
"""Nodes of a graph each: operator, inputs, outputs, attributes."""

STORED = {
    "limit": np.float32(0.3),
    "axes": np.array([1, 0]),
    "steps": np.array([1, 3]),
    "axis": np.array([0]),
    "w": np.arange(20, dtype="f").reshape(5, 4) / 7,
    "most": np.array([5]),
    "overlap": np.array([0.3], "f"),
    "least": np.array([0.2], "f"),
}

PLACES = {
    *("line.y", "nonzero.p", "best.p", "range.y", "boxes.y", "centers.y"),
    *(f"{graph}.{name}" for graph in ("different", "first") for name in "yfic"),
}
"""Outputs that are whole numbers."""


def drawn(random):
    """Return random inputs, by graph and name."""

    def floats(*shape):
        return random.standard_normal(shape, "f") * (random.random(shape) < random.random())

    def boxes():
        return {"b": random.random((2, 30, 4)), "s": random.random((2, 3, 30)) * random.random()}

    found = {
        "nonzero": {"x": floats(4, 5, 3)},
        "line": {"x": random.integers(0, 2, 3000)},
        "kept": {"x": floats(2100)},
        "columns": {"x": floats(3, 8), "c": floats(8)},
        "best": {"x": random.standard_normal((3, 20)), "k": random.integers(0, 21, 1)},
        "different": {"x": random.integers(0, 9, (5, 8))},
        "first": {"x": random.integers(0, 9, 40)},
        "range": {"a": random.integers(-5, 5, ()), "b": random.integers(-5, 30, ()),
                  "c": random.integers(1, 4, ())},
        "expand": {"x": floats(1, 20), "k": np.array([random.integers(0, 9), 20])},
        "reshape": {"x": floats(4, 6), "k": random.permutation([[0, 2, -1], [2, 3, 4], [-1, 1, 6]])[0]},
        "slice": {"x": floats(30, 20), "a": random.integers(-40, 40, 2), "b": random.integers(-40, 40, 2)},
        "resize": {"x": floats(1, 2, 5, 6), "k": np.array([1, 2, *random.integers(1, 12, 2)])},
        "rows": {"x": floats(24, 5), "m": floats(24)},
        "summed": {"x": floats(24, 5), "m": floats(24) * random.integers(0, 2)},
        "boxes": boxes(),
        "centers": boxes(),
    }  # fmt: skip
    return {
        f"{graph}.{name}": array.astype("f" if array.dtype.kind == "f" else "q")
        for graph, inputs in found.items()
        for name, array in inputs.items()
    }


def called(graph, names):
    """Return names in the whole model: those of weights are the same everywhere."""
    return [name if name in STORED or not name else f"{graph}.{name}" for name in names.split(" ")]


def whole(feeds):
    """Return one model of all graphs, since compiling takes longer than all of it together."""
    nodes, made = [], set()
    for graph, parts in OPERATORS.items():
        for kind, inputs, outputs, *attributes in parts:
            given = called(graph, inputs)
            if kind == "Resize":
                given = [given[0], "", "", given[-1]]
            made.update(called(graph, outputs))
            kept = attributes[0] if attributes else {}
            name = f"{graph}.{kind}"
            nodes.append(helper.make_node(kind, given, called(graph, outputs), name=name, **kept))
    read = {name for node in nodes for name in node.input}
    return model(
        nodes,
        [value(name, array.shape, FLOAT if array.dtype.kind == "f" else INT)
         for name, array in feeds.items()],
        [value(name, None, INT if name in PLACES else FLOAT) for name in sorted(made - read)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in STORED.items()],
    )  # fmt: skip


def test_what_is_found_is_what_onnxruntime_finds(tmp_path):
    random = np.random.default_rng(3)
    path = save(whole(drawn(random)), tmp_path)
    imported = load(path, {}, None, None)
    assert sum(-1 in output.shape for output in imported.outputs) > len(OPERATORS)
    lengths = set()
    call = machine(imported)
    for _ in range(16):
        feeds = drawn(random)
        pairs = zip(imported.outputs, call(feeds), run(path, feeds), strict=True)
        for output, array, expected in pairs:
            assert array.shape == expected.shape, output.name
            np.testing.assert_allclose(array, expected, 1e-5, 1e-6, err_msg=output.name)
            lengths.add((output.name, array.size))
    assert len(lengths) > 5 * len(OPERATORS)


@each_row(
    "kind, wanted, shape",
    [
        ("Reshape", [-1, 0], (3, 8)), ("Reshape", [7, -1], None), ("Reshape", [100, 100], None),
        ("Reshape", [1, 1], None), ("Reshape", [2**62 + 3, 8], None), ("Reshape", [-1, -1], None),
        ("Expand", [2**62, 8], (3, 8)), ("Expand", [-5, 2**62], (3, 8)),
        ("Tile", [2, -(2**63)], (6, 0)), ("Tile", [2**62, 2**62], None),
        ("Tile", [2**31, 2**31], None),
    ],
)  # fmt: skip
def test_sizes_that_hold_nothing_sensible_end_a_call(kind, wanted, shape, tmp_path_factory):
    """Nothing is read or written outside of memory: a call ends with an error or has a value."""
    made = model(
        [node(kind, ["x", "k"])], [value("x", [3, 8]), value("k", [2], INT)], [value("y", None)]
    )
    call = machine(load(save(made, tmp_path_factory.mktemp("sizes")), {}, None, None))
    feeds = {"x": np.ones((3, 8), "f"), "k": np.array(wanted)}
    if shape is not None:
        assert call(feeds)[0].shape == shape
        return
    with pytest.raises(RuntimeError, match="match_cast"):
        call(feeds)


def test_what_can_not_be_found_says_why(tmp_path):
    made = model(
        [node("Unique", ["x"], axis=0)],
        [value("x", [4, 5])],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    with pytest.raises(ModelError, match="Unique 'Unique of y' along an axis of several"):
        load(save(made, tmp_path), {}, None, None)


def test_boxes_without_scores_are_refused(tmp_path):
    made = model(
        [node("NonMaxSuppression", ["b", "s"])],
        [value("b", [1, 4, 4]), value("s", [1, 2, 6])],
        [value("y", None, INT)],
    )
    with pytest.raises(ModelError, match="boxes and scores are not of the same images and boxes"):
        load(save(made, tmp_path), {}, None, None)
