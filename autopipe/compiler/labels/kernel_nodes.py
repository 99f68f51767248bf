"""Kernel calls of a module that is compiled, and the nodes of the model that they are made of."""

from collections.abc import Iterator, Mapping, Sequence

import tvm
from tvm import relax

from autopipe.artifacts.model_nodes import PACKED, KernelCall, KernelFunction, KernelWork
from autopipe.artifacts.signature import MAIN_INTO, PREPARE
from autopipe.compiler.graph.calls import find_callee, graph_functions, list_bindings
from autopipe.compiler.labels.node_labels import Label, read_label, set_labels


def list_kernel_functions(module: tvm.IRModule) -> tuple[KernelFunction, ...]:
    """Return the kernel calls of each function of the graph, `main` first, in their order.

    `main_into` is left out, since its calls are those of `main`, and so is `prepare_weights`.
    """
    found = []
    for variable, function in graph_functions(module):
        calls = tuple(_list_kernel_calls(function))
        if calls and variable.name_hint not in {MAIN_INTO, PREPARE}:
            found.append(KernelFunction(name=str(variable.name_hint), calls=calls))
    return tuple(found)


def _list_kernel_calls(function: relax.Function) -> Iterator[KernelCall]:
    """Yield the calls; what a branch computes is read by all that reads the result of its `If`."""
    origins: dict[relax.Var, tuple[int, ...]] = {}
    position = 0
    for binding in list_bindings(function):
        used = (origins.get(var, ()) for var in relax.analysis.all_vars(binding.value))
        reads = tuple(sorted({at for places in used for at in places}))
        if (kernel := find_callee(binding.value)) is None:
            origins[binding.var] = reads
            continue
        label = read_label(binding.var.name)
        nodes = label.nodes if label is not None else ()
        added = label is not None and label.added
        yield KernelCall(kernel=kernel, nodes=nodes, added=added, reads=reads)
        origins[binding.var] = (position,)
        position += 1


def relabel_packed(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose kernels were split from their packing, with the labels it had before.

    TVM's pass names what it binds to a kernel anew, and leaves the kernels in their order.
    """
    functions = {str(var.name_hint): function for var, function in graph_functions(after)}
    labels: dict[relax.Var, Label] = {}
    for variable, function in graph_functions(before):
        packed = iter(list_bindings(functions[str(variable.name_hint)]))
        for binding in list_bindings(function):
            if (kernel := find_callee(binding.value)) is None:
                continue
            names = {kernel, kernel + PACKED}
            found = next((one.var for one in packed if find_callee(one.value) in names), None)
            label = read_label(binding.var.name)
            if found is not None and label is not None:
                labels[found] = label
    return set_labels(after, labels)


def list_kernel_work(
    functions: Sequence[KernelFunction], flops: Mapping[str, float]
) -> tuple[KernelWork, ...]:
    """Return what each kernel does, of operations by the name before weights were laid out."""
    kernels = sorted({call.kernel for function in functions for call in function.calls})
    return tuple(
        KernelWork(kernel=kernel, flops=count)
        for kernel in kernels
        if (count := flops.get(kernel.removesuffix(PACKED), 0.0))
    )
