"""Maps the nodes of a model to the kernel calls of its libraries."""

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
    """Return which nodes the kernel calls of each library are made of.

    `libraries` and `functions` go by the label of a module.
    """
    flops = {name: task.flops for task in tasks for name in task.functions}
    listed = []
    for label, library in sorted(libraries.items(), key=lambda pair: pair[1].name):
        own = {name.partition("@")[0]: count for name, count in flops.items()
               if name == append_label(name.partition("@")[0], label)}  # fmt: skip
        calls = functions[label]
        work = list_kernel_work(calls, own)
        listed.append(LibraryNodes(library=library.name, functions=calls, work=work))
    return NodeMap(nodes=model.nodes, libraries=tuple(listed))
