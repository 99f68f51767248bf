"""Selects the libraries for a function by its op information, among those installed."""

from collections.abc import Iterator

import tvm

from autopipe.compiler.target import cpu
from autopipe.libraries import LIBRARIES
from autopipe.libraries.library import Library, Packed, Pattern
from autopipe.schedules.conditions import Conditions
from autopipe.tasks.op_info import Argument, Literal, Op, OpInfo, Parameter, Result
from autopipe.tasks.tensor import Tensor


def list_available(conditions: Conditions) -> Iterator[Library]:
    """Yield the libraries that code for a target can call.

    Such a library is installed for the architecture of the target.
    """
    device = conditions.hardware.backend.device
    for library in LIBRARIES:
        if library.device == device and _is_available(library, conditions.target):
            yield library


def can_take_op(library: Library, info: OpInfo, inputs: tuple[Tensor, ...]) -> bool:
    """Tell whether a library supports exactly one of the ops of a function.

    The other ops are left to generated code. `inputs` are the input tensors of the function.
    """
    matching_ops = [
        op for op in info.ops if any(_is_match(p, op, info, inputs) for p in library.takes)
    ]
    return len(matching_ops) == 1


def _is_available(library: Library, target: tvm.target.Target) -> bool:
    """Tell whether TVM's runtime has a library's function, or whether its files are installed."""
    if isinstance(library.interface, Packed):
        return tvm.get_global_func(library.interface.function, allow_missing=True) is not None
    triple = {"mtriple": target.attrs.get("mtriple")}
    return library.version() is not None and cpu.find_architecture(triple) == cpu.find_architecture(
        {}
    )


def _is_match(pattern: Pattern, op: Op, info: OpInfo, inputs: tuple[Tensor, ...]) -> bool:
    """Tell whether an op of a function matches a pattern."""
    if not op.whole or not pattern.names(op.name, op.attributes, op.layout):
        return False
    tensors = {
        position: tensor
        for position, argument in enumerate(op.arguments)
        if (tensor := _find_tensor(argument, info, inputs)) is not None
    }
    dtypes = {tensor.dtype for tensor in (*tensors.values(), *op.outputs)}
    return (
        len(dtypes) == 1
        and dtypes <= set(pattern.dtypes)
        and pattern.holds({position: tensor.shape for position, tensor in tensors.items()})
    )


def _find_tensor(argument: Argument, info: OpInfo, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """Return shape and dtype of an argument of an op, or None if it is not a tensor."""
    if isinstance(argument, Parameter):
        return inputs[argument.parameter]
    if isinstance(argument, Result):
        return info.ops[argument.op].outputs[argument.output]
    if isinstance(argument, Literal) and argument.shape is not None and argument.dtype:
        return Tensor(shape=argument.shape, dtype=argument.dtype)
    return None
