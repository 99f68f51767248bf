"""Operators whose results are as long as values say, against onnxruntime."""

# mypy: disable-error-code="call-overload,attr-defined"
# ruff: noqa: E501

from itertools import product

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.operators.slicing import list_slice_places
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
        ("ReduceSum", "r no_axes", "same", {"noop_with_empty_axes": 1}),
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
    "no_axes": np.array([], "int64"),
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
    imported = load_model(path, {}, None, None)
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
    call = machine(load_model(save(made, tmp_path_factory.mktemp("sizes")), {}, None, None))
    feeds = {"x": np.ones((3, 8), "f"), "k": np.array(wanted)}
    if shape is not None:
        assert call(feeds)[0].shape == shape
        return
    with pytest.raises(RuntimeError, match="match_cast"):
        call(feeds)


ROWS = [
    node("NonZero", ["m"], "p"),
    node("Squeeze", ["p", "zero"], "q"),
    node("Gather", ["x", "q"], "r"),
]
"""The rows r [n, 5] of x [4, 5] that a mask m chooses."""

LOOKED_UP = {
    "gathered": ([node("Gather", ["r", "two"])], 1),
    "column": ([node("Transpose", ["r"], "t"), node("Gather", ["t", "two"], axis=1)], 1),
    "elements": ([node("GatherElements", ["r", "pair"], axis=0)], 1),
    "longer": ([node("GatherElements", ["r", "pair"], axis=1)], 2),
    "lists": ([node("GatherND", ["r", "lists"])], 1),
    "put": ([node("ScatterElements", ["r", "pair", "pairs"], axis=0)], 1),
    "put rows": ([node("ScatterND", ["r", "lists", "updates"])], 1),
    "added rows": ([node("ScatterND", ["r", "lists", "updates"], reduction="add")], 1),
    "few updates": ([node("ScatterND", ["x", "lists", "r"])], 3),
    "spread": ([node("Expand", ["r", "four"])], 4),
    "resized": ([node("Resize", ["r", "", "", "four"], mode="nearest")], 1),
    "edges": ([node("Pad", ["r", "border"], mode="edge")], 1),
    "reflected": ([node("Pad", ["r", "border"], mode="reflect")], 2),
}
"""Nodes that read r, and the least n with which they have something to read."""

LISTS = {"zero": [0], "four": [4, 5], "border": [1, 0, 1, 0]}
GIVEN = {"two": [0, -1], "pair": [[0, 0, 0, 0, 0], [-1, 0, 0, 0, -1]], "lists": [[0], [-1], [0]]}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_a_call_ends_where_nothing_is_at_the_places_that_are_read(name, tmp_path):
    nodes, least = LOOKED_UP[name]
    stored = [numpy_helper.from_array(np.array(one), key) for key, one in LISTS.items()]
    stored += [numpy_helper.from_array(np.ones(shape, "f"), key)
               for key, shape in (("pairs", (2, 5)), ("updates", (3, 5)))]  # fmt: skip
    given = {name: np.array(GIVEN[name]) for name in nodes[-1].input if name in GIVEN}
    inputs = [value("x", [4, 5]), value("m", [4])]
    inputs += [value(name, array.shape, INT) for name, array in given.items()]
    path = save(model([*ROWS, *nodes], inputs, [value("y", None)], stored), tmp_path)
    call = machine(load_model(path, {}, None, None))
    for count in range(5):
        feeds = {"x": np.arange(20, dtype="f").reshape(4, 5), "m": np.zeros(4, "f"), **given}
        feeds["m"][:count] = 1
        if name == "few updates" and count > least:
            continue  # which onnxruntime refuses, and nothing else is read
        if count < least and (name, count) != ("spread", 1):
            with pytest.raises(RuntimeError, match="match_cast"):
                call(feeds)
        else:
            np.testing.assert_allclose(call(feeds)[0], run(path, feeds)[0])


def test_no_places_read_nothing(tmp_path):
    nodes = [*ROWS, node("NonZero", ["k"], "u"), node("Squeeze", ["u", "zero"], "v"),
             node("Gather", ["r", "v"])]  # fmt: skip
    inputs = [value("x", [4, 5]), value("m", [4]), value("k", [4])]
    made = model(
        nodes, inputs, [value("y", None)], [numpy_helper.from_array(np.array([0]), "zero")]
    )
    call = machine(load_model(save(made, tmp_path), {}, None, None))
    none, some = np.zeros(4, "f"), np.array([1, 0, 0, 0], "f")
    x = np.arange(20, dtype="f").reshape(4, 5)
    assert call({"x": x, "m": none, "k": none})[0].shape == (0, 5)
    np.testing.assert_array_equal(call({"x": x, "m": some, "k": some})[0], x[:1])
    with pytest.raises(RuntimeError, match="match_cast"):
        call({"x": x, "m": none, "k": some})


