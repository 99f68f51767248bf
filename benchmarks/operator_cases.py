"""The ONNX project's own tests of its operators, as models that can be imported.

What an operator needs when a model is compiled is an input of these models: shapes, axes, counts.
Real models have it as a constant, and so have these when they leave here.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading.tensors import DTYPES

_AT_IMPORT: Final = frozenset({
    "axes", "axis", "block_shape", "depth", "delta", "dft_length", "ends", "frame_length",
    "frame_step", "image_shape", "iou_threshold", "k", "limit", "lower_edge_hertz",
    "max_output_boxes_per_class", "num_mel_bins", "output_shape", "pads", "position", "ratio",
    "repeats", "roi", "sample_rate", "scales", "score_threshold", "shape", "size", "sizes",
    "split", "start", "starts", "steps", "training_mode", "upper_edge_hertz",
    "CastLike.target_type", "ConstantOfShape.input", "TopK.K",
})  # fmt: skip
"""Inputs by their names in the definition of the operator, as far as they say sizes or places."""

_BY_VALUES: Final = frozenset({
    "Compress", "ImageDecoder", "NonMaxSuppression", "NonZero", "Unique",
})  # fmt: skip
"""Operators with results whose shape depends on values that are inputs of their tests."""
_DRAWN: Final = frozenset({"Bernoulli"})
"""Operators with results that no test can expect; their tests have those of one run."""

_BYSTANDER: Final = "bystander"
"""An input that is passed on where all others are constants: a model has to depend on one."""


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One test of one operator."""

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]
    outputs: Sequence[np.ndarray]
    tolerances: tuple[float, float]
    """Relative and absolute."""
    domain: str
    """What it computes on: `numbers`, `values` where numbers decide on shapes, `drawn` at random,
    `small` for types that numpy lacks, `other` for what is no tensor of numbers, and `foreign` for
    operators that are not of ONNX's own set."""


def cases() -> Iterator[OperatorCase]:
    """Yield all tests that the installed onnx package has for single operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they overflow on purpose
        from onnx.backend.test.loader import load_model_tests

        tests = {test.name: test for test in load_model_tests(kind="node")}
    for name, test in sorted(tests.items()):
        whole = tests.get(name.partition("_expanded")[0], test)
        if whole.model is not None:
            yield _case(test, _operator(whole), _constants(whole.model))


def _case(test: Any, operator: str, constants: frozenset[str]) -> OperatorCase:  # noqa: ANN401
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    graph = model.graph
    given, outputs = (list(map(_array, values)) for values in test.data_sets[0])
    inputs = {value.name: array for value, array in zip(graph.input, given, strict=False)}
    domain = _domain(graph, operator)
    if domain == "numbers":
        for value in [value for value in graph.input if value.name in constants]:
            array = np.asarray(inputs.pop(value.name))
            graph.initializer.append(numpy_helper.from_array(array, value.name))
            graph.input.remove(value)
        if not graph.input:
            inputs[_BYSTANDER] = np.ones([1], "float32")
            outputs.append(inputs[_BYSTANDER])
            place = helper.make_tensor_value_info(_BYSTANDER, onnx.TensorProto.FLOAT, [1])
            graph.input.append(place)
            graph.node.append(helper.make_node("Neg", [_BYSTANDER], [f"{_BYSTANDER}.neg"]))
            graph.node.append(helper.make_node("Abs", [f"{_BYSTANDER}.neg"], [f"{_BYSTANDER}.out"]))
            graph.output.append(place)
            graph.output[-1].name = f"{_BYSTANDER}.out"
    tolerances = (test.rtol, test.atol)
    return OperatorCase(test.name, operator, model, inputs, outputs, tolerances, domain)


def _array(value: Any) -> Any:  # noqa: ANN401  an array, a list of them, or a message
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _operator(test: Any) -> str:  # noqa: ANN401
    """Return the operator under test: the only one, or the one in the test's name."""
    kinds = [node.op_type for node in test.model.graph.node]
    named = [kind for kind in kinds if kind.lower() in test.name.replace("_", "")]
    return str(max(named or kinds, key=len))


def _constants(model: onnx.ModelProto) -> frozenset[str]:
    """Return the inputs of a graph that operators read as shapes, axes or counts."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    found = set()
    for node in model.graph.node:
        schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
        for name, formal in zip(node.input, schema.inputs, strict=False):
            if not _AT_IMPORT.isdisjoint({formal.name, f"{node.op_type}.{formal.name}"}):
                found.add(name)
    return frozenset(found)


def _domain(graph: onnx.GraphProto, operator: str) -> str:
    if any(node.domain for node in graph.node):
        return "foreign"
    values = [*graph.input, *graph.output]
    types = [value.type.tensor_type.elem_type for value in values]
    if all(kind in DTYPES for kind in types):
        return "values" if operator in _BY_VALUES else "drawn" if operator in _DRAWN else "numbers"
    strings = onnx.TensorProto.STRING
    return "other" if any(kind in {0, strings} for kind in types) else "small"
