"""What an imported model states of the sizes of its outputs before a call."""

# mypy: disable-error-code="arg-type"

from itertools import product

import numpy as np
import pytest
from onnx import TensorProto
from tvm import tirx

from autopipe.artifacts.signature import Port
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.facts.outputs import find_size_range
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.config.dimension import Dimension, evaluate_size
from autopipe.config.model import Input
from tests.compiler.frontends.models import FLOAT, ints, model, node, run, save, value

DIMENSIONS = {
    "batch": Dimension(max=4, likely=(1,)),
    "new": Dimension(max=5, likely=(1,)),
    "past": Dimension(min=0, max=6, likely=(4,)),
    "length": Dimension(min=8, max=24, multiple=8, likely=(16,)),
}
SHAPES = {
    "x": ("batch", "new", "length"),
    "old": ("batch", "past", "length"),
    "mask": ("batch", "past + 1"),
}
GRAPH = [
    node("Relu", ["x"], "same"),
    node("Concat", ["x", "x"], "double", axis=2),
    node("Concat", ["old", "x"], "joined", axis=1),
    node("MaxPool", ["x"], "pooled", kernel_shape=[2], strides=[2]),
    node("Slice", ["x", "one", "end", "two"], "shorter"),
    node("Reshape", ["x", "flat"], "flat_x"),
    node("Transpose", ["mask"], "turned", perm=[1, 0]),
    node("NonZero", ["x"], "places"),
]
STORED = {"flat": [-1], "one": [1], "end": [2**31], "two": [2]}
STATED = {
    "same": (("batch", "new", "length"), ()),
    "double": (("batch", "new", ""), (None, None, (16, 48))),
    "joined": (("batch", "", "length"), (None, (1, 11), None)),
    "pooled": (("batch", "new", ""), (None, None, (4, 12))),
    "shorter": (("batch", "new", ""), (None, None, (7, 23))),
    "flat_x": ((), ((8, 480),)),
    "turned": (("past + 1", "batch"), ()),
    "places": ((), (None, (0, 480))),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    inputs = [value(name, list(shape)) for name, shape in SHAPES.items()]
    kinds = {name: TensorProto.INT64 if name == "places" else FLOAT for name in STATED}
    outputs = [value(name, None, kind) for name, kind in kinds.items()]
    stored = [ints(name, *values) for name, values in STORED.items()]
    return save(model(GRAPH, inputs, outputs, stored), tmp_path_factory.mktemp("stated"))


@pytest.fixture(scope="module")
def imported(path):
    shapes = {name: Input(shape=shape) for name, shape in SHAPES.items()}
    return load_model(path, shapes, None, None, DIMENSIONS)


def test_outputs_state_names_and_ranges_of_their_sizes(imported):
    found = {value.name: (value.dimensions, value.ranges) for value in imported.outputs}
    assert found == STATED


def test_onnxruntime_finds_every_size_as_stated_and_the_ends_of_its_range(path, imported):
    seen: dict[str, list[tuple[int, ...]]] = {name: [] for name in STATED}
    for chosen in product(*({one.first, one.last} for one in DIMENSIONS.values())):
        sizes = dict(zip(DIMENSIONS, chosen, strict=True))
        shapes = {
            name: [evaluate_size(extent, sizes) for extent in shape]
            for name, shape in SHAPES.items()
        }
        feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        for output, array in zip(imported.outputs, run(path, feeds), strict=True):
            port = Port.model_validate(output.model_dump()).at(sizes)
            assert port.takes(array.shape), (port, array.shape)
            seen[output.name].append(array.shape)
    for name in STATED.keys() - {"places"}:
        for axis, ends in enumerate(STATED[name][1]):
            found = [shape[axis] for shape in seen[name]]
            assert ends is None or ends == (min(found), max(found)), name


def test_a_size_that_nothing_bounds_has_no_range():
    """As many elements as no tensor has are no promise."""
    many, other = tirx.Var("many", "int64"), tirx.Var("other", "int64")
    extents = Extents({"many": many}, {"many": Dimension(max=2**20, likely=(1,))})
    assert find_size_range(many * many, extents) == (1, 2**40)
    assert find_size_range(many * many + 1, extents) is None
    assert find_size_range(other + 1, extents) is None
    assert find_size_range(tirx.min(other, many), extents) == (0, 2**20)
    assert find_size_range(many - 5, extents) == (0, 2**20 - 5)


@pytest.mark.parametrize(
    "changed",
    [
        {"ranges": ((1, 2),)}, {"ranges": ((1, 2), (3, 4))}, {"ranges": ((2, 1), None)},
        {"ranges": ((1, 2), None), "dimensions": ("n", "")}, {"dimensions": ("n", "m")},
        {"ranges": ((-1, 2), None)}, {"ranges": ((0, 2**40 + 1), None)},
    ],
)  # fmt: skip
def test_statements_that_contradict_each_other_are_refused(changed):
    port = {"name": "y", "shape": (-1, 4), "dtype": "float32"}
    Port.model_validate({**port, "ranges": ((1, 2), None)})
    with pytest.raises(ValueError, match=r"range|dimensions"):
        Port.model_validate({**port, **changed})
