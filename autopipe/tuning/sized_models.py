"""The modules of the model that finalists run in: one, or one for each specialized size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm

from autopipe.artifacts.lowering import WHOLE, SizedModules
from autopipe.compiler import module_io
from autopipe.compiler.graph.calls import count_calls
from autopipe.compiler.tasks import append_label, parse_label
from autopipe.tasks.task import Task


@dataclass(frozen=True, slots=True)
class SizedModel:
    """The model at one size."""

    module: tvm.IRModule
    tasks: Sequence[Task]
    """All tasks, those that are dropped among them, as they are named and called in it."""
    sizes: Mapping[str, int]
    """Of each dimension; {} of a model without dynamic shapes."""


def load_sized_models(lowered_folder: Path, tasks: Sequence[Task]) -> Iterator[SizedModel]:
    """Yield the model at each specialized size; the model itself, if all shapes are static."""
    sized_modules = SizedModules.within(lowered_folder).modules
    for model in sized_modules:
        module = module_io.load_module(lowered_folder / model.file)
        yield SizedModel(module, _select_tasks(module, model.label, tasks), model.sizes)
    if not sized_modules:
        yield SizedModel(module_io.load_module(lowered_folder / WHOLE), tasks, {})


def can_run(lowered_folder: Path, tasks: Sequence[Task]) -> bool:
    """Tell whether all kernels of the model have static shapes, at least at specialized sizes.

    Data-dependent shapes could take any value for synthetic inputs.
    """
    labels = [one.label for one in SizedModules.within(lowered_folder).modules] or [""]
    return not any(
        (task.sizes or task.likely) and parse_label(name) in labels
        for task in tasks
        for name in task.functions
    )


def _select_tasks(module: tvm.IRModule, label: str, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks of the module with that label.

    Example: `fused_add` is `fused_add@32` and `fused_add@64` where the same task is called at two
    sizes, twice at each. In the module for 32 it is `fused_add`, called twice and not four times.
    """
    counts = count_calls(module)
    model_tasks = []
    for task in tasks:
        names = tuple(name for name in counts if append_label(name, label) in task.functions)
        if names:
            calls = sum(counts[name] for name in names)
            model_tasks.append(task.model_copy(update={"functions": names, "calls": calls}))
    return model_tasks
