"""Small ONNX models, and what goes wrong in kernels, as models that are slightly other ones."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autopipe.artifacts.signature import Port, Signature
from autopipe.verification.reference import EXACT_BYTES

SIDE = 12
_TYPES = {1: "float32", 6: "int32", 7: "int64", 9: "bool"}


def model(nodes, shape, weights, kind=TensorProto.FLOAT):
    """Return a model from `x` to `y`."""
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outs = [helper.make_tensor_value_info("y", kind, None)]
    stored = [numpy_helper.from_array(np.asarray(values), name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "g", ports, outs, stored)
    opset = helper.make_opsetid("", 19)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def network(tail, shift=0.0):
    """Return two convolutions and what `tail` makes of `h`."""
    generator = np.random.default_rng(5)

    def drawn(*shape):
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return (generator.standard_normal(shape) * scale).astype("f")

    weights = {
        "w0": drawn(8, 3, 3, 3), "b0": drawn(8, 1).reshape(8),
        "w1": drawn(6, 8, 3, 3), "b1": drawn(6, 1).reshape(6) + np.float32(shift),
        "most": np.float32(6.0), "least": np.float32(0.0),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c0", "least", "most"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["h"], pads=[1, 1, 1, 1]),
        *tail,
    ]
    return model(nodes, [1, 3, SIDE, SIDE], weights)


def ended(*kinds, **attributes):
    """Return nodes from `h` to `y`."""
    names = ["h", *(f"t{i}" for i in range(len(kinds) - 1)), "y"]
    return [
        helper.make_node(kind, [names[i]], [names[i + 1]], **(attributes if i == 0 else {}))
        for i, kind in enumerate(kinds)
    ]


def quantized(made, folder):
    """Return a model in the bytes that onnxruntime's own quantizer makes of it."""
    from onnxruntime.quantization import QuantFormat, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # it is not typed
        def __init__(self):
            generator = np.random.default_rng(1)
            shape = [1, 3, SIDE, SIDE]
            self.left = [{"x": generator.standard_normal(shape).astype("f")} for _ in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    source, target = folder / "float.onnx", folder / "bytes.onnx"
    onnx.save(made, source)
    quantize_static(source, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
    return onnx.load(target)


def _bias(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[np.abs(array.astype("d")).argmax()] = 0
    return changed


def _tile(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[:, -1:] = 0
    return changed


def _swapped(array: np.ndarray) -> np.ndarray:
    return array[[1, 0, *range(2, len(array))]]


_CHANGES: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "one bias dropped": (1, _bias),
    "last tile of a sum dropped": (4, _tile),
    "two channels swapped": (4, _swapped),
}


def mutants(made) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield models that compute something else, each with what went wrong."""
    for position, tensor in enumerate(made.graph.initializer):
        values = numpy_helper.to_array(tensor)
        for what, (rank, change) in _CHANGES.items():
            if values.ndim == rank and not tensor.name.endswith(("scale", "zero_point")):
                other = onnx.ModelProto.FromString(made.SerializeToString())
                changed = numpy_helper.from_array(change(values), tensor.name)
                other.graph.initializer[position].CopyFrom(changed)
                yield f"{what} of {tensor.name}", other
        if tensor.name == "most":
            other = onnx.ModelProto.FromString(made.SerializeToString())
            changed = numpy_helper.from_array(np.array(2.0, np.float32), tensor.name)
            other.graph.initializer[position].CopyFrom(changed)
            yield "a bound of a clip", other
    for position, node in enumerate(made.graph.node):
        if node.op_type == "Conv":
            other = onnx.ModelProto.FromString(made.SerializeToString())
            for attribute in other.graph.node[position].attribute:
                if attribute.name == "pads":
                    attribute.CopyFrom(helper.make_attribute("pads", [2, 1, 0, 1]))
            yield f"a border off by one at {node.output[0]}", other


def build(made, run):
    """Return what `verify` takes for a build: a model, and what computes it."""
    ports = [
        [
            Port(
                name=value.name,
                shape=[dim.dim_value for dim in value.type.tensor_type.shape.dim],
                dtype=_TYPES[value.type.tensor_type.elem_type],
            )
            for value in values
        ]
        for values in (made.graph.input, made.graph.output)
    ]
    signature = Signature(inputs=tuple(ports[0]), outputs=tuple(ports[1]), weights=(), threads=1)

    class Build:
        def __init__(self):
            self.signature, self.rounded, self.short = signature, (), None

        def __call__(self, arrays):
            return dict(zip([port.name for port in ports[1]], run(arrays), strict=True))

    return Build()


def by_onnxruntime(made):
    """Return what runs a model, with the kernels of onnxruntime."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry(*EXACT_BYTES)
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return lambda arrays: session.run(None, dict(arrays))


def by_numpy(made):
    """Return what runs a model, with the reference kernels of onnx."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(made)

    def run(arrays):
        with np.errstate(all="ignore"):
            return evaluator.run(None, dict(arrays))

    return run
