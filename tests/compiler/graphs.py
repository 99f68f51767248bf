"""Small Relax modules, as the frontend would give them: inputs first, then weights."""

import numpy as np
import tvm
from tvm import relax

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
PLAIN = tvm.target.Target({**TARGET.export(), "opt-level": 0})
"""For what others are compared with: LLVM's optimizer is most of what compiling it would cost."""

NHWC = {"conv2d": ["NHWC", "HWIO"]}


def convolution(channels=8, size=10, stride=1):
    """conv3x3 + bias + relu, twice, then a scale per channel as ONNX writes it, then a pool."""
    x = relax.Var("x", relax.TensorType((1, 3, size, size), "float32"))
    weights = {
        "k1": (channels, 3, 3, 3),
        "b1": (1, channels, 1, 1),
        "k2": (channels, channels, 3, 3),
        "scale": (channels, 1, 1),
    }
    params = [
        relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in weights.items()
    ]
    k1, b1, k2, scale = params
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *params]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, k1, strides=stride, padding=1))
            y = builder.emit(relax.op.nn.relu(relax.op.add(y, b1)))
            y = builder.emit(relax.op.nn.conv2d(y, k2, padding=1))
            y = builder.emit(relax.op.multiply(y, scale))
            y = builder.emit(relax.op.nn.max_pool2d(y, (2, 2), strides=(2, 2)))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


def arguments(module, seed=0):
    """Seeded arrays for every parameter of `main`."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal([int(d) for d in p.ty.shape]).astype("float32")
        for p in module["main"].params
    ]


def run(module, arrays, target=TARGET):
    """What the module computes, by TVM's plain build."""
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    return machine["main"](*[tvm.runtime.tensor(a) for a in arrays]).numpy()


def expected(module, arrays):
    """What another module has to compute as well."""
    return run(module, arrays, PLAIN)