def test_the_place_of_the_largest_of_nothing_is_the_first(tmp_path):
    nodes = [*ROWS, node("ArgMax", ["r"], axis=0), node("ArgMin", ["r"], "z", axis=0, keepdims=0)]
    inputs = [value("x", [4, 5]), value("m", [4])]
    outputs = [value(name, None, INT) for name in "yz"]
    stored = [numpy_helper.from_array(np.array([0]), "zero")]
    call = machine(
        load_model(save(model(nodes, inputs, outputs, stored), tmp_path), {}, None, None)
    )
    x = np.arange(20, dtype="f").reshape(4, 5)
    for mask, places in (([0, 0, 0, 0], (0, 0)), ([0, 1, 1, 1], (2, 0))):
        most, least = call({"x": x, "m": np.array(mask, "f")})
        np.testing.assert_array_equal(most, np.full((1, 5), places[0]))
        np.testing.assert_array_equal(least, np.full(5, places[1]))


FAR = (-(2**63), -(2**62), -9, -7, -2, -1, 0, 1, 3, 7, 8, 2**31, 2**62, 2**63 - 1)


@pytest.mark.parametrize("step", [1, 3, -1, -2, 2**63 - 1, -(2**63)])
def test_any_numbers_are_ends_of_a_slice(step, tmp_path):
    nodes = [node("Slice", ["x", "a", "b", "zero", "step"], "y"),
             node("NonZero", ["m"], "p"), node("Gather", ["p", "first"], "q"),
             node("Gather", ["x", "q"], "r"), node("Slice", ["r", "a", "b", "zero", "step"], "z")]  # fmt: skip
    stored = [numpy_helper.from_array(np.array(one), key)
              for key, one in (("zero", [0]), ("step", [step]), ("first", 0))]  # fmt: skip
    inputs = [value("x", [7, 2]), value("m", [7]), value("a", [1], INT), value("b", [1], INT)]
    outputs = [value("y", None), value("z", None)]
    path = save(model(nodes, inputs, outputs, stored), tmp_path)
    call = machine(load_model(path, {}, None, None))
    x = np.arange(14, dtype="f").reshape(7, 2)
    for start, end in product(FAR, FAR):
        for count in (0, 4):
            feeds = {"x": x, "m": (np.arange(7) < count).astype("f"),
                     "a": np.array([start]), "b": np.array([end])}  # fmt: skip
            for size, found in zip((7, count), call(feeds), strict=True):
                right = x[list(list_slice_places(start, end, step, size))] if size else x[:0]
                np.testing.assert_array_equal(found, right, f"[{start}:{end}:{step}] of {size}")


@each_row("parts, right", [
    ([2, 3, 2], True), ([7, 0, 0], True), ([0, 7, 0], True), ([-5, 7, -(2**63)], True),
    ([2, 3, 3], False), ([1, 1, 1], False), ([2**62, 2**62, 7], False), ([-1, -1, -1], False),
    ([2**63 - 1, 2**63 - 1, 9], False),
])  # fmt: skip
def test_parts_of_a_split_are_the_whole(parts, right, tmp_path_factory):
    nodes = [helper.make_node("Split", ["x", "k"], ["u", "v", "w"], axis=0)]
    made = model(nodes, [value("x", [7, 2]), value("k", [3], INT)],
                 [value(name, None) for name in "uvw"])  # fmt: skip
    call = machine(load_model(save(made, tmp_path_factory.mktemp("parts")), {}, None, None))
    x = np.arange(14, dtype="f").reshape(7, 2)
    feeds = {"x": x, "k": np.array(parts)}
    if not right:
        with pytest.raises(RuntimeError, match="match_cast"):
            call(feeds)
        return
    ends = np.cumsum(np.maximum(parts, 0))
    for found, begin, end in zip(call(feeds), [0, *ends], ends, strict=False):
        np.testing.assert_array_equal(found, x[begin:end])


def test_what_can_not_be_found_says_why(tmp_path):
    made = model(
        [node("Unique", ["x"], axis=0)],
        [value("x", [4, 5])],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    with pytest.raises(ModelError, match="Unique 'Unique of y' along an axis of several"):
        load_model(save(made, tmp_path), {}, None, None)


def test_boxes_without_scores_are_refused(tmp_path):
    made = model(
        [node("NonMaxSuppression", ["b", "s"])],
        [value("b", [1, 4, 4]), value("s", [1, 2, 6])],
        [value("y", None, INT)],
    )
    with pytest.raises(ModelError, match="boxes and scores are not of the same images and boxes"):
        load_model(save(made, tmp_path), {}, None, None)
