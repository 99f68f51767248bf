"""A library with outputs that kernels can write to memory of a caller, and others."""

from pathlib import Path

import numpy as np
import tvm
from safetensors.numpy import save_file
from tvm import relax

from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.library import build
from autopipe.schedules.engines import default
from tests.compiler import graphs

SHAPE = (128, 1024)
NAMES = ("sum", "double", "same", "again", "rows")
SIGNATURE = Signature(
    inputs=(Port(name="x", shape=SHAPE, dtype="float32"),),
    outputs=tuple(
        Port(name=name, shape=SHAPE[: 1 if name == "rows" else 2], dtype="float32")
        for name in NAMES
    ),
    weights=(),
    threads=1,
)  # fmt: skip
X = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")


def compute(x):
    """Return what the model computes: `same` is the input, `again` is `sum` once more."""
    double = x * 2
    made = (double + x, double, x, double + x, -double[:, 0])
    return dict(zip(NAMES, made, strict=True))


def make_module(shape=SHAPE, rows=None):
    """Return the model as a module; one with `rows` has a dynamic dimension."""
    sizes = (rows, *shape[1:]) if rows is not None else shape
    x = relax.Var("x", relax.TensorType(sizes, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            double = builder.emit(relax.op.multiply(x, relax.const(2, "float32")))
            added = builder.emit(relax.op.add(double, x))
            first = relax.op.strided_slice(double, [1], [0], [1])
            column = builder.emit(relax.op.negative(relax.op.squeeze(first, [1])))
            out = builder.emit_output(relax.Tuple([added, double, x, added, column]))
        builder.emit_func_output(out)
    return tvm.IRModule({"main": builder.get()["main"].with_attr("num_input", 1)})


def build_module(module):
    """Return a module that is compiled with the default schedules."""
    lowered = lowering.lower(module, graphs.TARGET)
    scheduled = {
        name: default.schedule(tasks.make_workload(function).module, graphs.TARGET)
        for name, function in module_io.list_prim_funcs(lowered)
    }
    return build.build_library(lowered, scheduled, graphs.TARGET)


def write_library(to: Path):
    """Write the library, and its weights, of which there are none."""
    build.export(build_module(make_module()), to / "lib.so")
    save_file({}, to / "weights.safetensors")
