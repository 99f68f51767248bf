"""The reference `plain`: runs the imported model as plain loops, in a process of its own.

TVM legalizes and compiles the model. No pass of a build, no fusion, no layout change and no
schedule is applied, and the weights are the imported ones; only the loops of a sum are put in an
order that LLVM vectorizes, which leaves the bits of all results (`row_order`). It shares
with a build: TVM's definitions of operators, the order of NaN in comparisons, the parser of
the model file, and LLVM. A fault there stays unseen.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import transform

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.model import ImportedModel
from autopipe.compiler import module_io
from autopipe.compiler.arithmetic import (  # noqa: F401 - they register legalizations of ops
    float_order,
    integer_division,
    wrapping_integers,
)
from autopipe.compiler.codegen.compile_kernels import compile_model
from autopipe.compiler.library.ports import solve_sizes
from autopipe.compiler.library.row_order import reorder_reductions
from autopipe.errors import StageError
from autopipe.processes import call
from autopipe.store import arrays


def _run_cases(request: call.Answer) -> call.Answer:
    from safetensors.numpy import load_file

    folder = Path(request["model"])
    model = ImportedModel.read(folder)
    inputs, outputs = ([port.name for port in ports] for ports in (model.inputs, model.outputs))
    stored_weights = module_io.load_weights(folder / "weights.safetensors")
    weights = [tvm.runtime.tensor(stored_weights[name]) for name in model.weights]
    try:
        machine = _compile_reference(folder / "module.json")
        for case, file in request["cases"]:
            case_inputs = load_file(case)
            arguments = [tvm.runtime.tensor(case_inputs[name]) for name in inputs]
            result = machine["main"](*arguments, *make_size_arguments(model, case_inputs), *weights)
            results = [result] if hasattr(result, "numpy") else list(result)
            values = [np.asarray(result.numpy(), order="C") for result in results]
            arrays.save(dict(zip(outputs, values, strict=True)), Path(file))
    except Exception as error:  # TVM raises errors of many types
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise StageError(lines[-1]) from error
    return {"outputs": outputs}


def make_size_arguments(
    model: ImportedModel | BuiltLibrary, input_arrays: Mapping[str, np.ndarray]
) -> list[object]:
    """Return the shape argument of `main` for dynamic sizes: the multiples of each."""
    if not model.dimensions:
        return []
    shapes = {name: array.shape for name, array in input_arrays.items()}
    sizes = solve_sizes(model.inputs, model.dimensions, shapes)
    steps = [sizes[name] // model.dimensions[name].multiple for name in sorted(sizes)]
    return [tvm_ffi.Shape(steps)]


def _compile_reference(module: Path) -> relax.VirtualMachine:
    """Compile for every processor of this architecture: the loops are the same everywhere."""
    target = tvm.target.Target({"kind": "llvm"})
    with target, tvm.transform.PassContext(opt_level=3):
        inference = transform.DecomposeOpsForInference()(module_io.load_module(module))
        loops = reorder_reductions(transform.LegalizeOps()(inference))
        return relax.VirtualMachine(compile_model(loops, target), tvm.cpu())


if __name__ == "__main__":
    call.serve_request(_run_cases)
