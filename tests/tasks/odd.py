"""A model of odd functions, tuned and built.

Each function is a branch of one module, so that one run proves them all. Nothing is filtered, and
every task gets a few trials: what a filter would hide has to survive too.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax import op

from autopipe.artifacts.model_nodes import ModelNodes
from autopipe.compiler import lowering, module_io
from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Event
from autopipe.pipeline.stage import Context
from autopipe.stages.build import BuildStage
from autopipe.stages.tasks import TasksStage
from autopipe.stages.tune import TuneStage
from autopipe.tuning.decision import repeat
from tests.artifacts.examples import imported
from tests.compiler.graphs import PLAIN
from tests.support import here

FACTS: dict[Facet, dict[str, object]] = {
    Facet.TARGET: here.facts(),
    Facet.TVM: {"tvm": tvm.__version__},
    Facet.TOOLCHAIN: {"linker": "one"},
    Facet.DEVICE: {"cpu": "this one"},
}  # fmt: skip
TARGET = here.target()
ROWS = 5
"""What the symbolic dimension is when the model runs."""

_TRIALS = 2
FLOAT, INT, BOOL = "float32", "int64", "bool"


@dataclass(frozen=True, slots=True)
class Branch:
    """One function: its inputs by shape and type, and how it is made of them."""

    inputs: Sequence[tuple[Sequence[int | str], str]]
    make: Callable[..., Any]


def _extern(builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    def call(ins: Any, outs: Any) -> Any:
        return tvm.tirx.call_packed("tvm.contrib.sort.sort", ins[0], outs[0], -1, 1)

    def ordered(a: te.Tensor) -> te.Tensor:
        return te.extern(a.shape, [a], call, dtype=FLOAT, name="ordered")

    return builder.emit_te(ordered, x)


def _extern_scalar(builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    def root(a: te.Tensor) -> te.Tensor:
        return te.compute(
            a.shape, lambda *i: tvm.tirx.call_extern(FLOAT, "fabsf", a(*i)), name="fabsf"
        )

    return builder.emit_te(root, x)


def _copy(builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    def copy(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, a, name="copy")

    return builder.emit_te(copy, x)


def _constant(builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    def constant(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda *_: te.const(7.0, FLOAT))

    return builder.emit_te(constant, x)


def _nms(_: relax.BlockBuilder, boxes: relax.Var, scores: relax.Var) -> relax.Expr:
    limits = [relax.const(np.array(v, t)) for v, t in ((3, INT), (0.5, FLOAT), (0.1, FLOAT))]
    return op.vision.all_class_non_max_suppression(boxes, scores, *limits)


BRANCHES: dict[str, Branch] = {
    "prod": Branch([((256, 512), FLOAT)], lambda _, x: op.prod(x, axis=1)),
    "prod_of_two": Branch([((2,), FLOAT)], lambda _, x: op.prod(x)),
    "prod_of_integers": Branch([((256, 512), INT)], lambda _, x: op.prod(x, axis=1)),
    "argmax": Branch([((256, 512), FLOAT)], lambda _, x: op.argmax(x, axis=1)),
    "argmin": Branch([((256, 512), FLOAT)], lambda _, x: op.argmin(x, axis=1)),
    "variance": Branch([((256, 512), FLOAT)], lambda _, x: op.variance(x, axis=1)),
    "topk": Branch([((8, 256), FLOAT)], lambda _, x: op.topk(x, k=4, axis=1)),
    "sort": Branch([((8, 256), FLOAT)], lambda _, x: op.sort(x, axis=1)),
    "argsort": Branch([((8, 256), FLOAT)], lambda _, x: op.argsort(x, axis=1)),
    "cumsum": Branch([((8, 256), FLOAT)], lambda _, x: op.cumsum(x, axis=1)),
    "scatter_elements": Branch(
        [((8, 256), FLOAT), ((8, 4), INT), ((8, 4), FLOAT)],
        lambda _, x, i, u: op.scatter_elements(x, i, u, axis=1),
    ),
    "scatter_nd": Branch(
        [((8, 256), FLOAT), ((4, 1), INT), ((4, 256), FLOAT)],
        lambda _, x, i, u: op.scatter_nd(x, i, u),
    ),
    "scalar": Branch([((), FLOAT)], lambda _, x: op.multiply(op.add(x, _number(1)), _number(2))),
    "scalar_constant": Branch([((8, 256), FLOAT)], lambda _, x: op.multiply(x, _number(2))),
    "empty": Branch([((0, 16), FLOAT)], lambda _, x: op.nn.relu(x)),
    "empty_matmul": Branch([((0, 16), FLOAT), ((16, 8), FLOAT)], lambda _, x, y: op.matmul(x, y)),
    "boolean": Branch([((8, 256), BOOL)] * 2, lambda _, x, y: op.logical_and(x, op.logical_not(y))),
    "compare": Branch([((8, 256), FLOAT)], lambda _, x: op.greater(x, _number(0))),
    "integer_matmul": Branch([((64, 64), "int32")] * 2, lambda _, x, y: op.matmul(x, y)),
    "byte_matmul": Branch([((64, 64), "int8")] * 2, lambda _, x, y: op.matmul(x, y, "int32")),
    "strided_slice": Branch(
        [((64, 64), FLOAT)],
        lambda _, x: op.strided_slice(x, axes=[0], begin=[1], end=[33], strides=[2]),
    ),
    "gather": Branch([((64, 8), FLOAT), ((5,), INT)], lambda _, x, i: op.take(x, i, axis=0)),
    "dynamic_dense": Branch(
        [(("n", 1225), FLOAT), ((1225, 91), FLOAT)], lambda _, x, y: op.matmul(x, y)
    ),
    "dynamic_relu": Branch([(("n", 16), FLOAT)], lambda _, x: op.nn.relu(x)),
    "shape_of": Branch([(("n", 28), FLOAT)], lambda _, x: op.shape_to_tensor(op.shape_of(x))),
    "nms": Branch([((1, 8, 4), FLOAT), ((1, 1, 8), FLOAT)], _nms),
    "extern": Branch([((8, 32), FLOAT)], _extern),
    "extern_scalar": Branch([((8, 64), FLOAT)], _extern_scalar),
    "split": Branch([((8, 16), FLOAT)], lambda _, x: op.split(x, 2, axis=1)),
    "copy": Branch([((8, 128), FLOAT)], _copy),
    "constant": Branch([((8, 24), FLOAT)], _constant),
    "transpose": Branch([((8, 16), FLOAT)], lambda _, x: op.permute_dims(x)),
    "norm_dense": Branch(
        [((64, 64), FLOAT), ((64,), FLOAT), ((64,), FLOAT), ((64, 64), FLOAT)],
        lambda _, x, g, b, w: op.matmul(op.nn.layer_norm(x, g, b, axes=[-1]), w),
    ),
    "convolution": Branch(
        [((1, 256, 13, 13), FLOAT), ((256, 256, 3, 3), FLOAT), ((1, 256, 1, 1), FLOAT)],
        lambda _, x, w, b: op.nn.relu(op.add(op.nn.conv2d(x, w, padding=1), b)),
    ),
}


def _number(value: float) -> relax.Expr:
    return relax.const(value, FLOAT)


def module() -> tvm.IRModule:
    """Return a module with all branches, their inputs and outputs in order."""
    sizes: dict[int | str, tvm.tirx.Var] = {"n": tvm.tirx.Var("n", INT)}
    builder = relax.BlockBuilder()
    made = {
        name: [
            relax.Var(f"{name}_{i}", relax.TensorType([sizes.get(d, d) for d in shape], dtype))
            for i, (shape, dtype) in enumerate(branch.inputs)
        ]
        for name, branch in BRANCHES.items()
    }
    with builder.function("main", [var for each in made.values() for var in each]):
        with builder.dataflow():
            found = [builder.emit(BRANCHES[name].make(builder, *made[name])) for name in made]
            out = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(out)
    return builder.get()


def arguments() -> list[np.ndarray]:
    """Return seeded inputs; integers are valid indices."""
    random = np.random.default_rng(0)
    found = []
    for name, branch in BRANCHES.items():
        for shape, dtype in branch.inputs:
            size = [ROWS if d == "n" else int(d) for d in shape]
            real = np.dtype(dtype).kind == "f"
            drawn = random.random(size) if real else random.integers(0, 2, size)
            if name == "scatter_nd" and dtype == INT:
                drawn = np.arange(4).reshape(4, 1)
            found.append(drawn.astype(dtype))
    return found


def branches(lowered: tvm.IRModule) -> dict[str, str]:
    """Return the branch of each function that `main` calls, by what its arguments come from."""
    found: dict[str, str] = {}
    known: dict[str, str] = {}
    for binding in list_bindings(lowered["main"]):
        read = [var.name for var in relax.analysis.free_vars(binding.value)]
        origins = [known.get(name, name.rpartition("_")[0]) for name in read if name != "n"]
        branch = origins[0] if origins else "shape_of"
        known[binding.var.name] = branch
        if called := find_callee(binding.value):
            found[called] = branch
    return found


def results(library: Any) -> list[np.ndarray]:
    """Run a compiled module; return its outputs one after the other."""
    machine = relax.VirtualMachine(library, tvm.cpu())
    return list(_flat(machine["main"](*map(tvm.runtime.tensor, arguments()))))


def _flat(value: Any) -> list[np.ndarray]:
    if hasattr(value, "numpy"):
        return [value.numpy()]
    return [array for each in value for array in _flat(each)]


def pipeline(**tasks: object) -> Pipeline:
    """Return a pipeline with that section `tasks`, and few trials for each task."""
    measure = {"repeat": 1, "min_repeat": 0.0005}
    budget = {"trials": 1000, "trials_per_task": _TRIALS}
    return Pipeline.model_validate(
        {
            "version": 1, "name": "odd", "model": {"path": "odd.onnx"}, "tasks": tasks,
            "tuning": {"budget": budget, "batch": 2, "measure": measure},
        }
    )  # fmt: skip


EVERYTHING = {"heuristics": None, "include_simple_task": True, "judge": None}


def _tell(event: Event) -> None:
    sys.stderr.write(f"{event!r}\n")


def context(folder: Path, stage: str) -> Context:
    """Return the context of a stage whose inputs are the folders of the others."""
    for name in (stage, "work"):
        (folder / name).mkdir(exist_ok=True)
    return Context(
        inputs={each: folder / each for each in ("import", "optimize", "lower", "tasks", "tune")},
        facts=FACTS, out=folder / stage, work=folder / "work", records=folder / "records.sqlite",
        emit=_tell,
    )  # fmt: skip


def lowered() -> tuple[lowering.Optimized, tvm.IRModule]:
    """Return the module as it is after *optimize*, and after *lower*."""
    made = module()
    optimized = lowering.optimize(made, len(made["main"].params), {}, TARGET, print)
    return optimized, lowering.lower(optimized.module, TARGET)


def lower(folder: Path) -> None:
    """Write what the stages before `tasks` would."""
    for name in ("import", "optimize", "lower"):
        (folder / name).mkdir(exist_ok=True)
    imported(name="odd").write(folder / "import")
    ModelNodes(nodes=()).write(folder / "import")
    module_io.save_weights({}, folder / "import" / "weights.safetensors")
    optimized, found = lowered()
    module_io.save_module(optimized.transform, folder / "optimize" / "transform.json")
    module_io.save_json({}, folder / "optimize" / "optimize.json")
    module_io.save_module(found, folder / "lower" / "module.json")


def main() -> None:
    """Tune everything into the folder of `sys.argv`, build, run, and compare with plain loops."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    lower(folder)
    plan = pipeline(**EVERYTHING)
    tune = TuneStage.of(plan, folder)
    assert tune is not None
    # Who wins is not what this is about.
    with patch.object(repeat, "_BEST", 1):
        for stage in (TasksStage.of(plan, folder), tune, BuildStage.of(plan, folder)):
            sys.stdout.write(f"{stage.name}: {stage.run(context(folder, stage.name))}\n")
    ours = results(tvm.runtime.load_module(str(folder / "build" / "lib.so")))
    plain = results(tvm.compile(module(), target=PLAIN))
    for mine, theirs in zip(ours, plain, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    sys.stdout.write(f"{len(ours)} outputs agree\n")
