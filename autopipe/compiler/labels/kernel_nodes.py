"""List the kernel calls of a compiled module, with the model's nodes that they compute."""

from collections.abc import Iterator, Mapping, Sequence

import tvm
from tvm import relax

from autopipe.artifacts.model_nodes import PACKED, KernelCall, KernelFunction, KernelWork
from autopipe.artifacts.signature import MAIN_INTO, PREPARE
from autopipe.compiler.graph.calls import find_callee, graph_functions, list_bindings
from autopipe.compiler.labels.node_labels import Label, read_label, set_labels


def list_kernel_functions(module: tvm.IRModule) -> tuple[KernelFunction, ...]:
    """List the kernel calls of each Relax function in program order, `main` first.

    `main_into` is left out, since its calls are those of `main`, and so is `prepare_weights`.
    """
    functions = []
    for variable, function in graph_functions(module):
        calls = tuple(_list_kernel_calls(function))
        if calls and variable.name_hint not in {MAIN_INTO, PREPARE}:
            functions.append(KernelFunction(name=str(variable.name_hint), calls=calls))
    return tuple(functions)


def _list_kernel_calls(function: relax.Function) -> Iterator[KernelCall]:
    """Yield the kernel calls; readers of an `If` read the calls of both branches."""
    origins: dict[relax.Var, tuple[int, ...]] = {}
    position = 0
    for binding in list_bindings(function):
        operand_origins = (origins.get(var, ()) for var in relax.analysis.all_vars(binding.value))
        reads = tuple(sorted({at for places in operand_origins for at in places}))
        if (kernel := find_callee(binding.value)) is None:
            origins[binding.var] = reads
            continue
        label = read_label(binding.var.name)
        nodes = label.nodes if label is not None else ()
        is_added = label is not None and label.added
        yield KernelCall(kernel=kernel, nodes=nodes, added=is_added, reads=reads)
        origins[binding.var] = (position,)
        position += 1


def relabel_packed(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Restore the labels of a module after TVM split kernels from their packing.

    TVM's pass renames the variables of kernel calls, and keeps their order.
    """
    functions = {str(var.name_hint): function for var, function in graph_functions(after)}
    labels: dict[relax.Var, Label] = {}
    for variable, function in graph_functions(before):
        bindings = iter(list_bindings(functions[str(variable.name_hint)]))
        for binding in list_bindings(function):
            if (kernel := find_callee(binding.value)) is None:
                continue
            names = {kernel, kernel + PACKED}
            kernel_variable = next((b.var for b in bindings if find_callee(b.value) in names), None)
            label = read_label(binding.var.name)
            if kernel_variable is not None and label is not None:
                labels[kernel_variable] = label
    return set_labels(after, labels)


def list_kernel_work(
    functions: Sequence[KernelFunction], flops: Mapping[str, float]
) -> tuple[KernelWork, ...]:
    """Return the operations of each kernel; `flops` has the names from before packing."""
    kernels = sorted({call.kernel for function in functions for call in function.calls})
    return tuple(
        KernelWork(kernel=kernel, flops=count)
        for kernel in kernels
        if (count := flops.get(kernel.removesuffix(PACKED), 0.0))
    )
