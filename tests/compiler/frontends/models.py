"""Small ONNX models for the tests of the frontend."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.reading import gate, source
from autopipe.verification.reference import EXACT_BYTES

FLOAT = TensorProto.FLOAT


def value(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def tensor(name, *shape, fill=None):
    random = np.random.default_rng(len(name))
    values = random.standard_normal(shape) if fill is None else np.full(shape, fill)
    return numpy_helper.from_array(values.astype(np.float32), name)


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(nodes, inputs, outputs, stored=(), opset=17, **fields):
    graph = helper.make_graph(nodes, "small", inputs, outputs, stored)
    opsets = fields.pop("opsets", None) or [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **fields)


def node(kind, inputs, output="y", **attributes):
    return helper.make_node(kind, inputs, [output], name=f"{kind} of {output}", **attributes)


def dense(rows=2, opset=17):
    """y = x @ weight + bias, 2x3 to 2x4."""
    return model(
        [node("MatMul", ["x", "weight"], "product"), node("Add", ["product", "bias"])],
        [value("x", [rows, 3])],
        [value("y", [rows, 4])],
        [tensor("weight", 3, 4), tensor("bias", 4)],
        opset=opset,
    )


def external(made, location="data.bin", **entries):
    """Say of the first initializer that its data is elsewhere; return that data."""
    moved = made.graph.initializer[0]
    data = moved.raw_data
    moved.ClearField("raw_data")
    moved.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **entries}.items():
        moved.external_data.add(key=key, value=str(text))
    return data


def save(made, folder, name="model.onnx"):
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


def run(made, feeds, level="DISABLE"):
    """Return the outputs that onnxruntime computes, unoptimized.

    Products of bytes need level "ENABLE": `EXACT_BYTES` says it to an optimization.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_{level}_ALL"
    )
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry(*EXACT_BYTES)
    data = made.SerializeToString() if isinstance(made, onnx.ModelProto) else str(made)
    return onnxruntime.InferenceSession(data, options).run(None, feeds)


def compiled(imported, feeds, **options):
    """Return the outputs that TVM computes; `options` are those of `tvm.compile`."""
    return machine(imported, **options)(feeds)


def machine(imported, **options):
    """Return what computes outputs of inputs by TVM."""
    import tvm
    from tvm import relax

    from autopipe.compiler.passes import legalize  # noqa: F401 - it registers how ops are computed

    target = tvm.target.Target({"kind": "llvm", "opt-level": 0, "num-cores": 1})
    library = tvm.compile(imported.module, target=target, **options)
    main = relax.VirtualMachine(library, tvm.cpu())["main"]

    def call(feeds):
        arrays = [*feeds.values(), *imported.weights.values()]
        result = main(*(tvm.runtime.tensor(np.asarray(a, order="C")) for a in arrays))
        return [result.numpy()] if hasattr(result, "numpy") else [each.numpy() for each in result]

    return call


def vet(made, tmp_path):
    """Return a model that has passed the gate of the frontend."""
    path = save(made, tmp_path)
    return gate.vet_model(source.read_model_file(path), path, {})


def by_onnx(made, feeds):
    """Return the outputs of a model by the reference evaluator of ONNX."""
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(made).run(None, feeds)
