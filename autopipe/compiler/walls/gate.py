"""The only way from TIR to machine code: all code that is compiled here has passed all walls.

No other file of autopipe calls TVM's code generation. TVM calls it itself to fold constants, as
`tirx.build`. Importing this module puts `kernel` in the place of `tirx.build`.
"""

from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import tvm
from tvm.support import cc

from autopipe.compiler import in_registers, no_negatives, open_order
from autopipe.compiler.open_sizes import open_variables
from autopipe.compiler.walls import linked, module, text
from autopipe.compiler.walls.foreign import ForeignCode
from autopipe.errors import ModelError


def kernel(scheduled: tvm.IRModule, target: tvm.target.Target) -> Any:  # noqa: ANN401 - tvm
    """Compile the PrimFuncs of a module to a TVM runtime module. Raises ForeignCode."""
    module.look_through(scheduled)
    library = tvm.tirx.build(scheduled, target, pipeline=_pipeline(scheduled))
    text.look_through(library)
    return library


def model(whole: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Executable:
    """Compile a model to an executable that is safe to run. Raises ForeignCode."""
    module.look_through(whole)
    if open_order.is_open(whole):
        whole = open_order.lowered(whole, target)
        executable = tvm.compile(
            whole, target=target, relax_pipeline=None, tir_pipeline=no_negatives.PIPELINE
        )
    else:
        executable = tvm.compile(whole, target=target, tir_pipeline=in_registers.PIPELINE)
    text.look_through(executable.mod)
    return executable


def _pipeline(scheduled: tvm.IRModule | tvm.tirx.PrimFunc) -> str:
    """Return the name of the pipeline for kernels: our own if a size is open."""
    alone = isinstance(scheduled, tvm.tirx.PrimFunc)
    functions = [scheduled] if alone else scheduled.functions.values()
    return no_negatives.PIPELINE if any(map(open_variables, functions)) else in_registers.PIPELINE


def of_model(whole: tvm.IRModule) -> None:
    """Check a model before any of it is compiled. Raises ModelError."""
    try:
        module.look_through(whole)
    except ForeignCode as error:
        raise ModelError(f"the model brings code along: {error}") from None


def export(
    executable: "tvm.runtime.Executable | tvm.runtime.Module",
    path: Path,
    options: Sequence[str] = (),
    linker: str | None = None,
) -> None:
    """Write a library, linked by the compiler at a path, or by the one that TVM finds.

    Raises ForeignCode, and RuntimeError if it can not be linked.
    """
    told: dict[str, Any] = {"options": list(options)} if options else {}
    if linker is not None:
        told["cc"] = linker
    executable.export_library(str(path), fcompile=_linked, **told)


@wraps(cc.create_shared)  # TVM reads attributes of it
def _linked(output: str, objects: Sequence[str], **options: Any) -> None:  # noqa: ANN401 - as TVM calls it
    for file in objects:
        linked.look_at_object(Path(file).read_bytes(), Path(file).name)
    cc.create_shared(output, objects, **options)
    try:
        linked.look_at_library(Path(output).read_bytes(), Path(output).name)
    except ForeignCode:
        Path(output).unlink()
        raise


def _folding(function: tvm.tirx.PrimFunc, target: tvm.target.Target, *_: object) -> Any:  # noqa: ANN401 - tvm
    return kernel(function, target)


tvm.register_global_func("tirx.build", _folding, override=True)
