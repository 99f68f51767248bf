"""Map the nodes of a model to the kernel calls of its libraries."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from autopipe.artifacts.model_nodes import KernelFunction, LibraryNodes, ModelNodes, NodeMap
from autopipe.compiler.labels.kernel_nodes import list_kernel_work
from autopipe.compiler.tasks import append_label
from autopipe.tasks.task import Task


def map_nodes(
    model: ModelNodes,
    tasks: Sequence[Task],
    libraries: Mapping[str, Path],
    functions: Mapping[str, tuple[KernelFunction, ...]],
) -> NodeMap:
    """Map the kernel calls of each library to the nodes that they compute.

    `libraries` and `functions` are keyed by the label of a module.
    """
    flops = {name: task.flops for task in tasks for name in task.functions}
    library_nodes = []
    for label, library in sorted(libraries.items(), key=lambda pair: pair[1].name):
        kernel_flops = {name.partition("@")[0]: count for name, count in flops.items()
               if name == append_label(name.partition("@")[0], label)}  # fmt: skip
        calls = functions[label]
        work = list_kernel_work(calls, kernel_flops)
        library_nodes.append(LibraryNodes(library=library.name, functions=calls, work=work))
    return NodeMap(nodes=model.nodes, libraries=tuple(library_nodes))
